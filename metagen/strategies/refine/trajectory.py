"""The trajectory of a refinement, as a value: what was written in each round, what was said of it, and how it ended."""

from __future__ import annotations

import re
from collections import abc
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from metagen.sequence import Prompt
from metagen.strategies.candidates import Candidate
from metagen.strategies.refine.feedback import Remark
from metagen.trace import Trace

#: draft: round 0. copy: the corrector gave back what it was to mend. nothing: it wrote nothing; the candidate stays.
Made = Literal["draft", "revision", "copy", "nothing"]
#: accepted: by the verifier. content: the feedback says that nothing is left to mend. room: what is to be mended does
#: not fit the corrector's context. Else rounds or budget ended.
Ending = Literal["accepted", "content", "room", "rounds", "budget"]


@dataclass(frozen=True, slots=True)
class Round:
    """One round. candidate: what there is after it. remark: what was said of that; None if nobody was asked.

    asked: the prompt under which the candidate was revised, earlier attempts included; None if it was not.
    """

    candidate: Candidate
    made: Made
    remark: Remark | None = None
    asked: Prompt | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A draft and its revisions, in order; empty if the budget did not allow a draft. best: the round to return."""

    rounds: tuple[Round, ...]
    ended: Ending
    best: int = 0

    @property
    def copies(self) -> int:
        """Revisions that are equal to what they were to mend."""
        return sum(one.made == "copy" for one in self.rounds)


def by_round(
    trajectories: abc.Sequence[Trajectory], rounds: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values and copies by round, each (trajectories × rounds + 1): NaN after the end.

    A value is the verifier's, of the candidate that there was after the round (NaN too where it gave none); a copy is
    1 where the revision was one, else 0, and NaN for the draft. `examples/figures/refinement.py` draws them.
    """
    values = np.full((len(trajectories), rounds + 1), np.nan)
    copies = np.full((len(trajectories), rounds + 1), np.nan)
    for row, trajectory in enumerate(trajectories):
        for k, one in enumerate(trajectory.rounds):
            value = one.candidate.value
            values[row, k] = np.nan if value is None else value
            if k:
                copies[row, k] = one.made == "copy"
    return values, copies


_ROUND = re.compile(r"(?:(?P<above>.*)/)?(?:sample|revise/(?P<round>\d+)(?:/memory/\d+)?)")


def texts_by_round(trace: Trace) -> dict[str, list[str]]:
    """From a trace, each chain's place and what its generator and its corrector wrote, round by round.

    For chains inside of other strategies, whose rounds nobody else keeps. It reads what primitive generators recorded
    in `sample` and in `revise/1`, …; a place without revisions is no chain, nor is a draft by a strategy.
    """
    found: dict[str, dict[int, str]] = {}
    for row in trace.rows:
        place = _ROUND.fullmatch(row.path)
        if row.kind == "generate" and row.payload is not None and place:
            texts = found.setdefault(place["above"] or "", {})
            texts[int(place["round"] or 0)] = row.payload["text"]
    return {
        place: [texts[k] for k in sorted(texts)]
        for place, texts in found.items()
        if len(texts) > 1 and 0 in texts
    }


def copies_of(texts: abc.Sequence[str]) -> int:
    """How many texts are equal to the one before."""
    return sum(a == b for a, b in pairwise(texts))
