"""Tasksets of the library `verifiers`: single turns, graded by the rewards of its tasks (Brown 2025)."""

from __future__ import annotations

import inspect
import sys
from collections import abc
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from metagen import trust
from metagen.border import blamed
from metagen.errors import InputError, UnsupportedError, absent, lacks
from metagen.sequence import Message, Prompt, Sequence
from metagen.tasks.base import Problem, Task, check_problems
from metagen.values import Count, Positive, Text, show
from metagen.verifiers.base import AnswerRule
from metagen.verifiers.rules import Rule, answer_rule

#: Hooks of a task in its runtime, before and after the agent works there.
HOOKS: Final = ("setup", "finalize", "stage_verifier")


class VerifiersTask(Task):
    """The tasks of a taskset of the library `verifiers`, each asked once as a chat and graded by its rewards.

    taskset: the class, as package.module:Class. config: of the taskset, as its configuration names its fields. reward:
    the reward that grades, by name; by default their weighted sum. full: the reward of a perfect answer; grades are
    shares of it. answer: the rule by which votes compare answers, or its name. pattern: where it finds the answer, for
    a rule given by name. delimiter: the end of a step of a solution. mark: text within the step that holds the answer.
    limit: the first tasks only.

    Raises UnsupportedError for tasks that need tools, a runtime, a judge's model or images, and for a reward outside of
    0 to `full`. Raises InputError for a taskset without end, unless there is a limit.
    """

    name = "verifiers"

    def __init__(
        self,
        taskset: Text,
        *,
        config: Mapping[str, Any] | None = None,
        reward: Text | None = None,
        full: Positive = 1.0,
        answer: Rule = "math",
        pattern: Text | None = None,
        delimiter: Text = "\n",
        mark: Text | None = None,
        limit: Count | None = None,
    ) -> None:
        self.delimiter, self.mark = delimiter, mark
        self._reward, self._full = reward, full
        self._answer = answer_rule(answer, pattern=pattern)
        made = _make(taskset, config or {})
        if made.INFINITE and limit is None:
            raise InputError(f"taskset={taskset!r} has tasks without end; give limit, a number of them")
        with blamed(f"the taskset {taskset}", type(made)):
            tasks = list(islice(made, limit))
        self.name = type(made).__name__
        self._tasks = {f"{self.name}/{i}": one for i, one in enumerate(tasks)}
        for name, one in self._tasks.items():
            _check(name, one, type(made).toolsets(made.config))
        self._problems = list(check_problems(map(_problem, self._tasks, tasks), f"taskset={taskset!r}"))

    @property
    def answer(self) -> AnswerRule:
        return self._answer

    def problems(self) -> Iterator[Problem]:
        return iter(self._problems)

    async def grade(self, problem: Problem, sequences: abc.Sequence[Sequence]) -> list[float]:
        """The reward of each completion as a share of `full`."""
        return [await self._grade(problem, sequence) for sequence in sequences]

    async def rewards(self, problem: Problem, sequence: Sequence) -> dict[str, tuple[float, float]]:
        """Rewards of a completion, by name, with their weights. Raises PluginError for what scoring raises."""
        task = self._tasks[problem.id]
        trace = _trace(task, sequence)
        with blamed(f"the rewards of {type(task).__name__}", type(task)):
            await task.score(trace)
        return {name: (one.score, one.weight) for name, one in trace.rewards.items()}

    async def _grade(self, problem: Problem, sequence: Sequence) -> float:
        found = await self.rewards(problem, sequence)
        if self._reward is not None and self._reward not in found:
            known = ", ".join(found) or "none"
            raise InputError(f"reward={self._reward!r}: task {problem.id!r} has {known}")
        chosen = sum(score * weight for score, weight in found.values())
        value = (chosen if self._reward is None else found[self._reward][0]) / self._full
        if not 0 <= value <= 1:
            said = ", ".join(f"{name} {score:g} · {weight:g}" for name, (score, weight) in found.items())
            raise UnsupportedError(
                f"task {problem.id!r} rewards a completion by {said}, which is {value:g} of full={self._full:g}; "
                "expected a share in [0, 1]: give full, the reward of a perfect answer, or reward, the name of one"
            )
        return value


def _make(target: str, config: Mapping[str, Any]) -> Any:
    """The taskset with this configuration. Raises InputError for what is none."""
    vf = _library()
    from verifiers.v1.utils.generic import concrete_type

    found = trust.load(target, wanted="a taskset of verifiers, as package.module:Class")
    if not (isinstance(found, type) and issubclass(found, vf.Taskset)):
        raise InputError(
            f"taskset={target!r} is {show(found)}; expected a class that derives from vf.Taskset"
        )
    model = concrete_type(found, vf.TasksetConfig) or vf.TasksetConfig
    try:
        return found(model.model_validate(dict(config)))
    except ValueError as error:
        raise InputError(f"taskset={target!r} with config={dict(config)!r:.80}: {error}") from None


def _library() -> Any:
    """The library. Raises InputError where it is not installed, or something else has its name."""
    try:
        import verifiers.v1
    except ImportError as error:
        own = (absent(error) or "verifiers").partition(".")[0] == "verifiers"
        other = getattr(sys.modules.get("verifiers"), "__file__", None) if own else None
        here = "" if other is None else f"; {other} has its name, so begin in another directory"
        raise InputError(
            f"a task of verifiers needs {lacks(error)}: pip install 'verifiers>=0.4' beside metagen{here}"
        ) from None
    return verifiers.v1


def _check(name: str, task: Any, shared: abc.Sequence[Any]) -> None:
    """UnsupportedError for a task that one turn of text cannot answer, or whose rewards it cannot have."""
    from verifiers.v1.utils.decorators import discover_decorated

    vf, data = _library(), task.data
    runtime = [
        one.__name__
        for one in (*task.hooks("reward"), *task.hooks("metric"))
        if (needed := inspect.signature(one).parameters.get("runtime")) and needed.default is needed.empty
    ]
    own = [hook for hook in HOOKS if getattr(type(task), hook) is not getattr(vf.Task, hook)]
    reason = None
    if data.prompt is None:
        reason = "a user opens the conversation, and there is none here"
    elif shared or type(task).toolsets(task.config):
        reason = "it has tools, and a strategy answers in one turn of text"
    elif task.NEEDS_CONTAINER or data.image or data.artifacts or data.skills or own or runtime:
        parts = (*own, *runtime) or ("a container, or files",)
        reason = f"it needs a runtime ({', '.join(parts)}), where its agent works"
    elif task.config.judges:
        reason = "its judges ask models that no budget counts; take them out, and make a judge a verifier"
    elif discover_decorated(task, "intercept"):
        reason = "it changes requests or answers on their way (intercept)"
    if reason is not None:
        raise UnsupportedError(f"task {name!r} of verifiers: {reason}")


def _messages(data: Any) -> list[Any]:
    """What the agent is told, as verifiers' messages."""
    vf = _library()
    turns = [] if data.system_prompt is None else [vf.SystemMessage(content=data.system_prompt)]
    return [*turns, *([vf.UserMessage(content=data.prompt)] if isinstance(data.prompt, str) else data.prompt)]


def _problem(name: str, task: Any) -> Problem:
    turns = []
    for one in _messages(task.data):
        parts = one.content if isinstance(one.content, list) else []
        if one.role == "tool" or any(part.type != "text" for part in parts):
            raise UnsupportedError(
                f"task {name!r} of verifiers shows {one.role} messages that are more than text"
            )
        turns.append(Message(one.role, "".join(part.text for part in parts) if parts else one.content or ""))
    reference = getattr(task.data, "answer", None)
    # Its hash stands for data that no answer tells of, so that no run goes on with other data.
    return Problem(
        Prompt(name, messages=tuple(turns), form="auto"),
        f"(graded by its rewards: {task.hash[:12]})" if reference is None else str(reference),
    )


def _trace(task: Any, sequence: Sequence) -> Any:
    """What verifiers keeps of an agent that has answered with this completion."""
    from verifiers.v1.state import state_cls

    vf = _library()
    thought = sequence.thought.text if sequence.thought else None
    answer = vf.AssistantMessage(content=sequence.text, reasoning_content=thought)
    messages = [*_messages(task.data), answer]
    nodes = [
        vf.MessageNode(parent=i - 1 if i else None, message=one, sampled=one is answer)
        for i, one in enumerate(messages)
    ]
    finish = "length" if sequence.finish == "length" else "stop"
    return vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        state=state_cls(type(task))(),
        nodes=nodes,
        calls=[vf.ModelCall(node=len(nodes) - 1, finish_reason=finish)],
        is_completed=True,
        ok=True,
        stop_condition="agent_completed",
    )
