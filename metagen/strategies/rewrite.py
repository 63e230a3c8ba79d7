"""How a strategy draws, and the same one drawing otherwise: with other parameters, or another number of samples."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from functools import cached_property
from typing import Any

from metagen.errors import MetagenError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.primitive import EngineGenerator
from metagen.parts import arguments_of
from metagen.strategies.base import Strategy
from metagen.strategies.chain.function import FunctionStrategy
from metagen.strategies.chain.steps import ChainStep
from metagen.strategies.parallel import ParallelStrategy


def with_sampling(strategy: Strategy, changes: Mapping[str, Any]) -> Strategy:
    """The strategy with these sampling parameters in all generators that write for it, at any depth.

    Models that verifiers and aggregators ask stay as they are. Raises UnsupportedError where it has no such generator,
    as strategies that are functions have none, and InputError for what a generator refuses.
    """
    if not changes:
        return strategy
    changed: Strategy = _rewrite(strategy, changes)
    if changed is strategy:
        raise UnsupportedError(
            f"{', '.join(changes)}: no generator of {type(strategy).__name__} has sampling parameters to change"
        )
    return changed


def with_samples(strategy: Strategy, n: int) -> Strategy:
    """The strategy with another number of samples. Raises UnsupportedError where it has none."""
    given = _arguments(strategy) or {}
    if "n" not in given:
        raise UnsupportedError(f"n={n}: {type(strategy).__name__} has no number of samples to change")
    return strategy if given["n"] == n else type(strategy)(**given | {"n": n})


def generators_of(part: Any) -> list[EngineGenerator]:
    """The generators over engines that write for a strategy, at any depth."""
    return [one for one in _writers(part) if isinstance(one, EngineGenerator)]


def _arguments(part: Strategy | ChainStep) -> dict[str, Any] | None:
    """What a part was made with; None where it keeps something of that under another name."""
    try:
        return dict(arguments_of(part))
    except MetagenError:
        return None


def _kept(part: Strategy | ChainStep) -> dict[str, Any]:
    """What a part keeps of what it was made with, under names of its own; not what it has worked out from that."""
    worked_out = (cached_property, property)
    return {k: v for k, v in vars(part).items() if not isinstance(getattr(type(part), k, None), worked_out)}


def _judges(part: Strategy | ChainStep) -> frozenset[str]:
    return part.judges if isinstance(part, Strategy) else frozenset()


def _writers(part: Any) -> list[Generator]:
    """All that write for a strategy and are made of no others."""
    if isinstance(part, Strategy | ChainStep):
        given = _arguments(part)
        kept = (_kept(part) if given is None else given).items()
        return [found for name, value in kept if name not in _judges(part) for found in _writers(value)]
    if isinstance(part, Generator):
        return [part]
    if isinstance(part, Mapping):
        return [found for value in part.values() for found in _writers(value)]
    if isinstance(part, list | tuple):
        return [found for value in part for found in _writers(value)]
    return []


def draws_alike(strategy: Strategy) -> bool:
    """Whether it chooses among samples that are all equal, since all that write for it draw at temperature 0.

    False where a generator is no engine's, which may draw by chance.
    """
    traits = ("chooses", "adaptive", "searches")
    compares = isinstance(strategy, ParallelStrategy) or any(getattr(strategy, one, False) for one in traits)
    return compares and (getattr(strategy, "n", 2) or 2) > 1 and all(map(_is_greedy, _writers(strategy)))


def _is_greedy(generator: Generator) -> bool:
    if not isinstance(generator, EngineGenerator):
        return False
    return generator.params.temperature == 0 and generator.params.search is None


def _rewrite(part: Any, changes: Mapping[str, Any]) -> Any:
    if isinstance(part, EngineGenerator):
        return part.replace(**changes)
    if isinstance(part, FunctionStrategy):  # its program has its generators in itself
        return part
    if isinstance(part, Strategy | ChainStep):
        given = _arguments(part)
        old = _kept(part) if given is None else given
        judges = _judges(part)
        new = {name: value if name in judges else _rewrite(value, changes) for name, value in old.items()}
        if all(new[name] is old[name] for name in old):
            return part
        if given is None:
            other = copy(part)
            vars(other).clear()
            vars(other).update(new)
            return other
        # Who judges by default is the generator as it was.
        return type(part)(**new | {name: old["generator"] for name in judges if old[name] is None})
    if isinstance(part, Generator):
        return part
    if isinstance(part, Mapping):
        of = {name: _rewrite(value, changes) for name, value in part.items()}
        return part if all(of[name] is part[name] for name in of) else of
    if isinstance(part, list | tuple):
        items = [_rewrite(value, changes) for value in part]
        same = all(new is old for new, old in zip(items, part, strict=True))
        return part if same else type(part)(items)
    return part
