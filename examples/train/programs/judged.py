"""Validation samples of the programs family: pools of each generator, and chains of corrections, judged and kept."""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
from functools import cache, partial
from typing import Any

from fragments import tokenizer
from train_corrector import NAME, START
from wrong import LONGEST

from llama import load
from metagen.tasks.programs.cases import Case
from metagen.tasks.programs.grammar import ENTRY_POINT
from metagen.tasks.programs.interpreter import outputs
from metagen.tasks.programs.problems import LEVELS, Problem, problems
from metagen.tasks.programs.repair import failure_of, repair_prompt
from metagen.tasks.split import Split
from parts import Record, made
from sample import sample
from setting import Setting

PER_LEVEL, PARTS, SEED = 75, 6, 1
SAMPLES, CHAINS, DEPTH = 64, 16, 3


def asked(run: Setting) -> list[Problem]:
    each = run.share(PER_LEVEL)
    return [p for level in LEVELS for p in problems(Split.VALIDATION, level, each, SEED)]


def samples(run: Setting) -> int:
    """Samples of a problem, in a trial few."""
    return 4 if run.trial else SAMPLES


def corrected(run: Setting) -> int:
    """How many of a problem's samples are corrected."""
    return 1 if run.trial else CHAINS


def divided(run: Setting) -> int:
    """Parts of the work: problem i is in part i mod this."""
    return 1 if run.trial else PARTS


def pool(run: Setting, name: str) -> list[Record]:
    """For each problem the samples of a generator: `tokens`, `public` (passes the examples), `right`, `text`."""
    paths = [run.into / "validation" / f"{name}-{index}.jsonl" for index in range(divided(run))]
    return made(paths, partial(_pool, run, name), name, run.workers)


def _pool(run: Setting, name: str, index: int) -> list[Record]:
    mine, each = asked(run)[index :: divided(run)], samples(run)
    texts = [t for t, _ in _sampled(run, name, [p.prompt for p in mine for _ in range(each)], index)]
    return [
        {
            "problem": place * divided(run) + index,
            "samples": [judged(p, t) for t in texts[place * each :][:each]],
        }
        for place, p in enumerate(mine)
    ]


def chains(run: Setting, blind: bool) -> list[Record]:
    """For each of the first `corrected` samples that fails a public example, up to `DEPTH` corrections in a row."""
    kind = "blind" if blind else "told"
    paths = [run.into / "validation" / f"{kind}-{index}.jsonl" for index in range(divided(run))]
    return made(paths, partial(_chains, run, blind), f"corrections, {kind}", run.workers)


def _chains(run: Setting, blind: bool, index: int) -> list[Record]:
    all_problems = asked(run)
    starts = {r["problem"]: r["samples"][: corrected(run)] for r in pool(run, START)}
    mine = range(index, len(all_problems), divided(run))
    open_: list[tuple[int, list[Record]]] = [(i, [s]) for i in mine for s in starts[i]]
    found = list(open_)
    for depth in range(DEPTH):
        open_ = [(i, chain) for i, chain in open_ if not chain[-1]["public"] and chain[-1]["text"].strip()]
        prompts = [corrector_prompt(all_problems[i], chain[-1]["text"], blind) for i, chain in open_]
        seed = (1 + blind) * 1000 + depth * 100 + index
        for (i, chain), prompt, (text, _) in zip(
            open_, prompts, _sampled(run, NAME, prompts, seed), strict=True
        ):
            read = count(prompt) - count(all_problems[i].prompt)
            chain.append({**judged(all_problems[i], text), "read": read})
    by_problem: dict[int, list[list[Record]]] = {i: [] for i in mine}
    for i, chain in found:
        by_problem[i].append(chain)
    return [{"problem": i, "chains": each} for i, each in by_problem.items()]


def corrector_prompt(problem: Problem, source: str, blind: bool) -> str:
    return repair_prompt(problem.prompt, source, None if blind else failure_of(source, problem.public))


def _sampled(run: Setting, name: str, prompts: list[str], seed: int) -> list[tuple[str, bool]]:
    return sample(load(run.models / name), tokenizer(), prompts, longest=run.longest(LONGEST), seed=seed)


def judged(problem: Problem, text: str) -> Record:
    return {
        "text": text,
        "tokens": count(text) + 1,
        "public": passes(text, problem.public),
        "right": passes(text, (*problem.public, *problem.hidden)),
    }


def passes(source: str, cases: tuple[Case, ...]) -> bool:
    got = outputs(source, ENTRY_POINT, [c.plain[0] for c in cases])
    return all(o.equals(c.plain[1]) for o, c in zip(got, cases, strict=True))


@cache
def _tokenizer() -> Any:
    return tokenizer()


def count(text: str) -> int:
    return len(_tokenizer().encode(text, add_special_tokens=False).ids)
