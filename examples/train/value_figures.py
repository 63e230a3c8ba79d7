"""What value functions do to their generator: `python examples/train/value_figures.py --into OUT`.

On validation problems: the accuracy of p · e^(λV) / Z, of p · V^λ / Z and of p at lower temperatures, with intervals
over problems; how far each goes from p, KL(π‖p), by the log-likelihood ratios of its own samples; and what V foresees
of samples of p. Samples are kept in OUT, and a call after an interruption goes on; other models, problems or numbers of
samples have files of their own. The test problems stay untouched.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from tokenizers import Tokenizer

import parts
import returns
from llama import load
from metagen.analysis import intervals
from metagen.analysis.paired import paired_difference
from metagen.analysis.selection import within_problem_auc
from metagen.generators.likelihood import likelihoods
from metagen.generators.models.describe import fingerprint_of
from metagen.generators.models.recipes import Ensemble, Model, Tilted
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Sequence as Text
from metagen.sequence import digest
from metagen.tasks.arithmetic import LEVELS, Problem, Split, check, problems, prompt
from parts import Record
from returns import Return
from setting import HOME, SHIPPED

GENERATOR, LARGER = "tiny-0.5m", "tiny-2m"
VALUES = ("value-fudge", "value-q", "tiny-value")
TILTS, POWERS = (2.0, 4.0, 8.0), (1.0, 2.0)
TEMPERATURES = (0.6, 0.3)
LONGEST = 200
SHARES = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Way:
    """A distribution to draw from. name: of its file; model: as the engine takes it."""

    name: str
    model: Model


def ways(models: Path, values: Sequence[str]) -> list[Way]:
    """The generator first, then all others."""
    base = models / GENERATOR
    found = [Way("p", base)]
    for t in TEMPERATURES:
        # p^(1/T), normalised, as a model, so that its likelihoods are those at this temperature.
        found.append(Way(f"temperature {t:g}", Ensemble((base,), "product", (1 / t,))))
    # What values that do know the next token are worth: a better model's logits.
    found.append(Way(f"{LARGER} exp(V)", Tilted(base, (SHIPPED / LARGER,), (1.0,))))
    for name in values:
        tilt = partial(Tilted, base, (models / name,))
        found += [Way(f"{name} exp({w:g} V)", tilt((w,), "sigmoid")) for w in TILTS]
        found += [Way(f"{name} V^{w:g}", tilt((w,), "log_sigmoid")) for w in POWERS]
    return found


def drawn(way: Way, base: Path, asked: Sequence[Problem], samples: int, _index: int) -> list[Record]:
    """Of each problem, which samples are right, and log π(y) − log p(y) of each."""

    async def write(engine: TorchEngine) -> list[list[Text]]:
        generator = engine.generator(max_tokens=LONGEST)
        scopes = [Scope.root(f"problem {i}") for i in range(len(asked))]
        made = [
            generator.generate(Text.of(prompt(problem)), n=samples, scope=scope)
            for problem, scope in zip(asked, scopes, strict=True)
        ]
        return list(await asyncio.gather(*made))

    with TorchEngine(way.model, threads=1) as engine:
        groups = asyncio.run(write(engine))
    with TorchEngine(base, threads=1) as engine:
        read = iter(likelihoods(engine, [text for group in groups for text in group], entropies=False))
    records: list[Record] = []
    for problem, group in zip(asked, groups, strict=True):
        ended = [text.finish == "eos" for text in group]
        plain = [one.logprob + ((one.end or 0.0) if e else 0.0) for e, one in zip(ended, read, strict=False)]
        right = [e and check(problem, text.text).correct for text, e in zip(group, ended, strict=True)]
        ratios = [(text.logprob or 0.0) - other for text, other in zip(group, plain, strict=True)]
        records.append(
            {"text": [text.text for text in group], "right": right, "ratio": ratios, "ended": ended}
        )
    return records


def file_of(way: Way, base: Path, asked: Sequence[Problem], samples: int) -> str:
    """The name of the file of these samples: of other models, problems or numbers it is another."""
    models = [fingerprint_of(model, "float32") for model in (way.model, base)]
    of = digest(*models, str(samples), *map(prompt, asked)).hex()[:8]
    return f"{way.name.replace(' ', '_')}-{of}.jsonl"


def figures(found: dict[str, list[Record]]) -> list[str]:
    """The table, as Markdown. Differences are paired by problem."""
    right = {name: np.array([np.mean(r["right"]) for r in records]) for name, records in found.items()}
    ratio = {name: np.array([np.mean(r["ratio"]) for r in records]) for name, records in found.items()}
    lines = [
        "| π | accuracy in % | − p, points | p-value | KL(π‖p) in nats |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name in found:
        accuracy, far = (
            intervals.interval(right[name], support=intervals.SHARES),
            intervals.interval(ratio[name]),
        )
        gain = None if name == "p" else paired_difference(right[name], right["p"])
        told = [
            name,
            f"{100 * accuracy.estimate:.1f} [{100 * accuracy.low:.1f}, {100 * accuracy.high:.1f}]",
            f"{100 * gain.estimate:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}]" if gain else "–",
            f"{gain.p_value:.4f}" if gain else "–",
            f"{far.estimate:.2f} [{far.low:.2f}, {far.high:.2f}]",
        ]
        lines.append(f"| {' | '.join(told)} |")
    return lines


@torch.inference_mode()
def foreseen(folder: Path, asked: Sequence[Problem], records: Sequence[Record]) -> list[str]:
    """What V says of samples of p, once a share of their tokens is drawn: a table, as Markdown.

    Skill is 1 − Σ(V − r)² / Σ(r̄ − r)², where 0 is to say the share of right samples, whatever the problem.
    """
    model, tokenizer = load(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    each = [
        Return(prompt(problem), text, ended, float(right))
        for problem, record in zip(asked, records, strict=True)
        for text, ended, right in zip(record["text"], record["ended"], record["right"], strict=True)
    ]
    rows, said = returns.rows(each, tokenizer), []
    for row in track(rows, f"{folder.name} reads"):
        one = returns.table([row])
        ids = torch.from_numpy(one.ids)
        values = torch.sigmoid(model(ids)).gather(-1, ids.roll(-1, 1)[..., None])[0, :-1, 0]
        drawn = values[torch.from_numpy(one.drawn[0])].numpy()
        said.append([drawn[math.ceil(share * len(drawn)) - 1] for share in SHARES])
    right = np.array([record["right"] for record in records], float)
    lines = ["| tokens drawn | skill | AUC within problems |", "| --- | --- | --- |"]
    for share, value in zip(SHARES, np.moveaxis(np.reshape(said, (*right.shape, -1)), -1, 0), strict=True):
        skill = 1 - np.square(value - right).mean() / right.var()
        lines.append(f"| {share:.0%} | {skill:.2f} | {within_problem_auc(value, right):.2f} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--models", type=Path, default=HOME / "models", help="with the generator; default: %(default)s"
    )
    parser.add_argument("--values", nargs="*", default=VALUES)
    parser.add_argument("--into", type=Path, required=True, help="folder of the samples")
    parser.add_argument("--problems", type=int, default=20, help="per level")
    parser.add_argument("--seed", type=int, default=7, help="of the problems")
    parser.add_argument("--samples", type=int, default=8)
    arguments = parser.parse_args()
    asked = [
        p for level in LEVELS for p in problems(Split.VALIDATION, level, arguments.problems, arguments.seed)
    ]
    base = arguments.models / GENERATOR
    found = {}
    for way in ways(arguments.models, arguments.values):
        path = arguments.into / file_of(way, base, asked, arguments.samples)
        part = partial(drawn, way, base, asked, arguments.samples)
        found[way.name] = parts.made([path], part, way.name, 1)
    console = Console(width=150)
    console.print(*figures(found), sep="\n", markup=False, soft_wrap=True)
    for name in arguments.values:
        lines = foreseen(arguments.models / name, asked, found["p"])
        console.print(f"\nWhat {name} foresees:", *lines, sep="\n", markup=False)


if __name__ == "__main__":
    main()
