"""The limits of one execution."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Final

from metagen.errors import DataError, InputError

MIB = 1024 * 1024
#: Wall time for each second of processor time: programs wait for a busy machine, and few for anything else.
WAITING: Final = 4.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one execution; each must bind, and the verdict says which one did. Of a suite they are of each test.

    Time and memory that a problem's tests have as limits of their own (`seconds`, `memory`) stand in place of these,
    be they more or less: the problem is judged by them, whoever runs it.

    wall: seconds from start to the last answer, for the whole tree of processes; then all are killed.
    cpu: seconds of processor time of each process; None: as many as `wall`.
    memory: bytes; of the whole tree where a cgroup is available, else of each process (address space).
    processes: processes and threads alive at once, the interpreter included.
    output: bytes of standard output and error together. answer: bytes of all values returned in one run, together;
    a list, a tuple, an item of a dict and so on counts as 16.
    file: bytes of one file; disk: bytes of all files. Raises InputError for a limit that is not positive, or not
    whole where it counts.
    """

    wall: float = 10.0
    cpu: float | None = None
    memory: int = 512 * MIB
    processes: int = 32
    output: int = 256 * 1024
    answer: int = 4 * MIB
    file: int = 16 * MIB
    disk: int = 64 * MIB

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name == "cpu":
                continue
            if field.name not in ("wall", "cpu") and type(value) is not int:
                raise InputError(f"the limit {field.name!r} is a whole number, got {value!r}")
            if not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise InputError(f"the limit {field.name!r} is a positive number, got {value!r}")

    def of_test(self, seconds: float | None, memory: int | None) -> Limits:
        """The same for a test with limits of its own, processor time and bytes, which win; None: as they are."""
        limits = replace(self, memory=memory or self.memory)
        return limits if seconds is None else replace(limits, wall=WAITING * seconds, cpu=float(seconds))

    @property
    def cpu_seconds(self) -> int:
        """Whole seconds, as the kernel counts them, and one for the start of the interpreter."""
        return math.ceil(self.wall if self.cpu is None else self.cpu) + 1


def check_option(name: str, value: object) -> None:
    """DataError unless it is None, or a positive number: a whole one for `memory`; a `tolerance` may be 0."""
    kinds = int if name == "memory" else int | float
    if value is None or (name == "tolerance" and value == 0 and not isinstance(value, bool)):
        return
    if not isinstance(value, kinds) or isinstance(value, bool) or not 0 < value < math.inf:
        raise DataError(f"{name}={value!r}; expected a positive number, or none")
