"""The models that a server has: named strategies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import lru_cache
from operator import attrgetter
from typing import Any

from metagen.budget import Budget
from metagen.errors import ConfigError, InputError
from metagen.logs import logger
from metagen.runs.declare.specs import Experiment
from metagen.runs.declare.specs.executor import ExecutorSpec
from metagen.runs.work import build
from metagen.serve.errors import ApiError, refuse
from metagen.strategies.base import Strategy
from metagen.strategies.rewrite import draws_alike, generators_of, with_samples, with_sampling

_LOG = logger(__name__)
#: Sampling parameters that the API calls otherwise.
CALLED = {"grammar": "response_format"}
#: Variants of strategies, by what requests ask for, that are kept.
KEPT = 256
#: Fields of a file that are about problems, and why requests do not use them.
FOR_PROBLEMS = {
    "allocation": "it is for all problems of a task together, and requests are none; the budget of a request is budget",
    "cache": "it is for runs; answers to requests are not kept",
    "executor.concurrency": "it is for problems of a task; of requests, serve.concurrency are in work at a time",
    "executor.shards": "it is for problems of a task; this process alone drives requests",
}


class Models:
    """Strategies by name: `generator/strategy@n`, or any other text.

    aliases: other names of them. budget: of each request, at most.
    """

    def __init__(
        self,
        strategies: Mapping[str, Strategy],
        aliases: Mapping[str, str] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.strategies = dict(strategies)
        self.aliases = dict(aliases or {})
        self.budget = budget
        #: Names without their n, each with a strategy of which other n can be made.
        self._families = {name.rpartition("@")[0] or name: name for name in reversed(self.strategies)}
        for alias, name in self.aliases.items():
            if name not in self.strategies:
                raise ConfigError(
                    f"serve.aliases.{alias} = {name!r}: no such model{self._near(name)}; there are "
                    f"{', '.join(self.strategies)}"
                )
        self._variant = lru_cache(KEPT)(self._make)

    @property
    def names(self) -> list[str]:
        """All names, aliases first."""
        return [*self.aliases, *self.strategies]

    def offers(self, strategy: str) -> bool:
        """Whether a generator has a strategy of this name."""
        return any(one.partition("/")[2] == strategy for one in (*self.strategies, *self._families))

    def find(self, name: str, strategy: str | None = None, n: int | None = None) -> str:
        """The model that a request names, by another strategy of the same generator or another n if it says so.

        Raises ApiError (404) for a model that there is not.
        """
        known = self.aliases.get(name, name)
        if strategy is not None:
            known = f"{known.partition('/')[0]}/{strategy}"
        if known in self.strategies:
            return known
        family = known.rpartition("@")[0] or known
        if family in self._families and (n is not None or known == family):
            return self._families[family]
        param = "model" if strategy is None else "metagen.strategy"
        message = f"the model {known!r} does not exist{self._near(known)}; GET /v1/models lists those that do"
        raise ApiError(404, message, param=param, code="model_not_found")

    def strategy(self, name: str, n: int | None, changes: Mapping[str, Any]) -> Strategy:
        """A model's strategy, with this number of samples and these sampling parameters.

        Raises ApiError for what it cannot be asked for.
        """
        try:
            return self._variant(name, n, tuple(sorted(changes.items(), key=lambda one: one[0])))
        except TypeError:  # a value that cannot be a key, such as a mapping
            return self._make(name, n, tuple(changes.items()))

    def _make(self, name: str, n: int | None, changes: tuple[tuple[str, Any], ...]) -> Strategy:
        strategy = self.strategies[name]
        if n is not None:
            try:
                strategy = with_samples(strategy, n)
            except InputError as error:
                raise refuse("metagen.n", str(error)) from None
        given = dict(changes)
        try:
            made = with_sampling(strategy, given)
        except InputError as error:
            field = next((one for one in given if str(error).startswith(one)), next(iter(given)))
            said = str(error).removeprefix(f"{field}: ")
            raise refuse(CALLED.get(field, field), said) from None
        if given.get("logprobs") and not any(hasattr(one.engine, "decode") for one in generators_of(made)):
            raise refuse("logprobs", f"the engine behind {name!r} does not say which tokens it drew")
        if given.get("temperature") == 0 and draws_alike(made):
            raise refuse(
                "temperature",
                f"at 0 all samples that {name!r} chooses among would be equal; leave it out, or set own_sampling "
                "(in the file: serve.own_sampling: true), which goes by the file's own sampling parameters",
            )
        return made

    def _near(self, name: str) -> str:
        near = get_close_matches(name, [*self.names, *self._families], 1)
        return f"; did you mean {near[0]!r}?" if near else ""


def unused(experiment: Experiment) -> list[str]:
    """What the file gives, other than by default, and requests have no use for."""
    plain = experiment.model_copy(update={"allocation": None, "cache": None, "executor": ExecutorSpec()})
    return [
        f"{name} is not used: {why}"
        for name, why in FOR_PROBLEMS.items()
        if attrgetter(name)(experiment) != attrgetter(name)(plain)
    ]


@contextmanager
def open_models(experiment: Experiment) -> Iterator[Models]:
    """The configurations of an experiment as models, with their engines open.

    Those that a verifier with the reference answers steers are left out: new prompts have no references. The
    experiment's budget binds each request. Raises ConfigError where none is left.
    """
    with build.open_for_prompts(experiment) as setup:
        strategies: dict[str, Strategy] = {}
        left_out = []
        for cell in setup.configurations:
            with build.about("strategies", cell.strategy):
                strategy = setup.strategy(cell)
            if strategy.oracle:
                left_out.append(cell.name)
            else:
                strategies[cell.name] = strategy
        for generator, text in setup.alike:
            _LOG.warning("equal samples", extra={"generator": generator, "because": text})
        if left_out:
            _LOG.warning("not served, since they need reference answers", extra={"models": left_out})
        if not strategies:
            raise ConfigError(
                f"{experiment.name!r} has no configuration that can answer new prompts: recorded samples and verifiers "
                "that know the reference serve known problems only; add a generator over an engine, and a strategy"
            )
        spec = experiment.serve
        yield Models(strategies, None if spec is None else spec.aliases, experiment.budget)
