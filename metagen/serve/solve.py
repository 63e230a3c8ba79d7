"""One request: a strategy, a prompt, limits; and what came of it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, nullcontext
from dataclasses import dataclass, replace
from typing import TypeAlias

from metagen.budget import Account, Budget, least
from metagen.errors import BudgetExhausted, ConfigError, InputError
from metagen.events import Event, Listener, follow
from metagen.generators.tool_calls import TOOLS
from metagen.runs.declare.specs.serve import EffortSpec, ServeSpec
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.serve.errors import ApiError, refuse
from metagen.serve.models import Models
from metagen.serve.protocol import ChatRequest, CompletionRequest, Limits, Request, one_of_both
from metagen.serve.several import Room, run_all
from metagen.serve.turns import read_turns
from metagen.serve.usage import tell_generated
from metagen.strategies.base import Observe, Strategy, shares_of
from metagen.strategies.parallel import ParallelStrategy, Sample
from metagen.strategies.rewrite import generators_of
from metagen.trace import Trace
from metagen.verifiers.base import Answer


@dataclass(frozen=True, slots=True)
class Job:
    """A request, understood. model: as it is called in the file. samples: of the strategy, if it has a number.

    strict: an error in place of a best effort, where the budget ends. alternatives: tokens whose log-probabilities are
    told beside that of the drawn one.
    """

    model: str
    strategy: Strategy
    prompt: Prompt
    choices: int
    seed: int
    budget: Budget | None
    strict: bool
    samples: int | None
    alternatives: int = 0


@dataclass(frozen=True, slots=True)
class Solution:
    """What came of a job: one sequence for each choice, or fewer where the budget ended, and their answers.

    shares: of each choice those of its vote (`Result.shares`); None where no candidates were compared.
    """

    job: Job
    sequences: tuple[Sequence, ...]
    answers: tuple[Answer | None, ...]
    trace: Trace
    shares: tuple[dict[str, float] | None, ...] = ()

    @property
    def exhausted(self) -> bool:
        """Whether a limit ended some of it."""
        return any(one.exhausted for one in self.sequences) or len(self.sequences) < self.job.choices


#: The number of a job among those of its request, with what happened in it, and at last with what came of it.
Told: TypeAlias = tuple[int, Event | Solution]


class Service:
    """What a server and a client in this process have in common: requests in, solutions out.

    observe: opens what is told of the events of each job, beside whoever follows it.
    """

    def __init__(self, models: Models, spec: ServeSpec, observe: Observe | None = None) -> None:
        self.models, self.spec, self._observe = models, spec, observe
        for name, effort in spec.effort.items():
            if effort.strategy is not None and not models.offers(effort.strategy):
                raise ConfigError(
                    f"serve.effort.{name}.strategy = {effort.strategy!r}: no model has such a strategy; there are "
                    f"{', '.join(models.strategies)}"
                )

    def jobs(self, request: Request) -> list[Job]:
        """The jobs of a request, one for each prompt. Raises ApiError for what cannot be honoured."""
        spec, options = self.spec, request.metagen
        effort = self._effort(request)
        n = options.n or (effort.n if effort else None)
        prompts = _prompts(request)
        self._check_size(request, len(prompts))
        name = self.models.find(request.model, options.strategy or (effort.strategy if effort else None), n)
        changes = request.sampling()
        if spec.own_sampling:
            changes = {k: v for k, v in changes.items() if k in ("max_tokens", "stop", "grammar", "logprobs")}
        try:
            strategy = self.models.strategy(name, n, changes)
        except ApiError as error:
            if error.param != "metagen.n" or options.n is not None:
                raise
            raise refuse(
                "reasoning_effort", f"it stands for {n} samples, and {name!r} draws one; leave it out"
            ) from None
        if isinstance(request, ChatRequest) and request.told_tools:
            check_tools(name, strategy)
        budget = least(_budget(options.budget), effort.budget if effort else None)
        budget = least(budget, self.models.budget)
        if spec.deadline is not None:
            budget = least(budget, Budget(seconds=spec.deadline))
        strict = (options.exhausted or spec.exhausted) == "error"
        seed = secrets.randbits(48) if request.seed is None else request.seed
        samples = getattr(strategy, "n", None)
        self._check_samples(request, len(prompts), samples or 1)
        alternatives = (request.logprobs or 0) if isinstance(request, CompletionRequest) else 0
        return [
            Job(name, strategy, prompt, request.n, seed + i, budget, strict, samples, alternatives)
            for i, prompt in enumerate(prompts)
        ]

    def _check_size(self, request: Request, prompts: int) -> None:
        """ApiError for a request that is larger than this server's."""
        spec = self.spec
        for name, value in (("n", request.n), ("metagen.n", request.metagen.n or 1)):
            if value > spec.max_n:
                raise refuse(name, f"{value} is more than this server gives; expected at most {spec.max_n}")
        if prompts * request.n > spec.max_n:
            raise refuse(
                "prompt",
                f"{prompts} prompts with n={request.n} are {prompts * request.n} choices, more than this server gives; "
                f"expected at most {spec.max_n}",
            )
        if request.length is not None and request.length > spec.max_tokens:
            name = "max_tokens" if request.length == request.max_tokens else "max_completion_tokens"
            raise refuse(name, f"{request.length} is more than this server gives; at most {spec.max_tokens}")

    def _check_samples(self, request: Request, prompts: int, samples: int) -> None:
        """ApiError for a request of more samples than this server draws. One run of a model of the file is no such."""
        most, runs = self.spec.max_samples, prompts * request.n
        if runs * samples <= most or (runs == 1 and request.metagen.n is None):
            return
        asked = [("metagen.n", request.metagen.n or 1), ("n", request.n), ("prompt", prompts)]
        param = max(asked, key=lambda one: one[1])[0]
        raise refuse(
            param,
            f"{prompts} prompts × n={request.n} choices × {samples} samples are {runs * samples} samples, more than "
            f"this server draws for a request; expected at most {most}",
        )

    def _effort(self, request: Request) -> EffortSpec | None:
        asked = getattr(request, "reasoning_effort", None)
        one_of_both("reasoning_effort", asked, "metagen.effort", request.metagen.effort)
        wanted = request.metagen.effort or asked
        if wanted is None or wanted in self.spec.effort:
            return None if wanted is None else self.spec.effort[wanted]
        known = ", ".join(self.spec.effort) or "none"
        raise refuse(
            "metagen.effort" if request.metagen.effort else "reasoning_effort",
            f"{wanted!r} has no meaning here; the file says what efforts there are ({known}), in serve.effort",
        )

    @staticmethod
    def limit(jobs: list[Job], above: Account | None = None) -> Account | None:
        """What all jobs of a request may spend together, and until when, from now on. above: a limit of its client.

        Belongs to the event loop of the work.
        """
        budget = jobs[0].budget
        return Account(budget, above, "the request") if budget else above

    async def solve(
        self, jobs: list[Job], limit: Account | None, room: Room = nullcontext[None]
    ) -> list[Solution]:
        """Do the jobs of a request within its `limit`; the solutions are in the order of the jobs.

        They run side by side, one at once and the others with places of `room`. Where the request has a budget that
        calls use up, they run one after the other: side by side, what each may spend would hang on who is faster.
        Raises ApiError where it asked for an error in place of a best effort, and errors of its parts.
        """
        return await self._solve_all(jobs, limit, room, None)

    async def follow(
        self, jobs: list[Job], limit: Account | None, room: Room = nullcontext[None]
    ) -> AsyncGenerator[Told]:
        """`solve`, told as it happens. The solution of a job is the last that is told of it."""

        async def work(tell: Callable[[Told], None]) -> None:
            await self._solve_all(jobs, limit, room, tell)

        async with aclosing(follow(work)) as events:
            async for event in events:
                if event is not None:
                    yield event

    async def _solve_all(
        self, jobs: list[Job], limit: Account | None, room: Room, tell: Callable[[Told], None] | None
    ) -> list[Solution]:
        async def do(number: int) -> Solution:
            def hear(event: Event) -> None:
                if tell is not None:
                    tell((number, event))

            solution = await self._observed(jobs[number], limit, None if tell is None else hear)
            if tell is not None:
                tell((number, solution))
            return solution

        budget = jobs[0].budget
        at_once = self.spec.concurrency if budget is None or not budget.divisible else 1
        return await run_all(do, len(jobs), at_once, room)

    async def _observed(self, job: Job, limit: Account | None, listener: Listener | None) -> Solution:
        if self._observe is None:
            return await self._solve(job, limit, listener, None)
        with self._observe(job.strategy, job.prompt, job.model) as observer:
            return await self._solve(job, limit, listener, observer)

    async def _solve(
        self, job: Job, limit: Account | None, listener: Listener | None, observer: Listener | None
    ) -> Solution:
        strategy = job.strategy
        prefix, root = strategy.open_call(
            job.prompt, None, job.seed, None, _both(listener, observer), limit, speaks=listener is not None
        )
        try:
            chosen = await strategy.choose_among(prefix, n=job.choices, scope=root)
        except BudgetExhausted:
            chosen = [(replace(prefix, exhausted=True), None)]
        found = [sequence for sequence, _ in chosen]
        answers: list[Answer | None] = [None] * len(found)
        if strategy.answer is not None:
            answers = [*await strategy.answer.read(found)]
        shares = tuple(None if scope is None else _shares(scope) for _, scope in chosen)
        solution = Solution(job, tuple(found), tuple(answers), root.trace, shares)
        if job.strict and solution.exhausted:
            raise ApiError(
                402,
                f"the budget ended before an answer was chosen; {tell_generated(solution.trace)} tokens were "
                "generated: give more, or metagen.exhausted: answer, which returns what there is",
                code="budget_exhausted",
            )
        return solution


def _shares(scope: Scope) -> dict[str, float] | None:
    """Those of a vote among several candidates; None where they did not vote, or their values cannot be shares."""
    if len(scope.offers) < 2:
        return None
    try:
        return shares_of(scope.offers, scope.votes) or None
    except InputError:
        return None


def _both(one: Listener | None, other: Listener | None) -> Listener | None:
    """Tells both."""
    if one is None or other is None:
        return one or other

    def tell(event: Event) -> None:
        one(event)
        other(event)

    return tell


def _prompts(request: Request) -> list[Prompt]:
    if isinstance(request, CompletionRequest):
        return [Prompt.of(text, form="text") for text in request.prompts]
    assert isinstance(request, ChatRequest)
    prompt = Prompt.of(read_turns(request.messages), form="auto")
    tools = request.told_tools
    return [prompt if tools is None else replace(prompt, public={TOOLS: tools}, form=None)]


def check_tools(name: str, strategy: Strategy) -> None:
    """ApiError for a model that cannot be told of tools."""
    if not isinstance(strategy, Sample | ParallelStrategy):
        raise refuse(
            "tools", f"{name!r} asks in several steps; single samples, votes and best-of-n may call tools"
        )
    for one in generators_of(strategy):
        if not getattr(one.engine, "takes_tools", False):
            raise refuse("tools", f"the model behind {name!r} has no place for tools in its chat template")


def _budget(given: Limits | int | None) -> Budget | None:
    return Budget.of(given.model_dump(exclude_none=True) if isinstance(given, Limits) else given)
