"""k-gram language models with add-constant smoothing: p(x | context) = (count + c) / (n + cV).

The context is the last k − 1 tokens, and n how often it was seen; one that was never seen gives the uniform
distribution. A text is read from its beginning to its end token, so that completions begin and end as texts do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import Tensor

from metagen.errors import DataError, InputError, ModelError
from metagen.generators.directory import read_json, vocabulary_size
from metagen.generators.models.recipes import KGRAM
from metagen.generators.models.sources import resolve
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.torch.models.ids import IdsModel
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.send import send
from metagen.sequence import Sequence

WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Counts:
    """How often each token followed each context of k − 1 tokens, in memory in proportion to what was seen.

    levels: k − 1 sorted arrays. State i of level j is a context of j + 1 tokens, and `levels[j][i]` its key: the state
    of all but the last of them, times V + 1, plus the last. V stands for what is before a text. followers: sorted keys
    of the last state and the token behind it. counts: of each follower.
    """

    vocab_size: int
    levels: tuple[Ints, ...]
    followers: Ints
    counts: Ints

    @property
    def k(self) -> int:
        return len(self.levels) + 1

    @classmethod
    def of(cls, texts: Iterable[Ints], *, vocab_size: int, k: int) -> Self:
        """Of texts as ids [tokens], their end tokens among them. DataError if there are none. InputError for k < 1."""
        if k < 1:
            raise InputError(f"k={k!r}: expected an integer ≥ 1; 1 looks at no context")
        padded = [np.concatenate([np.full(k - 1, vocab_size), ids]) for ids in texts if len(ids)]
        if not padded:
            raise DataError("a k-gram model needs at least one text that has tokens; there is none")
        columns = [np.concatenate([ids[j : len(ids) - (k - 1 - j)] for ids in padded]) for j in range(k)]
        states, levels = np.zeros(len(columns[0]), np.int64), []
        for column in columns[:-1]:
            level, states = np.unique(states * (vocab_size + 1) + column, return_inverse=True)
            levels.append(level)
        followers, counts = np.unique(states * (vocab_size + 1) + columns[-1], return_counts=True)
        return cls(vocab_size, tuple(levels), followers, counts.astype(np.int64))

    def find(self, contexts: Ints) -> tuple[Ints, Ints]:
        """The followers of contexts [n, k − 1] (−1: before the text), as ranges of places: starts and stops [n]."""
        states = np.zeros(len(contexts), np.int64)
        contexts = np.where(contexts < 0, self.vocab_size, contexts)
        for level, column in zip(self.levels, contexts.T, strict=True):
            keys = states * (self.vocab_size + 1) + column
            places = np.searchsorted(level, keys).clip(max=len(level) - 1)
            # The keys of a state that was never seen are negative: no other is found from it.
            states = np.where(level[places] == keys, places, -1)
        starts = np.searchsorted(self.followers, states * (self.vocab_size + 1))
        stops = np.searchsorted(self.followers, (states + 1) * (self.vocab_size + 1))
        return starts, np.where(states < 0, starts, stops)


class KGram(IdsModel):
    """A LanguageModel over counts. constant: c, added to every count.

    Raises InputError for a constant that is not above 0.
    """

    def __init__(
        self, counts: Counts, constant: float, *, rows: int = 64, device: torch.device | str = "cpu"
    ) -> None:
        if not 0 < constant < float("inf"):
            raise InputError(f"constant={constant!r}: expected a number > 0, which is added to every count")
        super().__init__(counts.vocab_size, rows=rows)
        self.counts, self.constant, self._device = counts, constant, device
        self._sums = np.concatenate([[0], np.cumsum(counts.counts)])

    @classmethod
    def load(cls, directory: Path, *, rows: int, device: torch.device | str = "cpu") -> Self:
        """From a directory that `train` has written. ModelError if its files do not fit together."""
        config = read_json(directory / "config.json")
        k, vocabulary, constant = (config.get(name) for name in ("k", "vocab_size", "constant"))
        if (
            not (isinstance(k, int) and isinstance(vocabulary, int) and isinstance(constant, int | float))
            or min(k, vocabulary) < 1
            or not constant > 0
        ):
            raise ModelError(
                f"{directory / 'config.json'}: k={k!r}, vocab_size={vocabulary!r}, constant={constant!r}; expected "
                "integers ≥ 1 and a number > 0: train the model again"
            )
        try:
            arrays = load_file(directory / WEIGHTS)
            levels = tuple(arrays[f"level.{j}"] for j in range(k - 1))
            counts = Counts(vocabulary, levels, arrays["followers"], arrays["counts"])
        except (SafetensorError, OSError, KeyError) as error:
            raise ModelError(
                f"{directory / WEIGHTS}: holds no counts of a {k}-gram model ({error}); train the model again"
            ) from None
        return cls(counts, float(constant), rows=rows, device=device)

    def read(self, rows: Ints, lengths: Ints) -> Tensor:
        v, c, counts = self.vocab_size, self.constant, self.counts
        starts, stops = counts.find(self.last(rows, lengths, counts.k - 1))
        seen = self._sums[stops] - self._sums[starts]
        found = np.full((len(rows), v), c)
        each = stops - starts
        owner = np.repeat(np.arange(len(rows)), each)
        places = np.arange(len(owner)) - np.repeat(np.cumsum(each) - each, each) + np.repeat(starts, each)
        found[owner, counts.followers[places] % (v + 1)] += counts.counts[places]
        logits = np.log(found) - np.log(seen + c * v)[:, None]
        return send(logits.astype(np.float32), torch.device(self._device))


def train(
    texts: Iterable[str],
    directory: str | Path,
    *,
    tokenizer: str | Path,
    k: int = 3,
    constant: float = 1.0,
) -> Path:
    """Count a k-gram model of `texts` and write it as a model directory that TorchEngine runs.

    tokenizer: the model directory, or the embedded model, whose tokenizer it has. Each text ends with its
    end-of-sequence token, if it has one. Raises InputError for k or constant out of their ranges, and DataError
    without texts.
    """
    if not 0 < constant < float("inf"):
        raise InputError(f"constant={constant!r}: expected a number > 0, which is added to every count")
    source, target = resolve(tokenizer), Path(directory)
    vocabulary = vocabulary_size(source)
    codec = Tokenizer(source, vocabulary)
    end = [min(codec.eos)] if codec.eos else []

    def ids() -> Iterator[Ints]:
        for text in texts:
            if text:
                yield np.array([*codec.render(Sequence.of(text))[0], *end], np.int64)

    counts = Counts.of(ids(), vocab_size=vocabulary, k=k)
    target.mkdir(parents=True, exist_ok=True)
    for pattern in ("tokenizer*.json", "special_tokens_map.json", "generation_config.json", "chat_template*"):
        for file in source.glob(pattern):
            shutil.copy(file, target / file.name)
    config = {"model_type": KGRAM, "k": k, "constant": constant, "vocab_size": vocabulary}
    if end:
        config["eos_token_id"] = sorted(codec.eos)
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    arrays = {f"level.{j}": level for j, level in enumerate(counts.levels)}
    save_file({**arrays, "followers": counts.followers, "counts": counts.counts}, target / WEIGHTS)
    return target
