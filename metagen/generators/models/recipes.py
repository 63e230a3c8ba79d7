"""Recipes: language models made of language models, as values that say what to load.

`TorchEngine(model=…)` takes a recipe wherever it takes a directory. Parts are embedded models by name, model
directories, or recipes again. All parts of a recipe have one vocabulary. Nothing here needs torch.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from annotated_types import Ge, Le, MinLen
from numpy.typing import ArrayLike

from metagen import parts
from metagen.errors import InputError
from metagen.generators.decoding.adapters import real
from metagen.sequence import digest
from metagen.values import Expects, Fraction, Positive, Quantity, Size, Total, spell

#: model_type of a directory that holds the counts of a k-gram model.
KGRAM: Final = "kgram"

Reading = Literal["raw", "sigmoid", "log_sigmoid"]


class Recipe:
    """What a language model is made of. Every recipe is a frozen dataclass."""

    __slots__ = ()

    #: Fields that name models, one or several; the tokenizer is that of the first.
    models_in: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        parts.check(self)

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
Part = Annotated[Model, Expects("a model directory, an embedded model, or a recipe")]
Parts = Annotated[tuple[Part, ...], MinLen(1), Expects("a tuple of at least one model")]
Finite = Annotated[float, Ge(-sys.float_info.max), Le(sys.float_info.max), Expects("a finite number")]


def _set(recipe: Recipe, name: str, value: Any) -> None:
    """A list is taken for a tuple."""
    object.__setattr__(recipe, name, tuple(value) if isinstance(value, list) else value)


def _set_models(recipe: Recipe, name: str, models: Any) -> None:
    """InputError names the place of what is no model."""
    _set(recipe, name, models)
    for i, model in enumerate(models if isinstance(models, list | tuple) else ()):
        if not isinstance(model, str | Path | Recipe):
            raise InputError(f"{name}[{i}]={model!r}: expected {spell(Part)}")


def _check_weights(weights: Any, count: int, what: str, *, positive: bool) -> None:
    """InputError unless there are so many finite numbers."""
    fit = isinstance(weights, tuple) and len(weights) == count and all(map(real, weights))
    if not fit or (positive and min(weights) <= 0):
        raise InputError(f"weights={weights!r}: expected {count} numbers{what}")


@dataclass(frozen=True, slots=True)
class Contrastive(Recipe):
    """Contrastive decoding: log p_exp − log p_ama within the head {x: p_exp(x) ≥ α max p_exp} (Li et al. 2023).

    alpha: 0 < α ≤ 1; 1 is greedy decoding of the expert. temperature: of the amateur. beta: the strength of the form
    (1 + β) log p_exp − β log p_ama (O'Brien & Lewis 2023); None is the difference alone. window: the last tokens that
    the amateur sees; None: all. sure: where the expert gives its best token at least so much, its own distribution
    stays. expert: the model that is decoded. amateur: the smaller one.
    """

    models_in = ("expert", "amateur")
    expert: Part
    amateur: Part
    alpha: Fraction = 0.1
    temperature: Positive = 1.0
    beta: Annotated[Quantity | None, Expects("a number ≥ 0, or None")] = None
    window: Annotated[Size | None, Expects("an integer ≥ 1, or None")] = None
    sure: Annotated[Fraction | None, Expects("a number in (0, 1], or None")] = None


@dataclass(frozen=True, slots=True)
class Experts(Recipe):
    """Experts and anti-experts: z_base + α (z_expert − z_anti) (DExperts, Liu et al. 2021).

    expert, anti: one of them may be None: the base takes its place. base: the model that is steered. alpha: the
    strength; below 0 the other way. Raises InputError without an expert and an anti-expert.
    """

    models_in = ("base", "expert", "anti")
    base: Part
    expert: Part | None = None
    anti: Part | None = None
    alpha: Finite = 1.0

    def __post_init__(self) -> None:
        parts.check(self)
        if self.expert is None and self.anti is None:
            raise InputError("expert=None: expected an expert, an anti-expert, or both")


@dataclass(frozen=True, slots=True)
class ProxyTuned(Recipe):
    """Proxy tuning: z_large + α (z_tuned − z_untuned), the last two small (Liu et al. 2024, where α = 1).

    large: the model that is steered. tuned: the small model after its training. untuned: the same before it. alpha:
    the strength.
    """

    models_in = ("large", "tuned", "untuned")
    large: Part
    tuned: Part
    untuned: Part
    alpha: Finite = 1.0


@dataclass(frozen=True, slots=True)
class Ensemble(Recipe):
    """How several models agree.

    how: `mean` of the probabilities, Σ w_i p_i with weights divided by their sum, or their `product`, ∏ p_i^w_i.
    weights: one of each model, > 0; None: 1/m each, which makes the product the geometric mean. models: with one
    vocabulary.
    """

    models_in = ("models",)
    models: Parts
    how: Annotated[Literal["mean", "product"], Expects("'mean' or 'product'")] = "mean"
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        _set_models(self, "models", self.models)
        if self.weights is not None:
            _set(self, "weights", self.weights)
            _check_weights(self.weights, len(self.models), " > 0, one of each model", positive=True)
        parts.check(self)

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

    values: models whose V outputs after a prefix are read as the values of the next tokens (the Q form). weights: λ
    of each; 0 changes nothing. reading: of the outputs, as they are, by sigmoid, or by its logarithm. base: the model
    that is steered.
    """

    models_in = ("base", "values")
    base: Part
    values: Parts
    weights: tuple[float, ...]
    reading: Reading = "raw"

    def __post_init__(self) -> None:
        _set_models(self, "values", self.values)
        _set(self, "weights", self.weights)
        _check_weights(self.weights, len(self.values), ", one of each value", positive=False)
        parts.check(self)


@dataclass(frozen=True, slots=True)
class Guided(Recipe):
    """Candidates weighed by a model that scores prefixes: log p(x) + λ s(prefix, x) (FUDGE, Yang & Klein 2021).

    scorer: a model with a head that scores; it reads the prefix with each candidate behind it. candidates: the most
    probable tokens of a row that are weighed; others have no probability. None: all tokens, which is exact. output:
    which of the head's numbers. reading: `log_sigmoid` takes it for the logit of a probability, as FUDGE does. base:
    the model that is steered. weight: λ.
    """

    models_in = ("base", "scorer")
    base: Part
    scorer: Part
    weight: Finite = 1.0
    candidates: Annotated[Size | None, Expects("an integer ≥ 1, or None for all")] = 200
    output: Total = 0
    reading: Reading = "log_sigmoid"


@dataclass(frozen=True, slots=True)
class Function(Recipe):
    """A function of the token ids so far that gives a number for each token: values by rule, or logits.

    vocabulary: of the model that has this one. name: enters the fingerprint, for a function has none of its own.
    """

    vocabulary: Part
    function: Annotated[Callable[[tuple[int, ...]], ArrayLike], Expects("a function of a tuple of ids")]
    name: Annotated[str, MinLen(1), Expects("a name, which the fingerprint is made of")]

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
    comes the end token. Raises InputError for fewer than two tokens, equal or empty ones, and for a function without a
    name.
    """

    tokens: tuple[str, ...]
    table: Rows
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", tuple(self.tokens))
        if len(self.tokens) < 2 or len(set(self.tokens)) < len(self.tokens) or not all(self.tokens):
            raise InputError(
                f"tokens={self.tokens!r}: expected at least two different texts, the end token last"
            )
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
