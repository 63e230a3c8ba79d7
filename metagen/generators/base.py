"""Generator: what continues a prefix. Primitive generators decode with a model; strategies are generators too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from metagen.border import Part, promises
from metagen.errors import InputError, UnsupportedError
from metagen.scope import Scope
from metagen.sequence import Sequence, Until
from metagen.values import MOST


def _samples(result: list[Sequence], given: Mapping[str, Any]) -> str | None:
    """The first samples that fit: all of them, unless a budget ended."""
    n, prefix, scope = given["n"], given["prefix"], given["scope"]
    if odd := next((one for one in result if not one.extends(prefix)), None):
        return (
            f"{odd.text[:40]!r} does not extend the prefix {prefix.text[-40:]!r}: build on prefix.extend(…)"
        )
    if len(result) == n or (
        0 < len(result) < n and (scope.exhausted or any(one.exhausted for one in result))
    ):
        return None
    return f"expected n={n} sequences and there are {len(result)}; fewer only where a budget ends, marked exhausted"


class Generator(Part, ABC):
    """Samples sequences that continue a prefix: y ~ g(· | prefix).

    Sampling parameters belong to the generator; `replace` makes another one.
    """

    #: Whether sample numbers are independent draws; only those may be pooled. Joint draws (beams,
    #: sampling without replacement) may not.
    independent: bool = True
    #: Whether a prefix with text can be continued, and whether `until` can be asked for.
    accepts_prefix: bool = True
    accepts_until: bool = True

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Names the distribution: equal fingerprints promise equal draws under equal seeds."""

    @abstractmethod
    @promises(_samples)
    async def generate(
        self, prefix: Sequence, *, n: int = 1, start: int = 0, until: Until = None, scope: Scope
    ) -> list[Sequence]:
        """Samples number start … start + n − 1 of continuations of `prefix`, in order.

        Each goes to its end, or up to `until`. Results extend the prefix. When a budget ends, the
        first that fit are returned (the last of them may be cut: `exhausted`); BudgetExhausted if
        not even one fits. Raises InputError for n < 1, start < 0 or a finished prefix, and
        UnsupportedError for what this generator declares it cannot do.
        """

    def replace(self, **changes: Any) -> Self:
        """This generator with other sampling parameters.

        Raises UnsupportedError, unless a generator has such parameters.
        """
        raise UnsupportedError(
            f"{type(self).__name__} has no sampling parameters to replace, got {sorted(changes)}; "
            "change them on the generator that it calls"
        )

    def check(self, prefix: Sequence, n: int, start: int, until: Until) -> None:
        """The errors that `generate` promises, before anything is paid for.

        Raises InputError for a wrong number or a finished prefix, UnsupportedError for what this generator cannot do.
        """
        name = type(self).__name__
        if not is_count(n, 1):
            raise InputError(f"{name}: n={n!r}; expected the number of samples, at least 1")
        at_most(name, n=n)
        if not is_count(start, 0):
            raise InputError(f"{name}: start={start!r}; expected the number of the first sample, at least 0")
        if prefix.finish is not None:
            raise InputError(
                f"{name}: the prefix of problem {prefix.prompt.problem_id!r} is finished "
                f"({prefix.finish!r}); continue prefixes whose finish is None"
            )
        if (prefix.text or prefix.thought) and not self.accepts_prefix:
            raise UnsupportedError(f"{name} starts from a prompt only; it cannot continue a partial sequence")
        if until is not None and not self.accepts_until:
            raise UnsupportedError(f"{name} generates to the end only; it cannot stop at {until!r}")


def at_most(name: str, **numbers: int) -> None:
    """InputError for a number that nobody can mean."""
    for what, value in numbers.items():
        if value > MOST:
            raise InputError(f"{name}: {what}={value!r}; expected at most {MOST:,}")


def is_count(value: object, least: int) -> bool:
    """Whether something given for a number is a whole number, and at least so much."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
