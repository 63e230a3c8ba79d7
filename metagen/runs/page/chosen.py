"""Problems worth a look, of each kind a few: right, wrong, rescued by search, lost by the verifier."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from metagen.journal import SQLiteJournal
from metagen.runs.declare import registry
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.page import browser
from metagen.runs.page.browser import Embedded
from metagen.runs.questions.section import Table
from metagen.runs.table.problem import Examined, Examiner
from metagen.runs.work import spans
from metagen.runs.work.makers import Makers

#: Kinds: name → what a reader sees, and what it means.
KINDS: Mapping[str, tuple[str, str]] = {
    "search": (
        "rescued by search",
        "the most frequent answer of a model’s samples is wrong, and a search by the same model is right",
    ),
    "lost": browser.FILTERS["lost"],
    "right": ("right", "the most frequent answer is right with every model"),
    "wrong": ("wrong", "the most frequent answer is wrong with every model"),
}
#: Problems of a kind, and of all kinds.
OF_A_KIND, MOST = 10, 40


@dataclass(frozen=True, slots=True)
class Chosen:
    """problems: in the order of the task, with the kind that each was chosen for. counts: of all, by kind.

    total: problems of the run. generators: in order.
    """

    problems: tuple[Examined, ...]
    kinds: Mapping[str, str]
    counts: Mapping[str, int]
    total: int
    generators: tuple[str, ...]
    directory: RunDirectory

    @property
    def levels(self) -> list[int]:
        """Of the chosen problems."""
        return sorted({p.level for p in self.problems if p.level is not None})

    @property
    def filters(self) -> dict[str, int]:
        """How many of the chosen problems pass each filter of the browser."""
        return browser.counts(self.problems)

    def embed_data(self, room: int) -> Embedded:
        """Their data for the browser of problems, as much as fits into so many bytes."""
        trees: list[spans.Span | None] = [None] * len(self.problems)
        if self.directory.journal.exists():
            with SQLiteJournal(self.directory.journal, read_only=True, some=True) as journal:
                ids = [p.problem for p in self.problems]
                trees = list(spans.trees(journal, ids, Makers.of_run(self.directory)))
        return browser.embed(self.problems, trees, self.generators, room)

    def table(self) -> Table:
        """What was asked and said, in a line for each."""
        rows = tuple(
            (
                KINDS[self.kinds[p.problem]][0],
                p.problem,
                "" if p.level is None else str(p.level),
                p.reference,
                "; ".join(_summary(p)),
            )
            for p in self.problems
        )
        return Table("chosen", "Chosen problems.", ("kind", "problem", "level", "reference", "said"), rows)


def searches(lines: Iterable[Cell]) -> frozenset[str]:
    """Names of the configurations that search, and know no answer."""
    found = (line for line in lines if registry.says(line.kind, "searches") and not line.oracle)
    return frozenset(line.name for line in found)


def choose(directory: RunDirectory, searching: Set[str]) -> Chosen | None:
    """Of a finished run, at most `OF_A_KIND` problems of each kind, spread over the task; None without such a run.

    searching: as `searches` finds them.
    """
    if not directory.table("problems").exists() or not directory.table("candidates").exists():
        return None
    lines = directory.state().lines
    # Of all problems only what tells their kinds; few of them are read again.
    with Examiner(directory, lines, tables=("problems", "candidates", "outcomes"), brief=True) as examiner:
        every = sorted((number, kinds(problem, lines, searching)) for number, problem in examiner.each())
    with Examiner(directory, lines) as examiner:
        found = {kind: [number for number, named in every if kind in named] for kind in KINDS}
        taken: dict[int, str] = {}
        for kind, numbers in found.items():
            free = [number for number in numbers if number not in taken]
            taken |= dict.fromkeys(_spread(free, min(OF_A_KIND, MOST - len(taken))), kind)
        problems = tuple(examiner[number] for number in sorted(taken))
        return Chosen(
            problems,
            {examiner.id(number): kind for number, kind in taken.items()},
            {kind: len(numbers) for kind, numbers in found.items()},
            len(every),
            tuple(dict.fromkeys(line.generator for line in lines)),
            directory,
        )


def kinds(problem: Examined, lines: Sequence[Cell], searching: Set[str]) -> list[str]:
    """All that it is. searching: as of `choose`."""
    shared = [pool for pool in problem.pools if pool.configuration is None]
    by_name = {line.name: line for line in lines}

    def is_rescued(configuration: str, right: bool) -> bool:
        line = by_name.get(configuration)
        if not right or line is None or configuration not in searching:
            return False
        ours = [pool for pool in shared if pool.generator == line.generator] or shared
        return bool(ours) and not any(pool.voted for pool in ours)

    found = {
        "search": any(is_rescued(o["configuration"], o["correct"]) for o in problem.outcomes),
        "lost": any("lost" in browser.marks(pool) for pool in shared),
        "right": bool(shared) and all(pool.voted for pool in shared),
        "wrong": bool(shared) and not any(pool.voted for pool in shared),
    }
    return [kind for kind in KINDS if found[kind]]


def _spread(numbers: Sequence[int], most: int) -> list[int]:
    """At most so many, evenly over all of them."""
    if len(numbers) <= most:
        return list(numbers)
    return [numbers[i * len(numbers) // most] for i in range(most)]


def _summary(problem: Examined) -> Iterator[str]:
    """The most frequent answer of each pool, and the answer of each search at its largest n."""
    for pool in problem.pools:
        if pool.configuration is None:
            answer = next((v.key for v in pool.votes if v.correct == pool.voted), "no answer")
            yield f"{pool.name}: {answer} {_mark(pool.voted)} ({pool.right} of {pool.size} right)"
        else:
            yield from (
                f"{pool.name}: {'no answer' if c.answer is None else c.answer} {_mark(c.correct)}"
                for c in pool.choices
            )


def _mark(right: bool) -> str:
    return "✓" if right else "✗"
