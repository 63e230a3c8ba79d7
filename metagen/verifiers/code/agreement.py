"""Agreement between programs, judged by what they do: pure functions over recorded outputs and passed tests.

MBR-exec is the utility `ExecutionAgreement` (metagen.verifiers.utility) over `ProgramOutputs`; with its
0-1 form, its choice is the majority of `output_classes`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Ordered

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metagen.errors import InputError
from metagen.sequence import digest


def output_classes(outputs: Ordered[Ordered[str | None]]) -> list[str | None]:
    """The answer class of each program, for voting: equal for programs with equal outputs on all inputs.

    `outputs[i][k]`: what program i gave on input k, None for no output. None for a program that failed anywhere.
    """
    return [None if None in row or not row else digest(*map(str, row)).hex() for row in outputs]


def dual_agreement(passed: ArrayLike) -> NDArray[np.float64]:
    """CodeT's score of each program, in [0, 1]; passed[i, k] says whether program i passes test k.

    Programs that pass the same tests form a consensus set with these tests; its score is the number of
    programs times the number of tests (Chen et al. 2022, CodeT), here divided by all of both.
    """
    table = np.asarray(passed, dtype=bool)
    if table.ndim != 2 or not table.size:
        raise InputError(
            f"passed is a table of programs by tests, one of each at least; got shape {table.shape!r}"
        )
    names = [row.tobytes() for row in table]
    sizes = Counter(names)
    return np.array([sizes[n] * row.sum() for n, row in zip(names, table, strict=True)]) / table.size
