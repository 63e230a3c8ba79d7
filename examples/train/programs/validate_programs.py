"""Validation figures of the programs family: `python examples/train/programs/validate_programs.py`.

Three questions, all on validation problems; the test problems stay untouched.

1. How often is a sample right (pass@1), or any of k (pass@k), by level?
2. Does a corrector that is told what execution has shown find more right programs than the generator with fresh
   samples, at equal compute? Three policies get the same number of tokens on the same problems, and stop at the
   first program that passes the public examples:
   - `resample`: samples of the generator, one after another.
   - `correct d`: a sample, up to d corrections of it in a row, then the next sample.
   - `blind d`: the same, but the corrector is told only that the program is wrong.
   Compute is counted twice: tokens generated only, and with the tokens of prompts (what was read before by the same
   model costs nothing, as in metagen's logical usage; both models have the same number of parameters).
3. What are corrections of corrections worth, and does the corrector copy what it should mend? For each round, of the
   programs that fail up to it: how many corrections are right, and how many are a program that the chain has had.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
import setting  # before torch: what it says to OpenMP is read when torch is imported

# isort: split
import json
import random
from collections.abc import Iterator
from typing import Any

import judged
import numpy as np
from judged import asked, chains, count, pool
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from train_corrector import START
from train_generator_of_programs import HOME, PLANS

from metagen.analysis.estimators import pass_at_k
from metagen.analysis.intervals import SHARES, interval
from metagen.analysis.paired import paired_difference
from metagen.tasks.programs.problems import LEVELS, Problem
from metagen.tasks.programs.repair import end_last_line
from parts import Record
from setting import Setting

Floats = NDArray[np.float64]
KS = (1, 4, 16, 64)
#: Budgets, in samples of the generator: their mean cost on these problems.
BUDGETS = (2, 4, 8, 16)
DEPTHS = (1, 3)
REPLICAS = 40


def coverage(run: Setting, name: str) -> dict[str, Any]:
    """pass@k with 95% intervals over problems, over all levels and by level."""
    records = sorted(pool(run, name), key=lambda r: r["problem"])
    levels = np.array([p.level for p in asked(run)])
    right = np.array([sum(s["right"] for s in r["samples"]) for r in records])
    public = np.array([[s["public"] for s in r["samples"]] for r in records])
    correct = np.array([[s["right"] for s in r["samples"]] for r in records])
    n = np.full(len(records), judged.samples(run))
    figures: dict[str, Any] = {"problems": len(records), "pass@k": {}, "by level": {}}
    for k in (k for k in KS if k <= judged.samples(run)):
        each = pass_at_k(n, right, k)
        bounds = interval(each, support=SHARES)
        figures["pass@k"][k] = [float(bounds.estimate), float(bounds.low), float(bounds.high)]
        figures["by level"][k] = [float(each[levels == level].mean()) for level in LEVELS]
    figures["right, of those that pass the examples"] = (
        float(correct[public].mean()) if public.any() else None
    )
    return figures


def policy(
    name: str, samples: list[Record], made_: list[list[Record]] | None, rng: random.Random
) -> Iterator[tuple[Record, bool]]:
    """Programs in the order in which a policy makes them, and whether the corrector made them."""
    if made_ is None:
        yield from ((s, False) for s in rng.sample(samples, len(samples)))
        return
    depth = int(name.split()[1])
    for chain in rng.sample(made_, len(made_)):
        yield from ((program, place > 0) for place, program in enumerate(chain[: depth + 1]))


def score(
    problem: Problem, programs: Iterator[tuple[Record, bool]], budgets: Floats, reading: bool
) -> Floats:
    """For each budget: whether the first program that passes the examples came in time, and is right."""
    prompt = count(problem.prompt) + 1
    spent, met = 0.0, set[bool]()
    for program, corrected in programs:
        spent += program["tokens"]
        if reading:
            spent += program.get("read", 0) + (0 if corrected in met else prompt)
            met.add(corrected)
        if program["public"]:
            return (spent <= budgets) * float(program["right"])
    return np.zeros(len(budgets))


def compared(run: Setting) -> dict[str, Any]:
    """Accuracy of all policies at each budget, and their paired differences."""
    asked_ = asked(run)
    samples = {r["problem"]: r["samples"] for r in pool(run, START)}
    told, blind = ({r["problem"]: r["chains"] for r in chains(run, b)} for b in (False, True))
    names = ["resample", *(f"{kind} {d}" for kind in ("correct", "blind") for d in DEPTHS)]
    each = float(np.mean([s["tokens"] for ss in samples.values() for s in ss]))
    read = float(np.mean([count(p.prompt) + 1 for p in asked_]))
    figures: dict[str, Any] = {"tokens of a sample": each, "tokens of a prompt": read, "accounts": {}}
    for account, reading in (("generated", False), ("generated and read", True)):
        budgets = np.array([read * reading + each * n for n in BUDGETS])
        accuracy: dict[str, Floats] = {}
        for name in names:
            pools = {"correct": told, "blind": blind}.get(name.split()[0])
            rows = []
            for i, problem in enumerate(asked_):
                rng = random.Random(f"{name}/{i}")
                made_ = None if pools is None else pools[i]
                runs = [
                    score(problem, policy(name, samples[i], made_, rng), budgets, reading)
                    for _ in range(run.samples(REPLICAS))
                ]
                rows.append(np.mean(runs, 0))
            accuracy[name] = np.array(rows)
        figures["accounts"][account] = {
            "accuracy": {name: values.mean(0).tolist() for name, values in accuracy.items()},
            "differences": {
                f"{a} − {b}": [_difference(accuracy[a][:, j], accuracy[b][:, j]) for j in range(len(BUDGETS))]
                for d in DEPTHS
                for a, b in ((f"correct {d}", "resample"), (f"correct {d}", f"blind {d}"), (f"blind {d}", "resample"))
            },
        }  # fmt: skip
    return figures


def _difference(a: Floats, b: Floats) -> list[float]:
    d = paired_difference(a, b)
    return [d.estimate, d.low, d.high, d.p_value]


def repaired(run: Setting) -> dict[str, Any]:
    """How often a first correction is right, told and blind, against a fresh sample for the same problems."""
    asked_ = asked(run)
    samples = {r["problem"]: r["samples"] for r in pool(run, START)}
    found: dict[str, Any] = {}
    rates: dict[str, Floats] = {}
    places: list[int] = []
    for kind, blind in (("told", False), ("blind", True)):
        records = sorted(chains(run, blind), key=lambda r: r["problem"])
        tried = [(r["problem"], [c[1]["right"] for c in r["chains"] if len(c) > 1]) for r in records]
        places = [i for i, rights in tried if rights]
        rates[kind] = np.array([np.mean(rights) for _, rights in tried if rights])
    rates["fresh"] = np.array(
        [np.mean([s["right"] for s in samples[i][judged.corrected(run) :]]) for i in places]
    )
    if not places:
        return found
    for kind, values in rates.items():
        bounds = interval(values, support=SHARES)
        found[kind] = [float(bounds.estimate), float(bounds.low), float(bounds.high)]
    found["told − fresh"] = _difference(rates["told"], rates["fresh"])
    found["told − blind"] = _difference(rates["told"], rates["blind"])
    found["problems"] = len(places)
    found["by level, told and fresh"] = [
        [float(rates[kind][[asked_[i].level == level for i in places]].mean()) for kind in ("told", "fresh")]
        for level in LEVELS
        if any(asked_[i].level == level for i in places)
    ]
    return found


def rounds(run: Setting) -> dict[str, Any]:
    """By round of correction: how often it was tried, and the shares that are right, copies, or seen before.

    Means over the problems that have come so far, with their intervals. A copy is the program that was to be mended.
    """
    found: dict[str, Any] = {}
    for kind, blind in (("told", False), ("blind", True)):
        found[kind] = []
        for k in range(1, judged.DEPTH + 1):
            tried = [[c[: k + 1] for c in r["chains"] if len(c) > k] for r in chains(run, blind)]
            tried = [each for each in tried if each]
            if not tried:
                break
            row: dict[str, Any] = {"tried": sum(map(len, tried)), "problems": len(tried)}
            for name, holds in (("right", _right), ("copies", _copies), ("seen", _seen)):
                bounds = interval([np.mean([holds(c) for c in each]) for each in tried], support=SHARES)
                row[name] = [float(bounds.estimate), float(bounds.low), float(bounds.high)]
            found[kind].append(row)
    return found


def _right(chain: list[Record]) -> bool:
    return bool(chain[-1]["right"])


def _copies(chain: list[Record]) -> bool:
    return end_last_line(chain[-1]["text"]) == end_last_line(chain[-2]["text"])


def _seen(chain: list[Record]) -> bool:
    return end_last_line(chain[-1]["text"]) in {end_last_line(program["text"]) for program in chain[:-1]}


def figures(run: Setting) -> dict[str, Any]:
    """All figures, kept as `figures.json` beside the models."""
    path = run.into / "figures.json"
    if not path.exists():
        found = {
            "scale": run.scale,
            "generators": {name: coverage(run, name) for name in PLANS},
            "repair": repaired(run),
            "compute": compared(run),
            "rounds": rounds(run),
        }
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return dict(json.loads(path.read_text()))


def show(console: Console, found: dict[str, Any]) -> None:
    ks = list(next(iter(found["generators"].values()))["pass@k"])
    table = Table("generator", "level", *(f"pass@{k}" for k in ks), title="Validation problems, %")
    for name, figures_ in found["generators"].items():
        cells = [
            f"{100 * e:.1f} [{100 * a:.1f}, {100 * b:.1f}]" for e, a, b in (figures_["pass@k"][k] for k in ks)
        ]
        table.add_row(name, "all", *cells)
        for row, level in enumerate(LEVELS):
            table.add_row("", str(level), *(f"{100 * figures_['by level'][k][row]:.0f}" for k in ks))
    console.print(table)
    console.print("one correction, against a fresh sample:", found["repair"])
    table = Table(
        "round", "tried", "right", "copies", "seen before", title="Corrections in a row, % of those tried"
    )
    for kind, rows_ in found["rounds"].items():
        for k, row_ in enumerate(rows_, 1):
            shares = (row_[name] for name in ("right", "copies", "seen"))
            cells = [f"{100 * e:.1f} [{100 * a:.1f}, {100 * b:.1f}]" for e, a, b in shares]
            table.add_row(f"{k}, {kind}", f"{row_['tried']:,}", *cells)
    console.print(table)
    for account, values in found["compute"]["accounts"].items():
        table = Table(
            account, *(f"{n} samples' worth" for n in BUDGETS), title="Accuracy at equal compute, %"
        )
        for name, row in values["accuracy"].items():
            table.add_row(name, *(f"{100 * v:.1f}" for v in row))
        for name, differences in values["differences"].items():
            table.add_row(
                name,
                *(f"{100 * e:+.1f} [{100 * a:+.1f}, {100 * b:+.1f}] p={p:.3f}" for e, a, b, p in differences),
            )
        console.print(table)


if __name__ == "__main__":
    show(Console(width=150), figures(setting.begin(setting.parser(__doc__, HOME).parse_args())))
