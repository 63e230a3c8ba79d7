"""Where the files of a study lie: a directory with one run for each role, and what was found.

`study.yaml` (resolved) and `frozen.yaml` (the settings that were chosen) are what it is made of, beside the journals of
its runs; the rest is derived and may be made again at any time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

from metagen.errors import InputError
from metagen.runs.directory import RUNS, RunDirectory, nearest, writing

Role = Literal["development", "test", "limit", "splitting", "temperature"]
#: In the order in which they run.
ROLES: Final[tuple[Role, ...]] = ("development", "test", "limit", "splitting", "temperature")
STUDY, FROZEN = "study.yaml", "frozen.yaml"


@dataclass(frozen=True, slots=True)
class StudyDirectory:
    """Names the files of a study; `root` need not exist yet."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> Self:
        """The study at `root`, which is made if need be. InputError for the directory of a run."""
        RunDirectory.at(root)
        if (root / "experiment.yaml").exists():
            raise InputError(f"{str(root)!r} is the directory of a run; give another one by --out")
        return cls(root)

    @property
    def study(self) -> Path:
        return self.root / STUDY

    @property
    def frozen(self) -> Path:
        return self.root / FROZEN

    @property
    def files(self) -> RunDirectory:
        """Writes files of the study itself, whole or not at all."""
        return RunDirectory(self.root)

    def role(self, name: Role) -> RunDirectory:
        """The run of a role, which need not exist yet."""
        return RunDirectory(self.root / name)

    def set_aside(self, name: Role) -> None:
        """Give the run of a role another name, `development-2`, so that there can be a new one."""
        number = 2
        while (aside := self.root / f"{name}-{number}").exists():
            number += 1
        with writing(self.root, name):
            self.role(name).root.rename(aside)


def find(path: str | Path, within: Path = RUNS) -> StudyDirectory | RunDirectory:
    """The study or run at `path`, or of that name below `within`. Raises InputError with the nearest names."""
    for root in (Path(path), within / path):
        if (root / STUDY).is_file():
            return StudyDirectory(root)
        if (root / "experiment.yaml").is_file():
            return RunDirectory(root)
    known = sorted({p.parent.name for name in (STUDY, "experiment.yaml") for p in within.glob(f"*/{name}")})
    what = "is no study and no run (it has neither study.yaml nor experiment.yaml)"
    what = what if Path(path).is_dir() else "does not exist"
    raise InputError(f"{str(path)!r} {what}; {nearest(Path(path).name, known, 'studies and runs')}")
