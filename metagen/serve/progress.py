"""How the work goes, in lines: what a stream tells before its answer."""

from __future__ import annotations

from collections import Counter

from metagen.events import Event
from metagen.runs.table.costs import SCORING
from metagen.sequence import Sequence
from metagen.serve.solve import Job
from metagen.strategies.adaptive.by_difficulty import ByDifficulty
from metagen.strategies.base import Strategy
from metagen.strategies.chain.chain import Chain
from metagen.strategies.parallel import ParallelStrategy

#: Characters of a text that a line shows.
SHOWN = 100
#: Answers that a line counts.
COUNTED = 5


class Progress:
    """Samples and how they vote, scores, steps of a search or of a chain; a line for each.

    Only candidates for the answer vote: samples that the strategy chooses among, or that the last step of a chain
    chooses among. Texts of other steps, and calls within a candidate, are steps.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._strategy, self._below = _find_choosing(job.strategy)
        #: By the path of the run.
        self._runs: dict[str, _Run] = {}

    async def line(self, event: Event) -> str | None:
        """What an event is in words; None where it is nothing to tell."""
        if event.refused:
            return f"no room for this {event.kind}: the budget ends\n"
        if event.kind == "sample":
            return await self._sample(event)
        if event.kind == "score" and event.value is not None:
            return f"score {event.value:.3f}\n"
        if event.kind == "tool":
            return "a tool was called\n"
        if event.kind == "commit" and event.text:
            return f"kept so far: {_short(event.text)}\n"
        return None

    async def _sample(self, event: Event) -> str:
        text = _short(event.text or "")
        if SCORING in event.path.split("/"):
            return f"a verifier writes: {text}\n"
        choice = event.path.partition("/")[0]
        place = f"{choice}{self._below}"
        if event.finish is None or not self._is_candidate(event.path, place):
            return f"step: {text}\n"
        run = self._runs.setdefault(place, _Run())
        if isinstance(self._strategy, ParallelStrategy | ByDifficulty):
            await self._count(event, run)
        run.samples += 1
        which = f"choice {int(choice) + 1}, " if self._job.choices > 1 else ""
        samples = getattr(self._strategy, "n", None)
        number = f"{which}sample {run.samples}{f' of {samples}' if samples else ''}"
        return f"{number}; votes: {run.leading}\n" if run.votes else f"{number}: {text}\n"

    def _is_candidate(self, path: str, place: str) -> bool:
        """Whether a sample at this path, under a run at this place, is one of those that are chosen among."""
        if isinstance(self._strategy, ParallelStrategy | ByDifficulty):
            return path == f"{place}/sample"
        if isinstance(self._strategy, Chain):
            return path == f"{place}/{self._strategy.output}"
        return path.startswith(f"{place}/")

    async def _count(self, event: Event, run: _Run) -> None:
        if self._strategy.answer is not None:
            prefix = Sequence.of(self._job.prompt)
            (answer,) = await self._strategy.answer.read(
                [prefix.extend(event.text or "", finish=event.finish)]
            )
            if answer.key is not None:
                run.votes[answer.key] += 1
                run.written.setdefault(answer.key, answer.text or answer.key)


class _Run:
    """The candidates of one run so far."""

    def __init__(self) -> None:
        self.samples = 0
        self.votes: Counter[str] = Counter()
        #: An answer as it was first written, by its key.
        self.written: dict[str, str] = {}

    @property
    def leading(self) -> str:
        return ", ".join(f"{self.written[key]} ×{count}" for key, count in self.votes.most_common(COUNTED))


def _find_choosing(strategy: Strategy) -> tuple[Strategy, str]:
    """The strategy that chooses the answer, and its path below that of a run: in a chain, that of the last step."""
    if not isinstance(strategy, Chain):
        return strategy, ""
    last = getattr(strategy.steps[strategy.output], "generator", None)
    if not isinstance(last, Strategy):
        return strategy, ""
    found, below = _find_choosing(last)
    return found, f"/{strategy.output}/0{below}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"…{line[-SHOWN:]}"
