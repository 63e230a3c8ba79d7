"""Execution agreement: two programs are alike if they print alike (MBR-EXEC, Shi et al. 2022)."""

from __future__ import annotations

from collections import abc
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Literal, TypeAlias

import numpy as np

from metagen.errors import DataError
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Sequence, digest
from metagen.verifiers.utility.base import Matrix, Utility, without_pairs
from metagen.verifiers.utility.pairs import distinct_sequences

#: What a program gave for each input, in the same order for all; None where it failed or ran out of time.
Outputs: TypeAlias = abc.Sequence[str | None]
#: Runs programs; one Outputs each, in order, None for what a budget did not reach. It answers for records and charges,
#: by `scope.call`.
Execute: TypeAlias = Callable[[list[Sequence], Scope], Awaitable[abc.Sequence[Outputs | None]]]
Agreement = Literal["share", "all"]
_UNKNOWN = -2


@part
class ExecutionAgreement(Utility):
    """The share of inputs on which both programs give the same output; `all`: 1 if they do on every one, else 0.

    A failure agrees with nothing, with itself neither; of a program that was not run, nothing is known (NaN). Each
    program is run once, not once per pair.
    outputs: runs programs (such as ProgramOutputs, in a sandbox), or recorded outputs by the program's text.
    name: tells utilities apart whose `outputs` has no fingerprint of its own.
    Raises DataError where outputs are missing, or are not equally many.
    """

    symmetric = True

    outputs: Execute | Mapping[str, Outputs] = field(kw_only=False)
    agreement: Agreement = "share"
    name: str = "execution"

    @property
    def fingerprint(self) -> str:
        runs = getattr(self.outputs, "fingerprint", "")
        return digest("execution agreement", self.name, self.agreement, runs).hex()

    async def matrix(
        self,
        candidates: abc.Sequence[Sequence],
        references: abc.Sequence[Sequence] | None = None,
        *,
        scope: Scope,
    ) -> Matrix:
        if (nothing := without_pairs(candidates, references)) is not None:
            return nothing
        first = len(candidates)
        programs, place = distinct_sequences([*candidates, *(references or ())])
        outputs = np.array(await self._run(programs, scope))
        ours, theirs = outputs[place[:first]], outputs[place[first:] if references is not None else place]
        same: Matrix = np.zeros((len(ours), len(theirs)))
        for one, other in zip(ours.T, theirs.T, strict=True):
            same += (one[:, None] == other) & (one[:, None] >= 0)
        inputs = outputs.shape[1]
        result = same / inputs if self.agreement == "share" else np.array(same == inputs, dtype=np.float64)
        result[ours[:, 0] == _UNKNOWN, :] = np.nan
        result[:, theirs[:, 0] == _UNKNOWN] = np.nan
        return result

    async def _run(self, programs: list[Sequence], scope: Scope) -> list[list[int]]:
        """The outputs of each program, numbered over all; a failure is −1, and −2 what has not been run."""
        found: abc.Sequence[Outputs | None]
        if isinstance(self.outputs, Mapping):
            found = [self._read_outputs(self.outputs, program) for program in programs]
        else:
            found = await self.outputs(programs, scope)
        counts = sorted({len(outputs) for outputs in found if outputs is not None})
        if len(found) != len(programs) or len(counts) > 1 or counts == [0]:
            raise DataError(
                f"{len(programs)} programs gave {len(found)} lists of {' or '.join(map(str, counts))} outputs; "
                "expected one list each, of one output for each input, at least one"
            )
        numbers: dict[str, int] = {}
        unknown = [_UNKNOWN] * (counts or [1])[0]
        return [
            unknown
            if row is None
            else [-1 if o is None else numbers.setdefault(o, len(numbers)) for o in row]
            for row in found
        ]

    @staticmethod
    def _read_outputs(outputs: Mapping[str, Outputs], program: Sequence) -> Outputs:
        if program.text not in outputs:
            raise DataError(
                f"there are no outputs of {program.text!r:.80}, a candidate of problem "
                f"{program.prompt.problem_id!r}; record them, or give a function that runs programs"
            )
        return outputs[program.text]
