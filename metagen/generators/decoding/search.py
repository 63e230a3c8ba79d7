"""Searches: procedures that choose the continuations of a prefix together, where sampling draws each for itself.

What they are is said here, without torch; engines that `supports` names "search" run them. A search ranks by scores of
its own: what the other sampling parameters make of the logits, temperature and cuts included, is what it searches. At
temperature 0 it is the distribution of temperature 1, of which nothing is cut off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge, Le, MinLen

from metagen import parts
from metagen.errors import InputError
from metagen.generators.decoding.adapters import whole
from metagen.values import Count, Expects, Quantity

#: When a beam search stops before the longest length: see `BeamSearch`.
EarlyStopping = Literal["filled", "estimate", "bound"]
#: Whose log-probabilities are summed: see `BeamSearch`.
Scored = Literal["adapted", "model"]
#: A text that must occur, or the token ids of one.
Phrase: TypeAlias = str | tuple[int, ...]
#: Phrases that may be asked for: the shortest text that holds them is found among 2^n subsets.
MOST_PHRASES = 12


class Search:
    """A search as it is asked for. size_in: the field that holds its number of beams, or of candidates."""

    __slots__ = ()
    kind: ClassVar[str]
    size_in: ClassVar[str] = "width"

    def __post_init__(self) -> None:
        parts.check(self, f"{self.kind} search: ")

    @property
    def rows(self) -> int:
        """Rows of the model that it takes at most."""
        size: int = getattr(self, self.size_in)
        return size

    @property
    def most(self) -> int:
        """Samples that it returns at most."""
        return self.rows

    def check(self, n: int, vocabulary: int) -> None:
        """InputError for more samples than it returns, or more beams or candidates than there are tokens."""
        name, size = self.size_in, self.rows
        if size > vocabulary:
            raise InputError(
                f"{self.kind} search: {name}={size!r} is above the vocabulary of {vocabulary} tokens; "
                f"give {name} ≤ {vocabulary}"
            )
        if n > self.most:
            remedy = "ask for n = 1" if self.most == 1 < size else f"give {name} ≥ {n}, or ask for fewer"
            raise InputError(
                f"n={n!r}: a {self.kind} search with {name}={size!r} returns {self.most} samples at most; {remedy}"
            )


@dataclass(frozen=True, slots=True)
class BeamSearch(Search):
    """The `width` best prefixes are kept at each length; what ends is scored Σ log p / |y|^α.

    width: B, beams that live, and texts that are kept at most. alpha: α, the exponent of length normalisation; |y|
    counts the new tokens, the end token included. 0 is off, and favours short texts.
    early_stopping: once `width` texts are kept,

    - `filled`: stop at once (transformers: True);
    - `estimate`: stop when the best live beam, scored as if it ended here, is no better than the worst kept text
      (transformers: False). With α > 0 a longer text could still become better;
    - `bound`: stop when no live beam can become better than the worst kept text, whatever its length up to max_tokens
      (transformers: "never").

    score: `adapted`, the distribution after all adapters, grammar included; `model`, the model's own, of which adapters
    and grammar only say what may follow (as transformers scores banned n-grams).
    """

    kind: ClassVar[str] = "beam"
    width: Count = 4
    alpha: Annotated[Quantity, Expects("a number ≥ 0 (0: no length normalisation)")] = 1.0
    early_stopping: EarlyStopping = "estimate"
    score: Scored = "adapted"


@dataclass(frozen=True, slots=True)
class DiverseBeamSearch(BeamSearch):
    """Beam search in groups that avoid each other's tokens (Vijayakumar et al. 2018, arXiv:1610.02424).

    At each length the groups choose one after another; a group of width/groups beams ranks by
    Σ log p − λ · (how many beams of earlier groups took this token at this place).

    groups: G; None: as many as beams. diversity: λ. Texts are returned by their score without the penalty; what a
    second group found again comes last. Raises InputError if the groups do not divide the width.
    """

    kind: ClassVar[str] = "diverse_beam"
    groups: Count | None = None
    diversity: Quantity = 0.5

    def __post_init__(self) -> None:
        Search.__post_init__(self)
        groups = self.groups if self.groups is not None else self.width
        if self.width % groups:
            fitting = [g for g in range(1, self.width + 1) if self.width % g == 0]
            raise InputError(
                f"diverse_beam search: groups={groups!r} do not divide width={self.width!r}; "
                f"expected one of {', '.join(map(str, fitting))}, or another width"
            )


@dataclass(frozen=True, slots=True)
class ConstrainedBeamSearch(BeamSearch):
    """Beam search for texts in which phrases occur: dynamic beam allocation (Post and Vilar 2018, arXiv:1804.06609).

    Prefixes are sorted into banks by how many tokens of the phrases they hold, and the beams are shared by the banks;
    the next token of a phrase is always a candidate. What can no longer hold all phrases before max_tokens is dropped,
    and no text ends without them, so that every text returned holds them all.

    phrases: texts, read by the engine's tokenizer, or token ids. They may overlap, and occur in any order. Raises
    InputError for no phrases, too many, or equal ones.
    """

    kind: ClassVar[str] = "constrained_beam"
    phrases: Annotated[
        tuple[Any, ...],
        MinLen(1),
        Expects("a tuple of texts or of tuples of token ids; without any, use a beam search"),
    ] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        Search.__post_init__(self)
        if len(self.phrases) > MOST_PHRASES:
            raise InputError(
                f"constrained_beam search: {len(self.phrases)} phrases; expected {MOST_PHRASES} at most: "
                "join those that belong together"
            )
        for phrase in self.phrases:
            ids = not isinstance(phrase, str)
            if not phrase or (ids and not (isinstance(phrase, tuple) and all(map(whole, phrase)))):
                raise InputError(
                    f"constrained_beam search: phrase {phrase!r}: expected a text or a tuple of token ids, not empty"
                )
        if len(set(self.phrases)) < len(self.phrases):
            twice = next(p for p in self.phrases if self.phrases.count(p) > 1)
            raise InputError(
                f"constrained_beam search: phrase {twice!r} is given twice; one occurrence fulfils both: give it once"
            )


@dataclass(frozen=True, slots=True)
class StochasticBeamSearch(Search):
    """`width` different texts drawn without replacement (Kool et al. 2019, arXiv:1903.06059).

    A beam search that ranks by perturbed log-probabilities G ~ Gumbel(log p), drawn top-down under the condition that
    the largest child has its parent's value. The texts come in the order of their draws: the first is a plain sample.
    width: texts.
    """

    kind: ClassVar[str] = "stochastic_beam"
    width: Count = 4


@dataclass(frozen=True, slots=True)
class ContrastiveSearch(Search):
    """Of the k most probable tokens the one of (1 − α) p(v) − α max_j cos(h_v, h_j) (Su et al. 2022, arXiv:2202.06417).

    h: the model's last hidden states, of the candidate and of all tokens before it. p is the distribution after all
    adapters. α = 0 is greedy. It returns one text, which no seed changes. k: candidates at each place. alpha: the
    weight of the penalty.
    """

    kind: ClassVar[str] = "contrastive"
    size_in: ClassVar[str] = "k"
    k: Count = 5
    alpha: Annotated[float, Ge(0), Le(1), Expects("a number in [0, 1] (0 is greedy)")] = 0.6

    @property
    def most(self) -> int:
        """One text, whatever k is."""
        return 1


SearchSpec: TypeAlias = BeamSearch | StochasticBeamSearch | ContrastiveSearch
#: By the name that experiments give them.
SEARCHES: dict[str, type[SearchSpec]] = {
    one.kind: one
    for one in (BeamSearch, DiverseBeamSearch, ConstrainedBeamSearch, StochasticBeamSearch, ContrastiveSearch)
}


def inclusion(logprob: float, threshold: float) -> float:
    """Q = 1 − exp(−exp(log p − κ)): the probability that a text is among those that a stochastic beam search draws.

    threshold: κ, the perturbed log-probability of the text that is left out next. 1/q makes sums over what was drawn
    unbiased for sums over all texts: E Σ p/q · f = Σ p · f (Kool et al. 2019).
    """
    # Beyond 50, e^x is far more than is needed for 1.
    return -math.expm1(-math.exp(min(logprob - threshold, 50.0)))
