"""Names of runs that do not exist, with the nearest that do.

This module imports only what Python itself loads when it starts: the command line answers a mistyped name at once.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

#: Where runs lie unless the user says otherwise.
RUNS = "runs"
STUDY, EXPERIMENT = "study.yaml", "experiment.yaml"


def absent(path: str, within: str = RUNS) -> str:
    """The message about a path that is neither a study nor a run, nor the name of one below `within`."""
    what = "does not exist"
    if os.path.isdir(path):
        what = f"is no study and no run (it has neither {STUDY} nor {EXPERIMENT})"
    try:
        found = sorted(os.listdir(within))
    except OSError:
        found = []
    known = [one for one in found if _is_run(os.path.join(within, one))]
    return f"{path!r} {what}; {nearest(os.path.basename(path.rstrip(os.sep)), known, 'studies and runs')}"


def exists(path: str, within: str = RUNS) -> bool:
    """Whether a path is a study or a run, or the name of one below `within`."""
    return any(_is_run(root) for root in (path, os.path.join(within, path)))


def _is_run(root: str) -> bool:
    return any(os.path.isfile(os.path.join(root, name)) for name in (STUDY, EXPERIMENT))


def nearest(name: str, known: Iterable[str], what: str) -> str:
    """A hint for a name that does not exist: the nearest known ones, or the first few."""
    known = list(known)
    if not known:
        return f"there are no {what} yet"

    from difflib import get_close_matches

    close = get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return "did you mean " + " or ".join(map(repr, close)) + "?"
    shown = ", ".join(known[:8]) + (f", … ({len(known)} in all)" if len(known) > 8 else "")
    return f"known {what}: {shown}"
