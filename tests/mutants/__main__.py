"""Mutate the package and see which tests notice: `make mutants ARGS='budget --count 10'`.

Works on a copy of the repository. Of all mutants of a slice it draws some by a seed, writes each into the copy, and
runs the tests of the slice until one fails. A mutant that no test tells is listed as surviving; its line and its change
name it, also in `equivalent.json`, which lists those that change nothing, with the reason.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import get_args

from tests.mutants.mutate import Mutant, mutants
from tests.mutants.named import NAMED, Named
from tests.mutants.slices import ROOT, SLICES
from tests.mutants.trial import Copy, Fate, copied, import_libraries

HERE = Path(__file__).parent
#: Those that change nothing; and what became of each mutant that was tried, on this machine, in a file for each slice.
EQUIVALENT, RESULTS = HERE / "equivalent.json", ROOT / "runs" / "mutants"


def drawn(name: str, count: int | None, seed: int, module: str = "") -> list[Mutant]:
    """So many mutants of a slice, each as likely as any other; all for None. More of a seed begin with the fewer."""
    every = [m for path in SLICES[name].paths() if module in path for m in of(path)]
    every.sort(key=lambda m: hashlib.sha256(f"{seed}:{m.path}:{m.name}".encode()).digest())
    return sorted(every[:count], key=lambda m: (m.path, m.line, m.name))


def of(path: str) -> list[Mutant]:
    return mutants(path, (ROOT / path).read_text())


def fates(name: str) -> dict[str, dict[str, Fate]]:
    """What became of the mutants of a slice, by module and mutant."""
    place = RESULTS / f"{name}.json"
    known: dict[str, dict[str, Fate]] = json.loads(place.read_text()) if place.exists() else {}
    return known


def keep(name: str, mutant: Mutant, fate: Fate) -> None:
    """Write what became of a mutant beside what is known of others; those that are no more are dropped."""
    known = fates(name)
    module = known.setdefault(mutant.path, {})
    module[mutant.name] = fate
    current = {m.name for m in of(mutant.path)}
    known[mutant.path] = {one: module[one] for one in sorted(module) if one in current}
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(known, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    (RESULTS / f"{name}.json").write_text(text)


def equivalents() -> set[tuple[str, str]]:
    return {(one["path"], one["mutant"]) for one in json.loads(EQUIVALENT.read_text())}


def run_slice(copy: Copy, name: str, options: argparse.Namespace) -> list[str]:
    """The mutants of a slice that survived."""
    known, same, survived = fates(name), equivalents(), list[str]()
    chosen = drawn(name, None if options.again else options.count, options.seed, options.module)
    chosen = [m for m in chosen if (m.path, m.name) not in same]
    if options.again:
        chosen = [m for m in chosen if known.get(m.path, {}).get(m.name) == "survived"]
    if options.resume:
        chosen = [m for m in chosen if m.name not in known.get(m.path, {})]
    if not chosen:
        return []
    copy.check(SLICES[name].tests_of(""), sorted({m.path for m in chosen}))
    for mutant in chosen:
        fate = copy.fate(mutant, SLICES[name].tests_of(mutant.path))
        keep(name, mutant, fate)
        if fate == "survived":
            survived.append(f"{mutant}  # {mutant.context}")
        print(f"{fate:9} {mutant}", flush=True)
    return survived


def run_named(copy: Copy, names: tuple[Named, ...]) -> list[str]:
    """The named mutants that no test kills."""
    survived = []
    for one in names:
        source = (ROOT / one.path).read_text()
        mutant = Mutant(one.path, 0, one.law, one.before, one.after, source.replace(one.before, one.after))
        copy.check([one.test], [])
        fate = copy.fate(mutant, [one.test])
        print(f"{fate:9} {one.law}: {one.path}  {one.before} → {one.after}", flush=True)
        if fate not in ("killed", "timeout"):
            survived.append(one.law)
    return survived


def table(names: list[str], count: int | None, seed: int) -> str:
    """What became of a draw, by slice, as far as it has been tried; and its survivors."""
    same, left, sums = equivalents(), list[str](), dict[str, int]()
    rows = [
        "| slice | mutants | drawn | equivalent | stillborn | tried | killed | share |",
        "|---|" + "--:|" * 7,
    ]
    for name in names:
        known, counts = fates(name), dict.fromkeys((*get_args(Fate), "equivalent", "mutants"), 0)
        counts["mutants"] = sum(len(of(path)) for path in SLICES[name].paths())
        for m in drawn(name, count, seed):
            fate = "equivalent" if (m.path, m.name) in same else known.get(m.path, {}).get(m.name)
            if fate is None:
                continue
            counts[fate] += 1
            left += [f"{name}: {m}  # {m.context}"] if fate == "survived" else []
        rows.append(row(name, counts))
        sums = {each: sums.get(each, 0) + counts[each] for each in counts}
    return "\n".join([*rows, row("all", sums), "", *(["Survivors:"] if left else ["No survivors."]), *left])


def row(name: str, counts: dict[str, int]) -> str:
    killed = counts["killed"] + counts["timeout"]
    tried = killed + counts["survived"]
    drawn = tried + counts["equivalent"] + counts["stillborn"]
    share = f"{killed / tried:.0%}" if tried else "–"
    cells = (name, counts["mutants"], drawn, counts["equivalent"], counts["stillborn"], tried, killed, share)
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "slices", nargs="*", metavar="SLICE", help=f"named, or of {', '.join(SLICES)}; all by default"
    )
    parser.add_argument("--count", type=int, default=20, help="mutants of each slice; 0 for all of them")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--module", default="", help="only modules whose path holds this")
    parser.add_argument(
        "--resume", action="store_true", help="only those of the draw that were not tried yet"
    )
    parser.add_argument("--again", action="store_true", help="only those that survived when last tried")
    parser.add_argument("--report", action="store_true", help="print the table of the draw, and run nothing")
    options = parser.parse_args()
    options.count = options.count or None
    if unknown := set(options.slices) - {*SLICES, "named"}:
        parser.error(f"no slice {', '.join(sorted(unknown))}; there are: named, {', '.join(SLICES)}")
    if options.report:
        print(table([s for s in options.slices or SLICES if s != "named"], options.count, options.seed))
        return
    import_libraries()
    survived: list[str] = []
    with copied() as copy:
        for name in options.slices or ["named", *SLICES]:
            survived += run_named(copy, NAMED) if name == "named" else run_slice(copy, name, options)
    print("\n".join([f"{len(survived)} survived in this run:", *survived]) if survived else "all killed")
    sys.exit(bool(survived))


if __name__ == "__main__":
    main()
