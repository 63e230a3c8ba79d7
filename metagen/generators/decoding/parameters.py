"""Sampling parameters. Each is declared once, by a field of `SamplingParams`; all tables of them are read off there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Annotated, Any, Final, Literal, Self

from annotated_types import Ge

from metagen import parts
from metagen.border import checked
from metagen.errors import InputError
from metagen.generators.decoding.adapters import (
    LARGE,
    XTC,
    Adapter,
    Ban,
    Bans,
    Beginning,
    Bias,
    Deviations,
    Dry,
    Factor,
    Ids,
    Least,
    Limit,
    Mass,
    Mirostat,
    Ratio,
    SequenceBias,
    Temperature,
    Threshold,
    Weight,
    in_order,
)
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.presets import preset
from metagen.generators.decoding.search import SearchSpec, StochasticBeamSearch
from metagen.values import Count, Expects, Filled, Switch, Text


@dataclass(frozen=True, slots=True)
class Adapts:
    """Says of a parameter that it is an adapter of the next-token distribution.

    place: adapters work in the order of their places. cuts: it cuts off tokens by what the adapters before have left.
    """

    place: int
    cuts: bool = False


@checked
@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a generator decodes. They belong to the generator: other parameters, another generator.

    temperature: 0 is greedy, exactly. top_k: 0 is off. top_p: 1 is off.
    max_tokens: of the whole completion, counted from the prompt, ancestors included.
    stop: texts that end the completion; the text is cut before the stop text.
    stop_token_ids: ids that end it, besides the model's end-of-sequence tokens.
    ignore_eos: go on after end-of-sequence tokens (for measurements).
    logprobs: keep the log-probability of each token.
    grammar: texts that the completion is held to; log-probabilities stay those of the model without it.
    healing: where the prompt ends within what a longer token may write, its last tokens are dropped and their bytes are
    forced, so that the completion may begin within a token. What is drawn for the dropped ones counts.
    log_mass: keep log w(y) = Σ_t log Σ_{x allowed} p(x | y_<t), p behind the adapters: what the masks of grammar and
    healing left. Samples weighted by w are draws of p, given that they are allowed. A greedy completion has none.
    Adapters (`docs/decoding`), in the order in which they work; all of them are off by default:

    logit_bias: ids, or texts of one token, and what is added to their logits.
    sequence_bias: texts, or tuples of ids, and what is added to the logit of the last token of each, behind the others.
    repetition_penalty: θ; divides the logits of tokens that occur in prompt or completion, multiplies negative ones.
    presence_penalty, frequency_penalty: taken off the logits of tokens in the completion, once and for each occurrence.
    dry: takes off the more, the longer the repetition that a token would go on with (`Dry`).
    no_repeat_ngram: n; no n tokens of prompt and completion come twice. banned: texts, or sequences of ids, that are
    not completed; a text as it is encoded alone and behind a space. min_tokens: of the whole completion, before a token
    may end it. forced: a text, or ids, that it begins with.
    top_n_sigma, top_h, top_k, top_p, min_p, typical_p, epsilon_cutoff, eta_cutoff: cut tokens off, after temperature.
    min_tokens_to_keep: of the best tokens, so many stay whatever these cut. xtc: cuts the best ones (`XTC`).
    mirostat: cuts tokens off last, by the surprise of what the request has drawn so far.

    top_logprobs: k; keep the confidence of each token, C = −(1/k) Σ_j log p_j over the k most probable tokens of the
    raw model at its place (Fu et al. 2025, eq. 2). 0 is off. It changes nothing that is drawn. thought_end: the text
    that ends a thought, such as "</think>": what a completion has up to it is kept apart as its thought
    (`Sequence.thought`), and only the rest is its text. Off while it is empty. search: what chooses the continuations
    together (`metagen.generators.decoding.search`); None draws each for itself. adapters: of other packages, which
    work behind bans and before the grammar. Raises InputError for a value out of range, and for parameters that exclude
    each other.
    """

    temperature: Annotated[Temperature, Adapts(130)] = 1.0
    top_k: Annotated[Limit, Adapts(170, cuts=True)] = 0
    top_p: Annotated[Mass, Adapts(180, cuts=True)] = 1.0
    max_tokens: Count = 256
    stop: tuple[Filled, ...] = ()
    stop_token_ids: Ids = ()
    ignore_eos: Switch = False
    logprobs: Switch = False
    grammar: Annotated[Grammar | None, Adapts(120)] = None
    # Of one token, −log p is small where the model is sure: the opposite of a confidence.
    top_logprobs: Annotated[Literal[0] | Annotated[int, Ge(2)], Expects("an integer ≥ 2, or 0 (off)")] = 0
    search: Annotated[SearchSpec | None, Expects("a search such as BeamSearch, or None")] = None
    healing: Switch = False
    log_mass: Switch = False
    top_n_sigma: Annotated[Deviations, Adapts(150, cuts=True)] = 0.0
    min_tokens_to_keep: Annotated[Least, Adapts(140)] = 1
    top_h: Annotated[Mass, Adapts(160, cuts=True)] = 1.0
    min_p: Annotated[Ratio, Adapts(190, cuts=True)] = 0.0
    typical_p: Annotated[Mass, Adapts(200, cuts=True)] = 1.0
    epsilon_cutoff: Annotated[Threshold, Adapts(210, cuts=True)] = 0.0
    eta_cutoff: Annotated[Threshold, Adapts(220, cuts=True)] = 0.0
    xtc: Annotated[XTC | None, Adapts(230, cuts=True)] = None
    mirostat: Annotated[Mirostat | None, Adapts(240, cuts=True)] = None
    repetition_penalty: Annotated[Factor, Adapts(30)] = 1.0
    presence_penalty: Annotated[Weight, Adapts(40)] = 0.0
    frequency_penalty: Annotated[Weight, Adapts(50)] = 0.0
    dry: Annotated[Dry | None, Adapts(60)] = None
    no_repeat_ngram: Annotated[Limit, Adapts(70)] = 0
    logit_bias: Annotated[Mapping[int | str, float] | Bias, Adapts(10)] = ()
    sequence_bias: Annotated[Mapping[Ban, float] | SequenceBias, Adapts(20)] = ()
    banned: Annotated[Bans, Adapts(80)] = ()
    min_tokens: Annotated[Limit, Adapts(90)] = 0
    forced: Annotated[Beginning, Adapts(100)] = ()
    thought_end: Text = ""
    adapters: Annotated[tuple[Adapter, ...], Adapts(110)] = ()

    def __post_init__(self) -> None:
        for name in ("logit_bias", "sequence_bias"):
            object.__setattr__(self, name, in_order(getattr(self, name)))
        try:
            parts.check(self)
        except InputError as error:
            if str(error).startswith(("logit_bias", "sequence_bias")):
                raise InputError(f"{error}, up to ±{LARGE:g}; to forbid a token, use banned") from None
            raise

        def expect(ok: bool, name: str, what: str) -> None:
            if not ok:
                raise InputError(f"{name}={getattr(self, name)!r}: {what}")

        held = self.grammar is not None and self.ignore_eos
        expect(not held, "grammar", "it says itself where a text ends; leave ignore_eos off")
        drawn = self.search is None
        together = not drawn and self.mirostat is not None
        expect(
            not together,
            "search",
            "mirostat follows what is drawn, and a search draws nothing; leave one out",
        )
        cold = isinstance(self.search, StochasticBeamSearch) and self.temperature == 0
        expect(
            not cold,
            "search",
            "it draws, and temperature=0 is greedy; give a temperature > 0, or a beam search",
        )
        if not drawn and self.temperature == 0 and (cuts := self.cuts):
            raise InputError(
                f"{cuts[0]}={getattr(self, cuts[0])!r}: a search at temperature=0 cuts nothing; give temperature=1, or "
                f"leave {cuts[0]} out"
            )
        expect(
            not (self.min_tokens and self.ignore_eos) or self.stop_token_ids != (),
            "min_tokens",
            "with ignore_eos no token ends a completion; leave one out, or give stop_token_ids",
        )
        room = f"max_tokens={self.max_tokens!r} leaves no room for it; expected no more than that"
        expect(self.min_tokens <= self.max_tokens, "min_tokens", room)
        once = len({key for key, _ in self.biases}) == len(self.biases)
        expect(once, "logit_bias", "an id or a text is given twice; give each one bias")
        fits = isinstance(self.forced, str) or len(self.forced) <= self.max_tokens
        expect(fits, "forced", f"it does not fit in max_tokens={self.max_tokens!r}; raise that")
        expect(drawn or not self.log_mass, "log_mass", "a search draws nothing to be weighed; leave one out")
        if self.log_mass and self.temperature > 0 and (cuts := self.cuts):
            raise InputError(
                f"log_mass={self.log_mass!r}: {cuts[0]}={getattr(self, cuts[0])!r} cuts by what masks leave, so that "
                "their mass is no weight of what is drawn; leave one out"
            )
        expect(
            not self.log_mass or self.grammar is not None or self.healing,
            "log_mass",
            "nothing masks, so that every sample has weight 1; give a grammar or healing, or leave it out",
        )

    @property
    def fingerprint(self) -> str:
        """Names the parameters. Those that came later than `ALWAYS` add nothing while they are off."""
        said = [name for name in OFF if name in ALWAYS or getattr(self, name) != OFF[name]]
        named = {name: getattr(self, name) for name in said}
        if self.adapters:
            named["adapters"] = tuple(one.fingerprint for one in self.adapters)
        return f"SamplingParams({', '.join(f'{name}={value!r}' for name, value in named.items())})"

    @property
    def on(self) -> tuple[str, ...]:
        """Names of the adapters beyond temperature, top_k, top_p and grammar that are on."""
        return tuple(name for name, off in ADAPTERS.items() if getattr(self, name) != off)

    @property
    def cuts(self) -> tuple[str, ...]:
        """Names of the adapters that cut tokens off and are on."""
        return tuple(name for name in CUTS if getattr(self, name) != OFF[name])

    @property
    def weighs(self) -> bool:
        """Whether what masks leave is kept: it is asked for, and something is drawn."""
        return self.log_mass and self.temperature > 0

    @property
    def biases(self) -> Bias:
        """logit_bias as pairs: ids first, then texts."""
        assert isinstance(self.logit_bias, tuple)
        return self.logit_bias

    @property
    def sequences(self) -> SequenceBias:
        """sequence_bias as pairs."""
        assert isinstance(self.sequence_bias, tuple)
        return self.sequence_bias

    @classmethod
    def preset(cls, name: str, **others: Any) -> Self:
        """Parameters that are recommended for a use (`presets.PRESETS`), and others beside them or in their place."""
        return cls().replace(**preset(name) | others)

    def replace(self, **changes: Any) -> Self:
        """These parameters with some changed. InputError for one that there is not."""
        known = [f.name for f in fields(self)]
        for name in changes:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise InputError(
                    f"{name!r} is no sampling parameter; expected some of {', '.join(known)}{meant}"
                )
        return replace(self, **changes)


#: All parameters, in the order of fingerprints, each with the value that it has where nothing is said.
OFF: Final[Mapping[str, Any]] = {one.name: one.default for one in fields(SamplingParams)}
#: Parameters that every fingerprint names.
ALWAYS: Final = (
    "temperature", "top_k", "top_p", "max_tokens", "stop", "stop_token_ids", "ignore_eos", "logprobs",
)  # fmt: skip
#: Adapters, in the order in which they work.
PLACES: Final[Mapping[str, Adapts]] = dict(
    sorted(
        (
            (name, note)
            for name, hint in parts.hints_of(SamplingParams).items()
            for note in getattr(hint, "__metadata__", ())
            if isinstance(note, Adapts)
        ),
        key=lambda one: one[1].place,
    )
)
#: Their names in that order, whatever the order of their names.
ORDER: Final = tuple(PLACES)
CUTS: Final = tuple(name for name, note in PLACES.items() if note.cuts)
#: Adapters that an engine must declare, each with the value that is off.
ADAPTERS: Final[Mapping[str, Any]] = {
    name: OFF[name] for name in ORDER if name not in ("temperature", "top_k", "top_p", "grammar")
}
#: What an engine may declare beyond plain sampling.
BEYOND: Final = frozenset({"grammar", "closing", "healing", "top_logprobs", "search", "log_mass", *ADAPTERS})
