"""Definitions whose fields are those of what they make; `definition` derives one for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import model_validator

from metagen import trust
from metagen.border import call
from metagen.errors import ConfigError
from metagen.runs.declare import registry
from metagen.runs.declare.registry import Section
from metagen.runs.declare.specs.fields import StrategyName
from metagen.runs.declare.specs.parts import PartSpec
from metagen.runs.declare.specs.strategies import AskSpec, OptionSpec
from metagen.values import Fraction, Switch
from metagen.verifiers.generative.way import WORDING
from metagen.verifiers.rules import answer_rule
from metagen.verifiers.utility.base import Utility
from metagen.verifiers.utility.pruning import AGGREGATED, ConfidencePruning


class DerivedSpec(PartSpec):
    """A definition whose fields are those of what it makes."""

    #: Parameters that have another name in a file.
    renamed: ClassVar[Mapping[str, str]] = {}
    #: Fields that hold functions.
    imported: ClassVar[frozenset[str]] = frozenset()
    #: Fields that name answer rules, or define them.
    ruled: ClassVar[frozenset[str]] = frozenset()
    #: Fields without a value in a file whose parameter has one.
    unsaid: ClassVar[frozenset[str]] = frozenset()
    #: Of what it defines; for definitions within others.
    section: ClassVar[Section] = "strategies"
    #: What their values cannot be to each other: see `Strategy.conflict`.
    conflict: ClassVar[Callable[[Mapping[str, Any]], str | None] | None] = None
    #: Fields of earlier versions, with what to do in place of each; None for one that is left out in silence.
    former: ClassVar[Mapping[str, str | None]] = {}

    def conflict_of(self, **given: Any) -> str | None:
        """What its values cannot be to each other; None if nothing is wrong. given: in place of what it says."""
        check = type(self).conflict
        if check is None:
            return None
        fields = {name: getattr(self, name) for name in type(self).model_fields} | given
        odd: str | None = call(self, check, fields, hint=str | None)
        return odd

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        """Asks for each n of its own. For those of the grid, `Combinations` asks."""
        n = getattr(self, "n", 0)
        for given in [{"n": one} for one in n or ()] if n is None or isinstance(n, tuple) else [{}]:
            if odd := self.conflict_of(**given):
                raise ValueError(odd)
        return self

    def options(self) -> dict[str, Any]:
        given = super().options()
        found = {}
        for name, value in given.items():
            if name == "over" or (value is None and name in self.unsaid):
                continue
            if name in self.imported:
                try:
                    value = _load(value)
                except ConfigError as error:
                    raise ConfigError(f"{name}: {error}") from error
            found[self.renamed.get(name, name)] = (
                answer_rule(value) if name in self.ruled and value else value
            )
        return found

    def build(
        self, make: Callable[..., Any], available: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Any:
        """The part, of its options and of the parts that are there; make: as of `registry`."""
        return make(self.section, self.kind, options, available)

    def names_in(self, section: Section) -> tuple[str, ...]:
        own = (getattr(self, name) for name in type(self).model_fields)
        below = [one for value in own for one in nested_definitions(value)]
        return (*super().names_in(section), *(name for one in below for name in one.names_in(section)))


def nested_definitions(value: Any) -> Iterator[PartSpec | OptionSpec]:
    """The definitions, and the ways to go on, that stand within a field."""
    if isinstance(value, PartSpec | OptionSpec):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from nested_definitions(one)
    elif isinstance(value, tuple):
        for one in value:
            yield from nested_definitions(one)


def _load(value: Any) -> Any:
    """The functions that names stand for; a word stays as it is."""
    if isinstance(value, tuple):
        return [_load(one) for one in value]
    if isinstance(value, AskSpec):
        return value.make()
    return trust.load(value) if isinstance(value, str) and ":" in value else value


class DerivedStrategySpec(DerivedSpec):
    """over: another strategy, which takes the place of the generator. It runs on the generator of the grid.

    n: candidates, or what the strategy counts in their place; those of the grid by default. verifier: what scores.
    step: what ends a step; by default what the task says. answer: the rule by which it reads answers, in place of the
    task's.
    """

    over: StrategyName | None = None


class DerivedUtilitySpec(DerivedSpec):
    """of: what is compared, the whole completions or the answers that are read in them. aggregate: compare with the
    mean of all. prune: drop candidates that will not win, with this confidence.

    answer: the rule by which it reads answers, in place of the task's.
    """

    of: Literal["text", "answer"] = "text"
    aggregate: Switch = False
    prune: Fraction | None = None

    @model_validator(mode="before")
    @classmethod
    def _wording(cls, given: Any) -> Any:
        fields = cls.model_fields
        odd = next((name for name in WORDING if name in given and name not in fields), None)
        if odd is not None:
            raise ValueError(f"{odd} words what a judge is asked; give it with kind: judge")
        return given

    @model_validator(mode="after")
    def _answering(self) -> Self:
        if self.of == "text" and getattr(self, "answer", None) is not None and self._whole:
            raise ValueError("answer is a rule for answers, and texts are compared; give of: answer")
        if self.of == "answer" and not self._takes("answer"):
            those = [
                kind
                for kind in registry.KINDS[self.section]
                if "answer" in registry.parameters(self.section, kind)
            ]
            raise ValueError(
                f"of = 'answer': a utility of kind {self.kind} compares whole completions; leave of out, or take one "
                f"of {', '.join(those)}"
            )
        return self

    @property
    def _whole(self) -> bool:
        """Whether whole texts may be compared; exact answers are all that some compare."""
        rule = registry.parameters(self.section, self.kind).get("answer")
        return rule is not None and rule.default is None

    @model_validator(mode="after")
    def _aggregating(self) -> Self:
        if self.aggregate and not self._takes("aggregate"):
            raise ValueError(f"a utility of kind {self.kind} cannot aggregate; leave aggregate out")
        if self.aggregate and self.prune is not None:
            raise ValueError(AGGREGATED)
        return self

    def _takes(self, name: str) -> bool:
        return name in registry.parameters(self.section, self.kind)

    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options().items() if self._takes(name)}

    def build(
        self, make: Callable[..., Any], available: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Any:
        if self.of == "text" and self._whole:
            available = {name: value for name, value in available.items() if name != "answer"}
        utility: Utility = super().build(make, available, options)
        return utility if self.prune is None else ConfidencePruning(utility, alpha=self.prune)
