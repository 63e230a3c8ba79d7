"""The tokenizer of a replica's engine, in the driver: a round trip for every prefix would be the slowest part."""

from __future__ import annotations

from collections import abc
from pathlib import Path

from metagen.errors import EngineError
from metagen.generators.ray.messages import Codec, Facts
from metagen.sequence import Sequence


class DirectoryCodec:
    """The tokenizer of a model directory."""

    def __init__(self, directory: Path, vocab: int = 1 << 31) -> None:
        from metagen.generators.tokenizer import Tokenizer

        self.tokenizer = Tokenizer(directory, vocab)
        self.fingerprint = self.tokenizer.fingerprint

    def render(self, prefix: Sequence) -> tuple[int, ...]:
        return self.tokenizer.render(prefix)[0]

    def encode(self, text: str) -> tuple[int, ...]:
        return self.tokenizer.encode(text)

    def decode(self, ids: abc.Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids))


def local_codec(facts: Facts) -> Codec:
    """The codec of an engine whose model directory is on this machine too. EngineError if it is not, or differs."""
    directory, shape = facts.directory, facts.shape
    if directory is None or not (directory / "tokenizer.json").is_file():
        raise EngineError(
            f"the tokenizer of {facts.name} is not on this machine (directory={str(directory)!r}); put the model's "
            "tokenizer.json and config.json there, or give the pool a codec"
        )
    codec = DirectoryCodec(directory, shape.vocab) if shape else DirectoryCodec(directory)
    if codec.fingerprint != facts.tokenizer_fingerprint:
        raise EngineError(
            f"the tokenizer in {str(directory)!r} is not the one of the replicas (fingerprints {codec.fingerprint!r} "
            f"and {facts.tokenizer_fingerprint!r}); copy the model directory again"
        )
    return codec
