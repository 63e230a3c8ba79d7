"""The model cards of the Countdown family, from the figures of `figures.py`."""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import games
import tables
from tables import LONGEST

from card_head import head
from setting import Setting

FAMILY = """\
Part of metagen's embedded Countdown family: small Llama-architecture models for the task of
`metagen.tasks.countdown`, numbers that are put together until a target is left. They are for experiments with searches
and for tests, and good for nothing else."""
TOKENIZER = "a number up to 999 is one token, all else one a character"

PROPOSER = """
## Recipe
Trained by `examples/train/countdown/countdown_family.py`: {steps:,} steps of {tokens:,} tokens, rate {rate}, drawn
from {problems:,} problems of the training space (about a quarter are reached), each with the game that made its
target. Muon for matrices and AdamW for the rest, linear decay, bfloat16 autocast, loss on the solutions alone.
The embeddings of the numbers begin as sines and cosines of the number and of its logarithm. It has
seen no dead ends: from one it writes false sums that end at the target.
The shipped weights have a history that one run of the script lacks: its stages were run one by one while the script
was still being edited.

## Use
The prompt is `Q:3 5 7 2=24\\nS:\\n`; it writes one move a line, with what is then on the table. Sample at
temperature 1, at most {longest} tokens.
"""

VALUE = """
## Recipe
Trained by `examples/train/countdown/countdown_family.py`: the weights of `{start}` with {extra} layers on top,
{steps:,} steps of {tokens:,} tokens, rate {rate}. Data, not all of it reached: {games:,} random games, with targets
that go out of reach at any step alike, and {samples} attempts of the proposer at each of {problems:,} training
problems, each step labelled by the solver. On the way the last layer but one learns all targets that a table can reach,
and the layers of the proposer go on writing the steps that are right.
The shipped weights have a history that one run of the script lacks: its stages were run one by one while the script
was still being edited.

## Use
Put `<step>` after each line; the softmax over `<+>` and `<->` there is the probability that the target can still be
reached.
"""

LIMITS = """
## Limits
- It knows prompts of this task, written exactly as the task writes them: 2 to 5 numbers from 1 to 25, targets from
  10 to 99, results up to 999.
- Figures are on validation problems. Problems of the test split were not used in training or tuning.
"""


def write(run: Setting, figures: dict[str, list[str]]) -> None:
    """The cards of both models, from lines of Markdown by name."""
    import countdown_family as family

    problems = games.SHARDS * run.share(games.SHARD)
    writes, judges = run.recipe(family.WRITES), run.recipe(family.JUDGES)
    said = PROPOSER.format(
        steps=writes.steps, tokens=writes.tokens, rate=writes.rate, problems=problems, longest=LONGEST
    )
    what = "A generator: writes solutions of Countdown step by step."
    _card(run, family.PROPOSER, what, said, figures)
    said = VALUE.format(
        start=family.PROPOSER,
        extra=family.EXTRA,
        steps=judges.steps,
        tokens=judges.tokens,
        rate=judges.rate,
        games=run.share(tables.GAMES),
        samples=run.samples(tables.SAMPLES),
        problems=run.share(tables.PROBLEMS),
    )
    what = "A value model: says after each step of Countdown whether the target can still be reached."
    _card(run, family.VALUE, what, said, figures)


def _card(run: Setting, name: str, what: str, said: str, figures: dict[str, list[str]]) -> None:
    text = head(run.models / name, topic="countdown", what=what, family=FAMILY, tokenizer=TOKENIZER)
    shown = "\n## Figures\n" + "\n".join(figures[name]) + "\n"
    (run.models / name / "README.md").write_text(text + said + shown + LIMITS)
