"""The tokenizer of the model behind a server, where its directory lies on this machine too."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from metagen.errors import InputError, ModelError, install, lacks
from metagen.generators.continuation import CONTEXT
from metagen.generators.directory import text_config
from metagen.generators.models import sources
from metagen.sequence import Sequence

if TYPE_CHECKING:
    from metagen.generators.tokenizer import Tokenizer

#: No vocabulary has as many tokens: the bound where no config.json gives one.
UNBOUNDED = 1 << 31


class Vocabulary:
    """Ids of prompts and texts, and texts of ids."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = _directory(directory)
        self._tokenizer = _tokenizer(self.directory)
        self.fingerprint = self._tokenizer.fingerprint
        self.eos = self._tokenizer.eos
        self.chat = self._tokenizer.chat
        self.decode = self._tokenizer.decode

    def render(self, prefix: Sequence) -> tuple[int, ...]:
        return self._tokenizer.render(prefix)[0]

    def encode(self, text: str) -> tuple[int, ...]:
        return self._tokenizer.encode(text)

    def behind(self, prefix: tuple[int, ...], text: str) -> tuple[int, ...] | None:
        """Ids that write `text` behind a prefix; None if encoding it alone gives others."""
        ids = self.encode(text)
        context = list(prefix[-CONTEXT:])
        return ids if self.decode([*context, *ids]) == self.decode(context) + text else None

    def unknown(self, ids: Iterable[int]) -> int | None:
        """The first of the ids that is not of this vocabulary."""
        return next((i for i in ids if not 0 <= i < self._tokenizer.vocab_size), None)

    def expect(self, name: str, ids: Iterable[int]) -> None:
        """InputError for ids that are not of this vocabulary."""
        if (bad := self.unknown(ids)) is not None:
            raise InputError(
                f"{name}: {bad!r} is no id of the tokenizer in {self.directory}; encode with that one"
            )


def _directory(path: str | Path) -> Path:
    """That of a named model or a GGUF file, or one with a tokenizer in it, which need hold no model."""
    if sources.is_named(path) or str(path).lower().endswith(".gguf"):
        return sources.resolve(path)
    directory = Path(path).expanduser().resolve()
    if not (directory / "tokenizer.json").is_file():
        raise ModelError(
            f"tokenizer={str(path)!r}: there is no tokenizer.json in {directory}; give the directory of the model that "
            "the server runs, or leave it out"
        )
    return directory


def _tokenizer(directory: Path) -> Tokenizer:
    try:
        from metagen.generators.tokenizer import Tokenizer
    except ImportError as error:
        raise ModelError(
            f"tokenizer={str(directory)!r}: it needs {lacks(error)}; {install('openai')}, or leave "
            "tokenizer out"
        ) from error
    return Tokenizer(directory, _size(directory))


def _size(directory: Path) -> int:
    if not (directory / "config.json").is_file():
        return UNBOUNDED
    return int(text_config(directory).get("vocab_size", UNBOUNDED))
