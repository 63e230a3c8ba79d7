"""Who answers in a run, by name: the journal knows fingerprints, the experiment names.

A run notes both when it begins, and keeps what earlier calls of `run` noted: records of parts that the experiment no
longer has keep their names. So do engines, whose fingerprints a machine without their hardware could not tell.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from metagen.errors import DataError
from metagen.runs.declare.specs import Experiment, ReplaySpec
from metagen.runs.directory import RunDirectory
from metagen.runs.work.build import Setup
from metagen.verifiers.base import AnswerRule, PrimitiveVerifier, Verifier

#: Keys of `environment.json`.
MAKERS, ENGINES, FILES = "makers", "engines", "files"


@dataclass(frozen=True, slots=True)
class Makers:
    """names: fingerprint of a generator or verifier, as records bear it → its name. engines: name → fingerprint.

    files: by generator of recorded samples, the digest of its file when the newest call of `run` began.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    engines: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, setup: Setup) -> Self:
        """Those of an experiment. What has several names, such as records that verifiers share, bears all of them."""
        names: dict[str, list[str]] = {}
        for fingerprint, name in _name_fingerprints(setup):
            known = names.setdefault(fingerprint, [])
            if name not in known:
                known.append(name)
        engines = {name: engine.fingerprint for name, engine in setup.engines.items()}
        return cls({by: ", ".join(known) for by, known in names.items()}, engines, recorded(setup.experiment))

    @classmethod
    def of_run(cls, directory: RunDirectory) -> Self:
        """The makers that a run has noted; none where it noted nothing."""
        try:
            known = json.loads(directory.environment.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            return cls()
        return (
            cls(*(known.get(key, {}) for key in (MAKERS, ENGINES, FILES)))
            if isinstance(known, dict)
            else cls()
        )

    def after(self, earlier: Makers) -> Makers:
        """With what was noted before; where both have a name, this one's."""
        return Makers({**earlier.names, **self.names}, {**earlier.engines, **self.engines}, self.files)

    def to_dict(self) -> dict[str, Any]:
        return {MAKERS: dict(self.names), ENGINES: dict(self.engines), FILES: dict(self.files)}

    def name(self, by: str) -> str:
        """The name, or the beginning of a fingerprint that nobody noted."""
        return self.names.get(by, by[:8])


def recorded(experiment: Experiment) -> dict[str, str]:
    """By generator of recorded samples, a digest of its file. Raises DataError for a file that cannot be read."""
    paths = {name: Path(g.path) for name, g in experiment.generators.items() if isinstance(g, ReplaySpec)}
    digests = {path: _digest_file(path) for path in set(paths.values())}
    return {name: digests[path] for name, path in paths.items()}


def _digest_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        raise DataError(f"recorded samples cannot be read: {error}; put the file back") from error


def _name_fingerprints(setup: Setup) -> Iterator[tuple[str, str]]:
    """Fingerprints with names: the experiment's own first, then what strategies and verifiers hold inside."""
    own = [*setup.generators.items(), *setup.verifiers.items()]
    members = [
        (member.name, member) for verifier in setup.verifiers.values() for member in _members(verifier)
    ]
    judging = [
        (name, part) for name, verifier in (*setup.verifiers.items(), *members) for part in _inside(verifier)
    ]
    strategies = [
        (f"{cell.generator}/{cell.strategy}", setup.strategy(cell)) for cell in setup.configurations
    ]
    solving = [(name, part) for name, strategy in strategies for part in _inside(strategy)]
    known = {engine.fingerprint for engine in setup.engines.values()}
    for level in (own, members, judging, solving):
        found = [(fingerprint, name) for name, part in level for fingerprint in _fingerprints(part)]
        yield from (one for one in found if one[0] not in known)
        known |= {fingerprint for fingerprint, _ in found}


def _fingerprints(part: Any) -> Iterator[str]:
    """The fingerprints in the records of a part, if it leaves any by itself."""
    if isinstance(part, PrimitiveVerifier):
        yield part.records
    fingerprint = getattr(part, "fingerprint", None)
    if isinstance(fingerprint, str):
        yield fingerprint


def _members(verifier: Verifier) -> Iterator[Verifier]:
    for member in verifier.members:
        yield member
        yield from _members(member)


def _inside(whole: Any) -> Iterator[Any]:
    """Parts that have fingerprints, at any depth: generators, verifiers, judges."""
    seen, waiting = {id(whole)}, list(_attributes(whole))
    while waiting:
        part = waiting.pop()
        makes = isinstance(getattr(part, "fingerprint", None), str) and not isinstance(part, AnswerRule)
        if makes and id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting += _attributes(part)


def _attributes(part: Any) -> Iterator[Any]:
    """What a part holds; nothing of engines, nor of generators that decode with one."""
    if hasattr(part, "tokenizer_fingerprint") or not hasattr(part, "__dict__"):
        return
    for value in vars(part).values():
        if isinstance(value, Mapping):
            yield from value.values()
        elif isinstance(value, list | tuple):
            yield from value
        else:
            yield value
