"""The runs that a viewer shows: found below the directories that it was given, and known by short names.

A name in an address is looked up among these and never becomes a path.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from metagen.errors import InputError
from metagen.runs.directory import RUNS, RunDirectory
from metagen.runs.names import STUDY, nearest

#: Levels of directories below a given one in which runs are looked for: runs, and the roles of studies.
DEPTH = 2


@dataclass
class Shelf:
    """places: runs, studies, directories of them, or names in `runs/`. InputError for a place that does not exist.

    The default place may be missing: a run may make it later.
    """

    places: tuple[Path, ...]
    _found: dict[str, Path] = field(default_factory=dict)
    _looking: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.places = tuple(_place(place) for place in self.places)

    def runs(self) -> dict[str, RunDirectory]:
        """The runs that exist now, by name. A name stays what it is for as long as its run is there."""
        with self._looking:  # requests come in several threads
            for root in self._roots():
                if root not in self._found.values():
                    self._found[self._name(root)] = root
            self._found = {name: root for name, root in self._found.items() if _is_run(root)}
            return {name: RunDirectory(root) for name, root in self._found.items()}

    def find(self, name: str) -> RunDirectory:
        """Raises InputError, with the nearest names, for a run that there is not."""
        if (found := self.runs().get(name)) is None:
            raise InputError(f"there is no run {name!r} here; {nearest(name, self._found, 'runs')}")
        return found

    def _roots(self) -> Iterator[Path]:
        for place in self.places:
            if _is_run(place):
                yield place
            elif place.is_dir():
                for depth in range(1, DEPTH + 1):
                    yield from sorted(
                        path.parent for path in place.glob("/".join(["*"] * depth) + "/experiment.yaml")
                    )

    def _name(self, root: Path) -> str:
        """The directory's name, with that of its study; a number where it is taken."""
        root = root.resolve()
        parts = [root.parent.name, root.name] if (root.parent / STUDY).is_file() else [root.name]
        name = stem = "/".join(parts)
        number = 2
        while name in self._found:
            name, number = f"{stem}~{number}", number + 1
        return name


def _place(given: Path) -> Path:
    """The directory, or the one of that name in `runs/`."""
    if given.is_dir() or given == RUNS:
        return given
    if (RUNS / given).is_dir():
        return RUNS / given
    raise InputError(
        f"there is no directory {str(given)!r}, and none of that name in {RUNS}/; give a run, or a directory with "
        "runs in it"
    )


def outside(directory: RunDirectory) -> str | None:
    """The first file of a run that is a link to a place outside of it: a received run could show other files so."""
    root = directory.root.resolve()
    return next((p.name for p in _links(directory.root) if not p.resolve().is_relative_to(root)), None)


def _links(root: Path) -> Iterable[Path]:
    return (path for path in sorted(root.iterdir()) if path.is_symlink())


def _is_run(root: Path) -> bool:
    return (root / "experiment.yaml").is_file()
