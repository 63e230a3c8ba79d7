"""The cost of inference: what was spent, and what a model of a given shape must spend.

Two accountings of FLOPs stand side by side. *Exact* counts the matrix products of a causal
transformer, attention over the context and the LM head included. *2N* is the papers' rule: two
FLOPs per parameter and token, N without embeddings and, for mixtures of experts, the active ones.
FLOPs are integers, so that sums of parts equal the whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from metagen.border import checked
from metagen.errors import InputError, ModelError
from metagen.values import Positive, Quantity, Text


@dataclass(frozen=True, slots=True)
class Usage:
    """What was spent. A value that adds up; None is unknown, and unknown plus anything is unknown.

    prefilled, cached, generated: tokens of prompts computed, of prompts read from a cache, and
    decoded. calls: samples and scores, one each. flops, flops_2n: by the exact accounting and by 2N
    per token. money: in the currency of the price. seconds: of work, summed over calls. forced: of the
    tokens decoded, those that a grammar forced, which are run together and drawn by nobody.

    Examples:
        >>> from metagen.cost import Usage
        >>> total = Usage(generated=8, calls=1) + Usage(generated=4, calls=1, money=None)
        >>> total.generated, total.calls, total.money
        (12, 2, None)
    """

    prefilled: int | None = 0
    cached: int | None = 0
    generated: int | None = 0
    calls: int = 0
    flops: float | None = 0
    flops_2n: float | None = 0
    money: float | None = 0
    seconds: float = 0
    forced: int | None = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage.sum((self, other))

    @classmethod
    def sum(cls, usages: Iterable[Usage]) -> Usage:
        """The sum of any number of usages; of none, the zero usage."""
        return cls(*_each(sum, usages))

    def less(self, other: Usage) -> Usage:
        """What is left of each field, not below zero."""
        return Usage(*_each(lambda pair: max(0, pair[0] - pair[1]), (self, other)))

    def share(self, share: float) -> Usage:
        """A part of each field; counts are rounded up."""

        def part(column: tuple[float]) -> float:
            amount = share * column[0]
            return math.ceil(amount) if isinstance(column[0], int) else amount

        return Usage(*_each(part, (self,)))

    @property
    def tokens(self) -> int | None:
        """Tokens computed: prefilled and generated; None if either is unknown."""
        return None if self.prefilled is None or self.generated is None else self.prefilled + self.generated

    def of(self, calls: int, seconds: float) -> Usage:
        """The same with so many calls and seconds, quickly: each leaf call asks for it."""
        tokens = self.prefilled, self.cached, self.generated
        return Usage(*tokens, calls, self.flops, self.flops_2n, self.money, seconds, self.forced)

    def to_dict(self) -> dict[str, float | None]:
        """For JSON: zeros are left out, None (unknown) is kept."""
        return {name: value for name, value in zip(_NAMES, _columns(self), strict=True) if value != 0}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Usage:
        """Inverse of `to_dict`."""
        return cls(**data)


_NAMES = tuple(f.name for f in fields(Usage))
_columns = attrgetter(*_NAMES)


def _each(of: Callable[[Any], Any], usages: Iterable[Usage]) -> Iterator[Any]:
    """A function of each field of usages, taken together; None where one of them does not know the field."""
    columns: Iterator[tuple[Any, ...]] = zip(*map(_columns, usages), strict=True)
    return (None if None in column else of(column) for column in columns)


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The sizes of a causal transformer that its cost depends on.

    layers L, width D, heads q, kv_heads, head_dim d, ff D_ff (of one expert, in a mixture), vocab V.
    gated: the MLP has three matrices (SwiGLU and the like), not two. tied: the LM head is the
    embedding matrix. experts, active_experts: 0 for dense models; all layers of a mixture are alike.
    dtype_bytes: of one weight, and of one number in the KV cache. beside: models that run on the same tokens and make
    one language model with it; what they cost is added. weight_bytes: of one weight of the layers, if these are kept in
    fewer bytes than dtype_bytes; embedding and LM head are not. adapter: weights of a LoRA adapter beside those of the
    layers; each token is multiplied with them too.

    Norms and biases are not counted, nor sliding windows: attention sees the whole context.
    Raises ModelError for sizes that are not positive or do not fit together.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ff: int
    vocab: int
    gated: bool = True
    tied: bool = False
    experts: int = 0
    active_experts: int = 0
    dtype_bytes: int = 2
    beside: tuple[Beside, ...] = ()
    weight_bytes: float | None = None
    adapter: int = 0

    def __post_init__(self) -> None:
        if self.adapter < 0:
            raise ModelError(f"model shape: adapter={self.adapter!r}, expected an integer ≥ 0")
        if self.weight_bytes is not None and not self.weight_bytes > 0:
            raise ModelError(
                f"model shape: weight_bytes={self.weight_bytes!r}, expected a number > 0, or None"
            )
        for name in ("layers", "width", "heads", "kv_heads", "head_dim", "ff", "vocab", "dtype_bytes"):
            if getattr(self, name) < 1:
                raise ModelError(f"model shape: {name}={getattr(self, name)!r}, expected an integer ≥ 1")
        if self.heads % self.kv_heads:
            raise ModelError(
                f"model shape: heads={self.heads} is not a multiple of kv_heads={self.kv_heads}; "
                "each key-value head serves the same number of query heads"
            )
        if not (self.experts == self.active_experts == 0 or 1 <= self.active_experts <= self.experts):
            raise ModelError(
                f"model shape: active_experts={self.active_experts} of experts={self.experts}; expected "
                "1 to experts of them, or 0 of 0 for a dense model"
            )

    @classmethod
    def from_config(cls, config: str | Path | Mapping[str, Any]) -> ModelShape:
        """Read from a Hugging Face `config.json`: a model directory, the file, or its content.

        Raises ModelError that names file, field and remedy.
        """
        return _read_config(cls, config)

    @property
    def parameters(self) -> int:
        """N of the 2N rule: weight matrices of the layers, embeddings and LM head left out.

        For a mixture of experts the active ones only: what one token is multiplied with.
        """
        return self._parameters + sum(one.times * one.shape.parameters for one in self.beside)

    @property
    def _parameters(self) -> int:
        """Without those of models beside it."""
        layer = self._attention + self._router + (self.active_experts or 1) * self._mlp
        return self.layers * layer + self.adapter

    @property
    def parameters_total(self) -> int:
        """All weight matrices: every expert, the embedding and, unless it is tied, the LM head."""
        layer = self._attention + self._router + (self.experts or 1) * self._mlp
        own = self.layers * layer + (1 if self.tied else 2) * self.vocab * self.width + self.adapter
        return own + sum(one.shape.parameters_total for one in self.beside)

    def compress(self, weight_bytes: float) -> ModelShape:
        """The shape with weights of layers of so many bytes, in models beside it too."""
        beside = tuple(replace(one, shape=one.shape.compress(weight_bytes)) for one in self.beside)
        return replace(self, weight_bytes=weight_bytes, beside=beside)

    @property
    def bytes_total(self) -> float:
        """Bytes of all weight matrices (`parameters_total`) in memory."""
        layer = self._attention + self._router + (self.experts or 1) * self._mlp
        rest = ((1 if self.tied else 2) * self.vocab * self.width + self.adapter) * self.dtype_bytes
        own = self.layers * layer * (self.weight_bytes or self.dtype_bytes) + rest
        return own + sum(one.shape.bytes_total for one in self.beside)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token of context occupies: 2·L·n_kv·d·bytes."""
        own = 2 * self.layers * self.kv_heads * self.head_dim * self.dtype_bytes
        return own + sum(one.shape.kv_bytes_per_token for one in self.beside if not one.window)

    @property
    def _attention(self) -> int:
        """D(q + 2kv)d + qdD."""
        return self.width * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def _mlp(self) -> int:
        return (3 if self.gated else 2) * self.width * self.ff

    @property
    def _router(self) -> int:
        return self.width * self.experts


@dataclass(frozen=True, slots=True)
class Beside:
    """A model that runs beside another on the same tokens.

    window: it reads the last so many tokens, anew for each set of logits, and keeps no state; 0: it reads all, once.
    tries: tokens that it tries behind each place where logits are computed; it then scores, and has no LM head.
    """

    shape: ModelShape
    window: int = 0
    tries: int = 0

    @property
    def times(self) -> int:
        """How often its weights are used for each token that is decoded."""
        return self.window or 1 + self.tries

    def flops(self, tokens: int, cached: int, logits: int) -> int:
        """Exact FLOPs beside a prefill (see `prefill_flops`); where windows and tries differ by place, the most."""
        if self.window:
            return logits * prefill_flops(self.shape, min(self.window, tokens))
        if self.tries:
            tried = prefill_flops(self.shape, tokens + 1, cached=tokens, logits=0)
            return prefill_flops(self.shape, tokens, cached, logits=0) + logits * self.tries * tried
        return prefill_flops(self.shape, tokens, cached, logits)


def token_flops(shape: ModelShape, context: int, logits: bool = True) -> int:
    """Exact FLOPs of one token through the model.

    context: tokens it attends to, itself included. Linear parts 2N, attention 4·L·q·d·context, and
    the LM head 2·D·V where logits are computed.
    """
    return prefill_flops(shape, context, cached=context - 1, logits=int(logits))


def prefill_flops(shape: ModelShape, tokens: int, cached: int = 0, logits: int = 1) -> int:
    """Exact FLOPs of a causal prefill: `tokens` S of context, of which the first `cached` c are known.

    logits: positions at which the LM head is computed (generation needs one, the last). Attention is
    4·L·q·d·[(S−c)c + (S−c)(S−c+1)/2]. Raises InputError unless 0 ≤ cached ≤ tokens.
    """
    if not 0 <= cached <= tokens or logits < 0:
        raise InputError(
            f"prefill of tokens={tokens!r}, cached={cached!r}, logits={logits!r}: "
            "expected 0 ≤ cached ≤ tokens and logits ≥ 0"
        )
    new = tokens - cached
    attended = new * cached + new * (new + 1) // 2
    attention = 4 * shape.layers * shape.heads * shape.head_dim * attended
    own = 2 * shape._parameters * new + attention + 2 * shape.width * shape.vocab * logits
    return own + sum(one.flops(tokens, cached, logits) for one in shape.beside)


def decode_flops(shape: ModelShape, generated: int, context: int) -> int:
    """Exact FLOPs of decoding `generated` tokens after a prefill of `context` tokens.

    The prefill's logits give the first token, and the last one is never fed back: generated − 1
    tokens pass through the model, each with the LM head. So with the prefill's one set of logits,
    n samples of one prompt cost one prefill and n decodes, and a search that continues a step pays
    for the step's last token when it prefills it. Raises InputError for negative counts.
    """
    if generated < 0 or context < 0:
        raise InputError(f"decoding generated={generated!r} after context={context!r}: expected counts ≥ 0")
    fed = max(generated - 1, 0)
    return prefill_flops(shape, context + fed, cached=context, logits=fed)


def flops_2n(shape: ModelShape, tokens: int) -> int:
    """The papers' accounting: 2N per token, prefilled or generated; N is `shape.parameters`."""
    return 2 * shape.parameters * tokens


@checked
@dataclass(frozen=True, slots=True)
class Hardware:
    """A processor as the roofline model sees it.

    peak: FLOP/s of dense matrix products, in the data type that it serves models in.
    bandwidth: bytes/s between memory and processor. Raises InputError unless both are positive.
    """

    name: str
    peak: Positive
    bandwidth: Positive

    @classmethod
    def find(cls, name: str) -> Hardware:
        """One of `HARDWARE`. Raises InputError with the known names."""
        try:
            return HARDWARE[name]
        except KeyError:
            known = ", ".join(HARDWARE)
            raise InputError(
                f"unknown hardware {name!r}: expected one of {known}; for another one give "
                "Hardware(name, peak in FLOP/s, bandwidth in bytes/s)"
            ) from None


#: Dense bfloat16 with float32 accumulation, without sparsity, as the vendors state them.
HARDWARE: Mapping[str, Hardware] = {
    h.name: h
    for h in (
        # NVIDIA A100 Tensor Core GPU data sheet, column A100 80GB SXM.
        Hardware("a100-80gb-sxm", 312e12, 2.039e12),
        # NVIDIA H100 Tensor Core GPU data sheet, column H100 SXM; 1,979 TFLOPS there is with sparsity.
        Hardware("h100-sxm", 989.5e12, 3.35e12),
        # NVIDIA H200 Tensor Core GPU data sheet: the processor of H100 SXM with HBM3e.
        Hardware("h200", 989.5e12, 4.8e12),
        # NVIDIA L40S data sheet; 733 TFLOPS there is with sparsity.
        Hardware("l40s", 362.05e12, 0.864e12),
        # NVIDIA Ada GPU architecture white paper, appendix: 165.2 with FP32 accumulation.
        Hardware("rtx-4090", 165.2e12, 1.008e12),
        # Nominal, no vendor's figure: 4 cores of 3 GHz, two 8-wide float32 FMAs a cycle; two channels
        # of DDR4-3200.
        Hardware("laptop-cpu", 384e9, 51.2e9),
    )
}


def roofline_seconds(
    shape: ModelShape, hardware: Hardware, prefilled: int, generated: int, context: int, batch: int = 1
) -> float:
    """The least time in seconds in which `hardware` can serve a batch of like sequences.

    prefilled: of the `context` tokens of each prompt, those that are computed (the rest is cached).
    generated: tokens of each sequence. The prefill and every decode step take at least
    max(FLOPs / peak, (weights + KV cache read) / bandwidth); overheads and transfers are left out,
    so real machines are slower. A mixture reads the experts that uniform routing is expected to
    touch. Raises InputError unless 0 ≤ prefilled ≤ context, generated ≥ 0 and batch ≥ 1.
    """
    if not 0 <= prefilled <= context or generated < 0 or batch < 1:
        raise InputError(
            f"roofline of prefilled={prefilled!r}, context={context!r}, generated={generated!r}, "
            f"batch={batch!r}: expected 0 ≤ prefilled ≤ context, generated ≥ 0 and batch ≥ 1"
        )

    def seconds(flops: int, weights: float, keys: int) -> float:
        memory = weights + batch * keys * shape.kv_bytes_per_token
        return max(batch * flops / hardware.peak, memory / hardware.bandwidth)

    total = 0.0
    if prefilled:
        prefill = prefill_flops(shape, context, cached=context - prefilled)
        total += seconds(prefill, _weight_bytes(shape, batch * prefilled), context)
    step = _weight_bytes(shape, batch)
    for keys in range(context + 1, context + generated):
        total += seconds(token_flops(shape, keys), step, keys)
    return total


def _weight_bytes(shape: ModelShape, tokens: int) -> float:
    """Bytes of weights read to process `tokens` at once; of the embedding only single rows are."""
    touched = 1.0
    if shape.experts:
        touched = shape.experts * (1 - (1 - shape.active_experts / shape.experts) ** tokens)
    layer = shape._attention + shape._router + touched * shape._mlp
    rest = (shape.vocab * shape.width + shape.adapter) * shape.dtype_bytes
    own = shape.layers * layer * (shape.weight_bytes or shape.dtype_bytes) + rest
    return own + sum(_weight_bytes(one.shape, tokens * one.times) for one in shape.beside)


@checked
@dataclass(frozen=True, slots=True)
class Price:
    """What a server asks per million tokens, in `currency`.

    prompt: of prompt tokens computed. cached: of prompt tokens read from a cache; None: like prompt. generated: of
    generated tokens. currency: of all three. Raises InputError for negative prices.

    Examples:
        >>> from metagen.cost import Price, Usage
        >>> Price(prompt=0.15, generated=0.60).of(Usage(prefilled=1_000_000, generated=500_000))
        0.45
    """

    prompt: Quantity
    generated: Quantity
    cached: Quantity | None = None
    currency: Text = "USD"

    def of(self, usage: Usage) -> float | None:
        """The price of a usage; None if one of its token counts is unknown."""
        if usage.prefilled is None or usage.cached is None or usage.generated is None:
            return None
        cached = self.prompt if self.cached is None else self.cached
        prompt = usage.prefilled * self.prompt + usage.cached * cached
        return (prompt + usage.generated * self.generated) / 1e6


#: What an engine on one's own machine bills.
FREE = Price(prompt=0.0, generated=0.0)


# --- Hugging Face configurations ---------------------------------------------------------------------

#: Architectures whose layers the formulas describe, and whether their MLP is gated. Others differ in
#: ways that these fields do not tell (latent attention, recurrence, layers that share weights).
_GATED = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "ministral", "qwen2", "qwen3", "qwen3_moe"), True),
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "gemma3_text", "phi3", "granite", "smollm3"), True),
    **dict.fromkeys(("olmo", "olmo2", "olmo3", "olmoe", "cohere", "cohere2", "stablelm"), True),
    **dict.fromkeys(("gpt2", "gpt_neox", "gpt_bigcode", "opt", "phi", "starcoder2"), False),
}
#: Architectures whose sizes are read.
ARCHITECTURES = frozenset(_GATED)
#: Those whose embeddings are tied where the configuration does not say so.
_TIED = (
    "gpt2", "gpt_bigcode", "opt", "gemma", "gemma2", "gemma3", "gemma3_text", "cohere", "cohere2", "smollm3",
    "starcoder2",
)  # fmt: skip
_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


def _read_config(cls: type[ModelShape], config: str | Path | Mapping[str, Any]) -> ModelShape:
    where, data = _load(config)
    data = {**data, **(data.get("text_config") or {})}  # multimodal models keep the language model there
    kind = data.get("model_type")
    if kind not in _GATED:
        raise ModelError(
            f"{where}: model_type={kind!r}, expected one of {', '.join(_GATED)}; "
            "for another architecture give a ModelShape of your own"
        )
    _refuse_unlike_layers(where, data)

    def number(names: str, default: int | None = None) -> int:
        """The first of `names` that is given and not null, else the default."""
        name, value = next(((k, data[k]) for k in names.split() if data.get(k) is not None), (names, default))
        if value is None:
            wanted = " or ".join(repr(n) for n in names.split())
            raise ModelError(f"{where}: no field {wanted}; add it, as the model's own config.json has it")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ModelError(f"{where}: {name}={value!r}, expected an integer ≥ 1; mend the field")
        return value

    width, heads = number("hidden_size n_embd"), number("num_attention_heads n_head")
    if data.get("head_dim") is None and width % heads:
        raise ModelError(f"{where}: width {width} is no multiple of {heads} heads; add the field 'head_dim'")
    mixture = "num_local_experts" in data or "num_experts" in data
    dtype = str(data.get("dtype") or data.get("torch_dtype") or "float32").removeprefix("torch.")
    if dtype not in _BYTES:
        raise ModelError(f"{where}: dtype={dtype!r}, expected one of {', '.join(_BYTES)}; mend the field")
    plain = 4 * width if kind in ("gpt2", "gpt_bigcode") else None
    try:
        return cls(
            layers=number("num_hidden_layers n_layer"), width=width, heads=heads,
            kv_heads=number("num_key_value_heads", 1 if data.get("multi_query") else heads),
            head_dim=number("head_dim", width // heads),
            ff=number(f"{'moe_intermediate_size ' * mixture}intermediate_size n_inner ffn_dim", plain),
            vocab=number("vocab_size"), gated=_GATED[kind],
            tied=bool(data.get("tie_word_embeddings", kind in _TIED)),
            experts=number("num_local_experts num_experts") if mixture else 0,
            active_experts=number("num_experts_per_tok") if mixture else 0,
            dtype_bytes=_BYTES[dtype],
        )  # fmt: skip
    except ModelError as error:
        raise error if str(error).startswith(where) else ModelError(f"{where}: {error}") from None


def _load(config: str | Path | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(config, Mapping):
        return "model config", dict(config)
    path = Path(config)
    path = path / "config.json" if path.is_dir() else path
    try:
        data = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read ({error.strerror}); give a model directory with config.json, or the file"
        ) from None
    except ValueError as error:
        raise ModelError(f"{path}: not valid JSON ({error}); copy the model's config.json again") from None
    if not isinstance(data, dict):
        raise ModelError(f"{path}: expected a JSON object, found {type(data).__name__}; is this a model?")
    return str(path), data


def _refuse_unlike_layers(where: str, data: Mapping[str, Any]) -> None:
    """Mixtures in which some layers are dense have no single shape."""
    for field, usual in (("decoder_sparse_step", 1), ("mlp_only_layers", [])):
        if data.get(field) not in (None, usual):
            raise ModelError(
                f"{where}: {field}={data[field]!r}: layers that differ are refused, expected {usual!r}; "
                "give a ModelShape of your own whose sums match the model's"
            )
