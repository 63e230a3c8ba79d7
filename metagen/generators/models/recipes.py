"""Recipes: language models made of language models, as values that say what to load.

`TorchEngine(model=…)` takes a recipe wherever it takes a directory. Parts are embedded models by name, model
directories, or recipes again. All parts of a recipe have one vocabulary. Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from metagen.errors import InputError
from metagen.generators.decoding.adapters import real, whole
from metagen.sequence import digest

#: model_type of a directory that holds the counts of a k-gram model.
KGRAM: Final = "kgram"

Reading = Literal["raw", "sigmoid", "log_sigmoid"]
READINGS: Final = ("raw", "sigmoid", "log_sigmoid")


class Recipe:
    """What a language model is made of. Every recipe is a frozen dataclass."""

    __slots__ = ()

    #: Fields that name models, one or several; the tokenizer is that of the first.
    models_in: ClassVar[tuple[str, ...]] = ()

    @property
    def parts(self) -> tuple[Model, ...]:
        """The models that it loads."""
        found: list[Model] = []
        for name in self.models_in:
            value = getattr(self, name)
            found += value if isinstance(value, tuple) else () if value is None else (value,)
        return tuple(found)

    @property
    def options(self) -> str:
        """All that is said in it besides the models."""
        names = [field.name for field in dataclasses.fields(self)]  # type: ignore[arg-type]  # a dataclass, see above
        given = {name: getattr(self, name) for name in names}
        # Which models there are is said, for one may be left out; what they are, their own fingerprints say.
        return repr({k: v is not None if k in self.models_in else v for k, v in given.items()})

    def __str__(self) -> str:
        """As people name it."""
        return f"{type(self).__name__}({', '.join(map(str, self.parts))})"


Model = str | Path | Recipe


def _expect(ok: bool, name: str, value: object, what: str) -> None:
    if not ok:
        raise InputError(f"{name}={value!r}: expected {what}")


def _several(name: str, models: Any) -> tuple[Any, ...]:
    _expect(isinstance(models, tuple | list) and bool(models), name, models, "a tuple of at least one model")
    for i, model in enumerate(models):
        _model(f"{name}[{i}]", model)
    return tuple(models)


def _model(name: str, model: object) -> None:
    _expect(
        isinstance(model, str | Path | Recipe),
        name,
        model,
        "a model directory, an embedded model, or a recipe",
    )


def _numbers(name: str, values: Any, what: str) -> tuple[Any, ...]:
    _expect(isinstance(values, tuple | list), name, values, what)
    return tuple(values)


def _share(value: Any) -> bool:
    return real(value) and 0 < value <= 1


@dataclass(frozen=True, slots=True)
class Contrastive(Recipe):
    """Contrastive decoding: log p_exp − log p_ama within the head {x: p_exp(x) ≥ α max p_exp} (Li et al. 2023).

    alpha: 0 < α ≤ 1; 1 is greedy decoding of the expert. temperature: of the amateur. beta: the strength of the form
    (1 + β) log p_exp − β log p_ama (O'Brien & Lewis 2023); None is the difference alone. window: the last tokens that
    the amateur sees; None: all. sure: where the expert gives its best token at least so much, its own distribution
    stays.
    """

    models_in = ("expert", "amateur")
    expert: Model
    amateur: Model
    alpha: float = 0.1
    temperature: float = 1.0
    beta: float | None = None
    window: int | None = None
    sure: float | None = None

    def __post_init__(self) -> None:
        _model("expert", self.expert)
        _model("amateur", self.amateur)
        _expect(_share(self.alpha), "alpha", self.alpha, "a number in (0, 1]")
        warm = real(self.temperature) and self.temperature > 0
        _expect(warm, "temperature", self.temperature, "a number > 0")
        _expect(
            self.beta is None or (real(self.beta) and self.beta >= 0),
            "beta",
            self.beta,
            "a number ≥ 0, or None",
        )
        narrow = self.window is None or (whole(self.window) and self.window >= 1)
        _expect(narrow, "window", self.window, "an integer ≥ 1, or None")
        _expect(self.sure is None or _share(self.sure), "sure", self.sure, "a number in (0, 1], or None")


@dataclass(frozen=True, slots=True)
class Experts(Recipe):
    """Experts and anti-experts: z_base + α (z_expert − z_anti) (DExperts, Liu et al. 2021).

    expert, anti: one of them may be None: the base takes its place.
    """

    models_in = ("base", "expert", "anti")
    base: Model
    expert: Model | None = None
    anti: Model | None = None
    alpha: float = 1.0

    def __post_init__(self) -> None:
        _model("base", self.base)
        for name in ("expert", "anti"):
            if getattr(self, name) is not None:
                _model(name, getattr(self, name))
        _expect(real(self.alpha), "alpha", self.alpha, "a finite number")
        both = self.expert is None and self.anti is None
        _expect(not both, "expert", None, "an expert, an anti-expert, or both")


@dataclass(frozen=True, slots=True)
class ProxyTuned(Recipe):
    """Proxy tuning: z_large + α (z_tuned − z_untuned), the last two small (Liu et al. 2024, where α = 1)."""

    models_in = ("large", "tuned", "untuned")
    large: Model
    tuned: Model
    untuned: Model
    alpha: float = 1.0

    def __post_init__(self) -> None:
        for name in self.models_in:
            _model(name, getattr(self, name))
        _expect(real(self.alpha), "alpha", self.alpha, "a finite number")


@dataclass(frozen=True, slots=True)
class Ensemble(Recipe):
    """How several models agree.

    how: `mean` of the probabilities, Σ w_i p_i with weights divided by their sum, or their `product`, ∏ p_i^w_i.
    weights: one of each model, > 0; None: 1/m each, which makes the product the geometric mean.
    """

    models_in = ("models",)
    models: tuple[Model, ...]
    how: Literal["mean", "product"] = "mean"
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", _several("models", self.models))
        _expect(self.how in ("mean", "product"), "how", self.how, "'mean' or 'product'")
        if self.weights is not None:
            what = f"{len(self.models)} numbers > 0, one of each model"
            object.__setattr__(self, "weights", _numbers("weights", self.weights, what))
            fit = len(self.weights) == len(self.models) and all(real(w) and w > 0 for w in self.weights)
            _expect(fit, "weights", self.weights, what)

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights as they are used."""
        if self.weights is None:
            return (1 / len(self.models),) * len(self.models)
        total = sum(self.weights) if self.how == "mean" else 1.0
        return tuple(weight / total for weight in self.weights)


@dataclass(frozen=True, slots=True)
class Tilted(Recipe):
    """Token-wise control: p(x) exp(Σ λ_i V_i(x)) / Z (Mudgal et al. 2024).

    values: models whose V outputs after a prefix are read as the values of the next tokens (the Q form).
    weights: λ of each; 0 changes nothing. reading: of the outputs, as they are, by sigmoid, or by its logarithm.
    """

    models_in = ("base", "values")
    base: Model
    values: tuple[Model, ...]
    weights: tuple[float, ...]
    reading: Reading = "raw"

    def __post_init__(self) -> None:
        _model("base", self.base)
        object.__setattr__(self, "values", _several("values", self.values))
        what = f"{len(self.values)} numbers, one of each value"
        object.__setattr__(self, "weights", _numbers("weights", self.weights, what))
        fit = len(self.weights) == len(self.values) and all(map(real, self.weights))
        _expect(fit, "weights", self.weights, what)
        _expect(self.reading in READINGS, "reading", self.reading, f"one of {', '.join(READINGS)}")


@dataclass(frozen=True, slots=True)
class Guided(Recipe):
    """Candidates weighed by a model that scores prefixes: log p(x) + λ s(prefix, x) (FUDGE, Yang & Klein 2021).

    scorer: a model with a head that scores; it reads the prefix with each candidate behind it. candidates: the most
    probable tokens of a row that are weighed; others have no probability. None: all tokens, which is exact.
    output: which of the head's numbers. reading: `log_sigmoid` takes it for the logit of a probability, as FUDGE does.
    """

    models_in = ("base", "scorer")
    base: Model
    scorer: Model
    weight: float = 1.0
    candidates: int | None = 200
    output: int = 0
    reading: Reading = "log_sigmoid"

    def __post_init__(self) -> None:
        _model("base", self.base)
        _model("scorer", self.scorer)
        _expect(real(self.weight), "weight", self.weight, "a finite number")
        some = self.candidates is None or (whole(self.candidates) and self.candidates >= 1)
        _expect(some, "candidates", self.candidates, "an integer ≥ 1, or None for all")
        _expect(whole(self.output) and self.output >= 0, "output", self.output, "an integer ≥ 0")
        _expect(self.reading in READINGS, "reading", self.reading, f"one of {', '.join(READINGS)}")


@dataclass(frozen=True, slots=True)
class Function(Recipe):
    """A function of the token ids so far that gives a number for each token: values by rule, or logits.

    vocabulary: of the model that has this one. name: enters the fingerprint, for a function has none of its own.
    """

    vocabulary: Model
    function: Callable[[tuple[int, ...]], ArrayLike]
    name: str

    def __post_init__(self) -> None:
        _model("vocabulary", self.vocabulary)
        _expect(callable(self.function), "function", self.function, "a function of a tuple of ids")
        _expect(bool(self.name), "name", self.name, "a name, which the fingerprint is made of")

    @property
    def options(self) -> str:
        return repr(self.name)

    def __str__(self) -> str:
        return f"Function({self.name})"


Rows = Mapping[tuple[str, ...], ArrayLike] | Callable[[str, tuple[str, ...]], ArrayLike]


@dataclass(frozen=True, slots=True)
class Table(Recipe):
    """A table of next-token probabilities, as EnumerableEngine takes it, for the torch engine.

    tokens: the vocabulary, as texts; the last one is the end of sequence. table: completion so far -> probabilities
    of the next token, or a function of the prompt's text and the completion; then it needs a name.

    Of the characters of a prompt, those that are no tokens are read as bytes, whose ids follow those of the
    vocabulary and never occur in completions. The completion begins behind the last of these. After the end token
    comes the end token.
    """

    tokens: tuple[str, ...]
    table: Rows
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", tuple(self.tokens))
        fit = len(self.tokens) >= 2 and len(set(self.tokens)) == len(self.tokens) and all(self.tokens)
        _expect(fit, "tokens", self.tokens, "at least two different texts, the end token last")
        if callable(self.table) and not self.name:
            raise InputError("a table that is a function has no fingerprint of its own; give a name=")

    @property
    def options(self) -> str:
        known = {} if callable(self.table) else self.table
        content = repr(sorted((k, np.asarray(v).tolist()) for k, v in known.items()))
        return digest(self.name, content, *self.tokens).hex()

    def __str__(self) -> str:
        return f"Table({self.name or ' '.join(self.tokens)})"

    def row(self, ids: tuple[int, ...]) -> ArrayLike:
        """Probabilities of the tokens, and none of the bytes, after ids. InputError for a row that is not there."""
        size = len(self.tokens)
        head = max((i + 1 for i, token in enumerate(ids) if token >= size), default=0)
        done = tuple(self.tokens[i] for i in ids[head:])
        found = np.zeros(size + 256)
        if done and self.tokens[-1] in done:
            found[size - 1] = 1.0
            return found
        if callable(self.table):
            prompt = b"".join(bytes([i - size]) if i >= size else self.tokens[i].encode() for i in ids[:head])
            found[:size] = self.table(prompt.decode("utf-8", "replace"), done)
        elif done in self.table:
            found[:size] = self.table[done]
        else:
            raise InputError(f"the table has no row for the completion {done!r}; add it")
        return found
