"""One request: a strategy, a prompt, limits; and what came of it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from metagen.budget import Account, Budget
from metagen.errors import BudgetExhausted
from metagen.events import Event, Listener
from metagen.generators.tool_calls import TOOLS, write_calls
from metagen.runs.declare.specs.serve import EffortSpec, ServeSpec
from metagen.sequence import Prompt, Sequence
from metagen.serve.errors import ApiError, refuse
from metagen.serve.models import Models
from metagen.serve.protocol import ChatRequest, CompletionRequest, Limits, Request
from metagen.strategies.base import Observe, Strategy
from metagen.strategies.parallel import ParallelStrategy, Sample
from metagen.strategies.rewrite import generators_of
from metagen.trace import Trace
from metagen.verifiers.base import Answer


@dataclass(frozen=True, slots=True)
class Job:
    """A request, understood. model: as it is called in the file. samples: of the strategy, if it has a number.

    strict: an error in place of a best effort, where the budget ends.
    """

    model: str
    strategy: Strategy
    prompt: Prompt
    choices: int
    seed: int
    budget: Budget | None
    strict: bool
    samples: int | None


@dataclass(frozen=True, slots=True)
class Solution:
    """What came of a job: one sequence for each choice, or fewer where the budget ended, and their answers."""

    job: Job
    sequences: tuple[Sequence, ...]
    answers: tuple[Answer | None, ...]
    trace: Trace

    @property
    def exhausted(self) -> bool:
        """Whether a limit ended some of it."""
        return any(one.exhausted for one in self.sequences) or len(self.sequences) < self.job.choices


class Service:
    """What a server and a client in this process have in common: requests in, solutions out.

    observe: opens what is told of the events of each job, beside whoever follows it.
    """

    def __init__(self, models: Models, spec: ServeSpec, observe: Observe | None = None) -> None:
        self.models, self.spec, self._observe = models, spec, observe

    def jobs(self, request: Request) -> list[Job]:
        """The jobs of a request, one for each prompt. Raises ApiError for what cannot be honoured."""
        spec, options = self.spec, request.metagen
        effort = self._effort(request)
        n = options.n or (effort.n if effort else None)
        for name, value, most in (("n", request.n, spec.max_n), ("metagen.n", options.n or 1, spec.max_n)):
            if value > most:
                raise refuse(name, f"{value} is more than this server gives; expected at most {most}")
        if request.length is not None and request.length > spec.max_tokens:
            raise refuse(
                "max_tokens", f"{request.length} is more than this server gives; at most {spec.max_tokens}"
            )
        name = self.models.find(request.model, options.strategy or (effort.strategy if effort else None), n)
        changes = request.sampling()
        if spec.own_sampling:
            changes = {k: v for k, v in changes.items() if k in ("max_tokens", "stop", "grammar", "logprobs")}
        strategy = self.models.strategy(name, n, changes)
        if isinstance(request, ChatRequest) and request.told_tools:
            check_tools(name, strategy)
        budget = _least(_budget(options.budget), effort.budget if effort else None)
        if spec.deadline is not None:
            budget = _least(budget, Budget(seconds=spec.deadline))
        strict = (options.exhausted or spec.exhausted) == "error"
        seed = secrets.randbits(48) if request.seed is None else request.seed
        samples = getattr(strategy, "n", None)
        return [
            Job(name, strategy, prompt, request.n, seed + i, budget, strict, samples)
            for i, prompt in enumerate(_prompts(request))
        ]

    def _effort(self, request: Request) -> EffortSpec | None:
        wanted = request.metagen.effort or getattr(request, "reasoning_effort", None)
        if wanted is None or wanted in self.spec.effort:
            return None if wanted is None else self.spec.effort[wanted]
        known = ", ".join(self.spec.effort) or "none"
        raise refuse(
            "reasoning_effort",
            f"{wanted!r} has no meaning here; the file says what efforts there are ({known}), in serve.effort",
        )

    async def solve(
        self, job: Job, listener: Listener | None = None, account: Account | None = None
    ) -> Solution:
        """Do a job. Raises ApiError where it asked for an error in place of a best effort, and errors of its parts."""
        with (
            nullcontext()
            if self._observe is None
            else self._observe(job.strategy, job.prompt, job.model) as observer
        ):
            return await self._solve(job, listener, observer, account)

    async def _solve(
        self, job: Job, listener: Listener | None, observer: Listener | None, account: Account | None
    ) -> Solution:
        strategy = job.strategy
        prefix, root = strategy.open_call(
            job.prompt, job.budget, job.seed, None, _both(listener, observer), account,
            speaks=listener is not None,
        )  # fmt: skip
        try:
            found = await strategy.generate(prefix, n=job.choices, scope=root)
        except BudgetExhausted:
            found = [replace(prefix, exhausted=True)]
        answers: list[Answer | None] = [None] * len(found)
        if strategy.answer is not None:
            answers = [*await strategy.answer.read(found)]
        solution = Solution(job, tuple(found), tuple(answers), root.trace)
        if job.strict and solution.exhausted:
            generated = solution.trace.usage.generated
            raise ApiError(
                402,
                f"the budget ended before an answer was chosen; {generated} tokens were generated: give more, or "
                "metagen.exhausted: answer, which returns what there is",
                code="budget_exhausted",
            )
        return solution

    async def follow(self, job: Job, account: Account | None = None) -> AsyncGenerator[Event | Solution]:
        """Do a job, and tell what happens; the solution comes last. Who leaves the iteration ends the work."""
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        work = asyncio.ensure_future(self.solve(job, events.put_nowait, account))
        work.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield await work
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError, Exception):  # who has left is told nothing
                await work


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
    prompt = Prompt.of([_message(one) for one in request.messages], form="auto")
    tools = request.told_tools
    return [prompt if tools is None else replace(prompt, public={TOOLS: tools}, form=None)]


def _message(given: dict[str, Any]) -> dict[str, Any]:
    """A turn as metagen knows it: calls of tools are text, and a speaker's name has no place."""
    made = {
        k: v
        for k, v in given.items()
        if k not in ("name", "tool_calls", "tool_call_id", "refusal", "annotations")
    }
    if made.get("role") == "developer":
        made["role"] = "system"
    if isinstance(calls := given.get("tool_calls"), list) and calls:
        said = made.get("content")
        written = write_calls(call for call in calls if isinstance(call, dict))
        made["content"] = "\n".join(part for part in (said if isinstance(said, str) else "", written) if part)
    return made


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


def _least(one: Budget | None, other: Budget | None) -> Budget | None:
    """Both limits at once."""
    if one is None or other is None:
        return one or other
    limits: dict[str, Any] = {}
    for field in fields(Budget):
        values = [v for v in (getattr(one, field.name), getattr(other, field.name)) if v is not None]
        limits[field.name] = min(values, default=None)
    return Budget(**limits)
