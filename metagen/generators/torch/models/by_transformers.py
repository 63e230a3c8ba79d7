"""Any decoder that transformers has, over caches of transformers: slower than `llama`, and under the same contract.

Rows that are extended together keep one cache, padded on the left, for as long as no other row joins them; a step of
rows that only go on, or of fewer of them, is one pass. Whatever else happens to a row first takes its keys and values
out of that cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metagen.errors import ModelError, UnsupportedError
from metagen.generators.directory import read_json
from metagen.generators.torch.kv.segments import KVSegment
from metagen.generators.torch.models.language_model import Ints
from metagen.generators.torch.send import send

#: Tokens that one row takes at once, and that all rows of one pass take together.
CHUNK, PASS = 256, 2048


@dataclass(slots=True)
class _Together:
    """Rows in one cache. lengths: [R] tokens of each, which end where the cache ends."""

    rows: list[int]
    cache: Any
    lengths: Ints


class TransformersModel:
    """A LanguageModel over `AutoModelForCausalLM`.

    Running rows hold copies of all that they continue, beside `kv_bytes`, which bounds the prefix tree alone.
    """

    head = None
    keeps_hidden = False

    def __init__(
        self,
        directory: Path,
        *,
        dtype: torch.dtype,
        device: torch.device,
        rows: int,
        kv_bytes: int,
    ) -> None:
        self._model, self._config = _load(directory, dtype, device)
        self.dtype, self.device, self.rows = dtype, device, rows
        self.vocab_size = int(self._config.vocab_size)
        self.max_context = _context(directory, self._config)
        self.chunk = min(CHUNK, self.max_context)
        self.hidden: Tensor | None = None
        self._segments: list[list[KVSegment]] = [[] for _ in range(rows)]
        self._together: _Together | None = None
        one = self._state_of_one_token()
        self.token_bytes = one.nbytes
        self.segment_tokens = kv_bytes // self.token_bytes

    def _state_of_one_token(self) -> Tensor:
        """[layers, 2, kv_heads, 1, head_dim]; UnsupportedError for layers that keep something else."""
        with torch.inference_mode():
            cache = _new_cache()
            self._model(
                torch.zeros(1, 1, dtype=torch.long, device=self.device), past_key_values=cache, use_cache=True
            )
        layers = [(layer.keys, layer.values) for layer in cache.layers if layer.is_initialized]
        shapes = {tuple(tensor.shape) for pair in layers for tensor in pair}
        if len(shapes) != 1 or len(layers) != self._config.num_hidden_layers:
            raise UnsupportedError(
                f"model_type={self._config.model_type!r}: its layers do not all keep keys and values of one shape; "
                "serve the model with vLLM or another engine, and use that"
            )
        return torch.stack([torch.stack(pair)[:, 0] for pair in layers])

    # -- rows ------------------------------------------------------------------------------------

    def open(self, rows: Ints, chain: Sequence[KVSegment]) -> None:
        for row in rows.tolist():
            self._segments[row] = list(chain)

    def fork(self, sources: Ints, targets: Ints) -> None:
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._settle(source)
            self._segments[target] = list(self._segments[source])

    def move(self, sources: Ints, targets: Ints) -> None:
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._segments[target], self._segments[source] = self._segments[source], []
            if self._together is not None and source in self._together.rows:
                self._together.rows[self._together.rows.index(source)] = target

    def truncate(self, row: int, length: int) -> None:
        self._settle(row)
        whole = sum(map(len, self._segments[row]))
        if length < whole:
            self._segments[row] = [self.save(row, 0, length)] if length else []

    def save(self, row: int, start: int, stop: int) -> KVSegment:
        kv = self._content(row)
        return KVSegment(kv[:, :, :, start:stop].clone())

    def close(self, rows: Ints, *, poisoned: bool = False) -> None:
        for row in rows.tolist():
            self._segments[row] = []
            if self._together is not None and row in self._together.rows:
                self._keep([i for i, one in enumerate(self._together.rows) if one != row])

    def spill(self, tokens: int) -> int:
        return 0

    def _content(self, row: int) -> Tensor:
        """Keys and values of a row, [layers, 2, kv_heads, tokens, head_dim]."""
        group = self._together
        if group is not None and row in group.rows:
            i = group.rows.index(row)
            n = int(group.lengths[i])
            pairs = [(layer.keys[i], layer.values[i]) for layer in group.cache.layers]
            return torch.stack([torch.stack(pair)[:, :, pair[0].shape[1] - n :] for pair in pairs])
        pieces = [piece.kv for segment in self._segments[row] for piece in segment.pieces()]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=3)

    def _settle(self, row: int) -> None:
        """Let the row hold its own keys and values; the cache goes on without it."""
        group = self._together
        if group is None or row not in group.rows:
            return
        self._segments[row] = [KVSegment(self._content(row).clone())]
        self._keep([i for i, one in enumerate(group.rows) if one != row])

    def _keep(self, places: list[int]) -> None:
        """Let the cache hold these of its rows, in this order."""
        group = self._together
        assert group is not None
        if not places:
            self._together = None
            return
        if places == list(range(len(group.rows))):
            return
        lengths = group.lengths[places]
        index, longest = torch.tensor(places, device=self.device), int(lengths.max())
        for layer in group.cache.layers:
            start = layer.keys.shape[2] - longest
            layer.keys = layer.keys[index, :, start:]
            layer.values = layer.values[index, :, start:]
        self._together = _Together([group.rows[i] for i in places], group.cache, lengths)

    def _gather(self, rows: list[int]) -> _Together:
        """The cache of these rows, in this order; those that were in the last one without them are settled."""
        group = self._together
        if group is not None:
            if set(rows) <= set(group.rows):
                for row in [one for one in group.rows if one not in rows]:
                    self._settle(row)
                assert self._together is not None
                self._keep([self._together.rows.index(row) for row in rows])
                return self._together
            for row in list(group.rows):
                self._settle(row)
        contents = [self._content(row) if self._segments[row] else None for row in rows]
        lengths = np.array([0 if kv is None else kv.shape[3] for kv in contents])
        cache, longest = _new_cache(), int(lengths.max())
        if longest:
            first = next(kv for kv in contents if kv is not None)
            layers, _, heads, _, width = first.shape
            padded = first.new_zeros(layers, 2, len(rows), heads, longest, width)
            for i, kv in enumerate(contents):
                if kv is not None:
                    padded[:, :, i, :, longest - kv.shape[3] :] = kv
            for i in range(layers):
                cache.update(padded[i, 0], padded[i, 1], i)
        self._together = _Together(list(rows), cache, lengths)
        for row in rows:
            self._segments[row] = []
        return self._together

    # -- a pass ----------------------------------------------------------------------------------

    def extend(
        self, rows: Ints, tokens: Ints, counts: Ints | None = None, wanted: Ints | None = None
    ) -> Tensor:
        """As `LanguageModel.extend`: float32 [len(wanted), vocab]."""
        counts = np.ones(len(rows), np.int64) if counts is None else counts
        ends = np.cumsum(counts)
        wanted = ends - 1 if wanted is None else wanted
        logits: dict[int, Tensor] = {}
        hidden: dict[int, Tensor] = {}
        for count in np.unique(counts).tolist():
            these = np.flatnonzero(counts == count)
            for part in np.split(these, range(max(1, PASS // count), len(these), max(1, PASS // count))):
                flat = (ends[part] - count)[:, None] + np.arange(count)
                asked = np.isin(flat, wanted)
                found, states = self._pass(rows[part].tolist(), tokens[flat], last=not asked[:, :-1].any())
                at = np.argwhere(asked)
                for i, j in at.tolist():
                    place = j - count  # from the end: only the last logits may have been computed
                    logits[int(flat[i, j])] = found[i, place]
                    if states is not None:
                        hidden[int(flat[i, j])] = states[i, place]
        order = wanted.tolist()
        self.hidden = None
        if not order:  # a piece of a long prompt, before its last
            return torch.zeros(0, self.vocab_size, device=self.device)
        if self.keeps_hidden:
            self.hidden = torch.stack([hidden[i] for i in order]).float()
        return torch.stack([logits[i] for i in order]).float()[:, : self.vocab_size]

    def _pass(self, rows: list[int], tokens: Ints, *, last: bool) -> tuple[Tensor, Tensor | None]:
        """Logits [R, T or 1, vocab] behind `tokens` [R, T], and the last hidden states if they are kept."""
        group = self._gather(rows)
        longest, t = int(group.lengths.max()), tokens.shape[1]
        padding = longest - group.lengths
        mask = np.arange(longest + t) >= padding[:, None]
        position = group.lengths[:, None] + np.arange(t)
        found = self._model(
            input_ids=send(tokens, self.device),
            attention_mask=send(mask.astype(np.int64), self.device),
            position_ids=send(position, self.device),
            past_key_values=group.cache,
            use_cache=True,
            output_hidden_states=self.keeps_hidden,
            logits_to_keep=1 if last else 0,
        )
        group.lengths = group.lengths + t
        return found.logits, found.hidden_states[-1] if self.keeps_hidden else None


def _new_cache() -> Any:
    """One that keeps all keys, of layers with a sliding window too: prefixes are cut and shared anywhere."""
    from transformers import DynamicCache

    return DynamicCache()


def _load(directory: Path, dtype: torch.dtype, device: torch.device) -> tuple[Any, Any]:
    """The model and its configuration. ModelError where weights are missing, which transformers would make up."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    try:
        text = AutoConfig.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        ).get_text_config()
        # The fused kernels leave out the caps of attention's logits.
        attention = {"attn_implementation": "eager"} if getattr(text, "attn_logit_softcapping", None) else {}
        with _quiet(logging):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                directory,
                dtype=dtype,
                output_loading_info=True,
                local_files_only=True,
                trust_remote_code=False,
                **attention,
            )
    except (ValueError, OSError, KeyError, TypeError, RuntimeError) as error:
        said = str(error).strip().partition("\n")[0]
        raise UnsupportedError(f"{directory}: transformers cannot load the model ({said})") from None
    model, info = loaded
    for kind in ("missing_keys", "mismatched_keys"):
        if wrong := sorted(map(str, info[kind])):
            raise ModelError(
                f"{directory}: {len(wrong)} {kind.replace('_', ' ')} in the weights, {wrong[0]!r} among them; use the "
                "config.json that the weights were saved with"
            )
    return model.to(device).eval(), text


@contextmanager
def _quiet(logging: Any) -> Iterator[None]:
    """Without the library's progress bar and its report, which is read here."""
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _context(directory: Path, config: Any) -> int:
    """Tokens that can be read; of LongRoPE those of its original context.

    Beyond that transformers chooses other frequencies for a whole pass, by its longest row: keys that are kept would be
    of others than those beside them.
    """
    context = _positions(directory, config)
    rope = getattr(config, "rope_parameters", None) or {}
    for one in [rope] if "rope_type" in rope else [part for part in rope.values() if isinstance(part, dict)]:
        if one.get("rope_type") == "longrope":
            original = one.get("original_max_position_embeddings") or getattr(
                config, "original_max_position_embeddings", None
            )
            if not isinstance(original, int):
                raise ModelError(
                    f"{directory}: config.json has LongRoPE and no original_max_position_embeddings, so nothing says "
                    "how far its short factors reach; add the field"
                )
            context = min(context, original)
    return context


def _positions(directory: Path, config: Any) -> int:
    for name in ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    kind = read_json(directory / "config.json").get("model_type")
    raise ModelError(f"{directory}: config.json of a {kind} does not say how long a context it reads; add the field "
                     "max_position_embeddings")  # fmt: skip
