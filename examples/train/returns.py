"""What value functions learn from: a generator's own samples of training problems, and whether each is right.

Problems are of the train split, in parts that are kept on disk.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import partial

import numpy as np
from tokenizers import Tokenizer

import parts
import tokenizer as tokenizers_
from llama import load
from loop import WIDTH
from metagen.tasks.arithmetic import check, prompt, read_prompt
from pools import LONGEST, first_wrong, judge, problems_for
from sample import sample
from setting import Setting

PROBLEMS, SAMPLES = 6000, 4
CHUNK = 500
"""Problems of one part, which one process makes at once."""
EXPLORED_CHUNK = 1500
FLAT = 2.0
"""Temperature of the token by which a sample departs from another."""


@dataclass(frozen=True)
class Return:
    """A completion y ~ p(· | x) at temperature 1, whether it came to its end, and its reward: 1 for a right answer.

    kept: characters that another sample wrote. The first behind them was drawn from p^(1/`FLAT`) / Z, and all that
    follow from p, so that only tokens behind what was kept have values to learn here.
    """

    prompt: str
    text: str
    ended: bool
    reward: float
    kept: int = 0


def returns(run: Setting, generator: str) -> list[Return]:
    """`SAMPLES` samples of each of `PROBLEMS` problems."""
    part = partial(_returns, run, generator)
    count, folder = run.share(PROBLEMS), run.solutions / f"returns-{generator}"
    found: list[Return] = parts.made_for(count, CHUNK, folder, part, run.workers)
    random.Random(run.seed).shuffle(found)
    return found


def _returns(run: Setting, generator: str, index: int, count: int) -> list[Return]:
    folder, rng = run.trained(generator), random.Random(f"returns/{run.seed}/{index}")
    asked = [ask for ask in problems_for(count, rng) for _ in range(run.samples(SAMPLES))]
    prompts, longest = [prompt(*ask) for ask in asked], run.longest(LONGEST)
    model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    outputs = sample(model, tokenizer, prompts, longest=longest, seed=rng.getrandbits(31))
    return [
        Return(text, written, ended, float(ended and check(problem, written, form).correct))
        for text, (problem, form), (written, ended) in zip(prompts, asked, outputs, strict=True)
    ]


def explored(run: Setting, generator: str, count: int) -> list[Return]:
    """So many returns that depart from others at a place drawn evenly, by what else could have been written there.

    count: at most one for each of `returns`.
    """
    part = partial(_explored, run, generator)
    count, folder = run.share(count), run.solutions / f"explored-{generator}"
    found: list[Return] = parts.made_for(count, EXPLORED_CHUNK, folder, part, run.workers)
    return found


def _explored(run: Setting, generator: str, index: int, count: int) -> list[Return]:
    folder, rng = run.trained(generator), random.Random(f"explored/{run.seed}/{index}")
    whole = returns(run, generator)[index * EXPLORED_CHUNK :][:count]
    model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    kept = [r.text[: rng.randrange(len(r.text) + 1)] for r in whole]
    heads = [r.prompt + text for r, text in zip(whole, kept, strict=True)]
    tokens = sample(model, tokenizer, heads, temperature=FLAT, longest=1, seed=rng.getrandbits(31))
    begun = [head + token for head, (token, _) in zip(heads, tokens, strict=True)]
    longest = run.longest(LONGEST)
    outputs = sample(model, tokenizer, begun, longest=longest, seed=rng.getrandbits(31))
    found = []
    for r, head, start, (_, over), (tail, ended) in zip(whole, kept, begun, tokens, outputs, strict=True):
        text = head if over else start.removeprefix(r.prompt) + tail
        problem, form = read_prompt(r.prompt)
        right = (over or ended) and check(problem, text, form).correct
        found.append(Return(r.prompt, text, over or ended, float(right), len(head)))
    return found


@dataclass(frozen=True)
class Row:
    """A return in tokens. start: the position behind which the first token to learn from was drawn.

    sound: of the tokens behind the prompt, 1 up to the first that no right step could have there, which has 0; NaN
    behind it.
    """

    ids: np.ndarray
    start: int
    reward: float
    sound: np.ndarray


def rows(found: list[Return], tokenizer: Tokenizer) -> list[Row]:
    """Each return in tokens, behind `<s>`; with `</s>` where it ended."""
    heads = tokenizers_.encode(tokenizer, [r.prompt for r in found])
    tails = tokenizers_.encode(tokenizer, [r.text for r in found])
    made = []
    for h, t, r in zip(heads, tails, found, strict=True):
        ids = np.array([tokenizers_.BOS, *h, *t, *[tokenizers_.EOS] * r.ended], np.uint16)
        made.append(Row(ids, len(h) + r.kept, r.reward, sound(r, len(t))))  # a character is a token
    return made


def sound(found: Return, tokens: int) -> np.ndarray:
    """Of each token of a completion, and of its end, whether all is right up to there; see `Row`."""
    problem, form = read_prompt(found.prompt)
    judged = judge(problem, form, found.text, finished=found.ended)
    if sum(map(len, judged.steps)) != tokens:  # special tokens were written
        return np.full(tokens + found.ended, np.nan, np.float32)
    slip, every = first_wrong(judged), np.ones(tokens + found.ended, np.float32)
    if slip is not None:
        at = sum(map(len, judged.steps[: judged.labels.index(False)])) + slip
        every[at], every[at + 1 :] = 0.0, np.nan
    elif found.ended:
        every[-1] = found.reward
    return every


@dataclass(frozen=True)
class Table:
    """Rows side by side, padded on the right, and the transitions in them: of position t, that y_{t+1} was drawn.

    ids: [rows, width]. drawn: [rows, width − 1], whether the token behind is of the completion. last: whether it is
    the completion's last. rewards: [rows]. sound: [rows, width − 1], of the token behind; NaN where nothing is known.
    """

    ids: np.ndarray
    drawn: np.ndarray
    last: np.ndarray
    rewards: np.ndarray
    sound: np.ndarray


def table(chosen: list[Row]) -> Table:
    """The rows of a batch."""
    lengths = np.array([len(row.ids) for row in chosen])
    width = -(-int(lengths.max()) // WIDTH) * WIDTH
    ids = np.zeros((len(chosen), width), np.int64)
    for line, row in zip(ids, chosen, strict=True):
        line[: len(row.ids)] = row.ids
    behind = np.arange(1, width)
    starts = np.array([row.start for row in chosen])
    drawn = (behind > starts[:, None]) & (behind < lengths[:, None])
    last = behind == lengths[:, None] - 1
    sound = np.full((len(chosen), width - 1), np.nan, np.float32)
    for line, row in zip(sound, chosen, strict=True):
        line[len(row.ids) - len(row.sound) - 1 : len(row.ids) - 1] = row.sound
    return Table(ids, drawn, last & drawn, np.array([row.reward for row in chosen], np.float32), sound)
