"""Budget forcing (s1, Muennighoff et al. 2025): the length of a thought, decided from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from metagen.border import checked
from metagen.errors import InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.parts import part
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence, Tokens, Until
from metagen.strategies.base import Strategy
from metagen.strategies.candidates import conclude
from metagen.strategies.reopen import reopen, stop_at
from metagen.strategies.sequential.length_control import Count, counter, new_tokens
from metagen.values import Amount, Filled
from metagen.verifiers.base import AnswerRule


@checked
@dataclass(frozen=True, slots=True)
class Thinking:
    """Tokens of thought, the end of thought not included.

    most: the thought is cut there; 0 answers directly; None, it ends by itself. least: a thought that ends
    before is sent on, at most `waits` times. Raises InputError for what contradicts itself.
    """

    most: Amount | None = None
    least: Amount = 0
    waits: Amount = 1

    def __post_init__(self) -> None:
        if self.most is not None and self.least > self.most:
            raise InputError(
                f"Thinking: least={self.least!r}: expected tokens of thought, from 0 to most={self.most!r}"
            )
        if not self.least and self.waits > 1:
            raise InputError(
                f"Thinking: waits={self.waits!r}: an end is put off only while a thought is shorter than least, and "
                "least=0; give least, such as the same as most, or leave waits out"
            )


def thinking_of(prompt: Prompt, thinking: Thinking | Mapping[str, Thinking]) -> Thinking:
    """The budget of one problem; InputError for a problem that a mapping does not know."""
    if isinstance(thinking, Thinking):
        return thinking
    if prompt.problem_id not in thinking:
        raise InputError(
            f"there is no thinking budget for the problem {prompt.problem_id!r}; "
            f"there is one for {len(thinking)} others: add it, or give one Thinking for all"
        )
    return thinking[prompt.problem_id]


@part
class BudgetForcing(Strategy):
    """Thinks for as long as it is told to, and then answers.

    end: the text that ends a thought and begins the answer, such as "</think>" or "A:". A thought that ends before
    `thinking.least` is not let end: `wait` takes the place of the end, at most `thinking.waits` times. One that
    reaches `thinking.most` is cut, and `end` and `cue` are put there. thinking: for all problems, or by problem id.

    thinker: writes the thought, and stops before `end`; by default the generator with `end` as a further stop text.
    Its max_tokens counts the thought alone, the generator's thought and answer.

    Where a server tells thoughts apart from answers (`Sequence.thought`), `end` is not written: a thought that its
    length cut is given back, with `cue` as the beginning of the answer; one that ended has its answer already. Such a
    thought cannot be sent on with `wait`, since servers close what they are given: UnsupportedError.

    count: tokens of a text, for
    generators without ids. Raises InputError where max_tokens leaves no room for the thought and an answer, and
    UnsupportedError for a generator that cannot go on from a thought, or a thinker that cannot be cut or sent on.
    """

    generator: Generator = field(kw_only=False)
    thinking: Thinking | Mapping[str, Thinking] = field(kw_only=False)
    end: Filled
    wait: Filled = "Wait"
    cue: str = ""
    thinker: Generator | None = None
    answer: AnswerRule | None = None
    count: Count | None = None

    def __post_init__(self) -> None:
        self._thinker = self.thinker or stop_at(self.generator, self.end)
        self._count = counter(type(self).__name__, self.count, self._thinker, self.generator)
        self.accepts_prefix = self._thinker.accepts_prefix
        params: Any = getattr(self.generator, "params", None)
        room = params.max_tokens if params else None
        budgets = [self.thinking] if isinstance(self.thinking, Thinking) else list(self.thinking.values())
        if self.wait != type(self).wait and not any(t.least for t in budgets):
            raise InputError(
                f"{type(self).__name__}: wait={self.wait!r} takes the place of an end that comes before least, and "
                "least=0; give Thinking(least=…), or leave wait out"
            )
        if not self.generator.accepts_prefix:
            raise UnsupportedError(
                f"{self.generator!r} cannot go on from a thought to an answer; BudgetForcing needs that"
            )
        if any(t.most for t in budgets) and not self._thinker.accepts_until:
            raise UnsupportedError(
                f"{self._thinker!r} cannot be stopped after a number of tokens, which most= needs; give a thinker that "
                "can, such as a generator over an engine, or Thinking(most=None)"
            )
        if any(t.least and t.waits for t in budgets) and not self._thinker.accepts_prefix:
            raise UnsupportedError(
                f"{self._thinker!r} cannot be sent on with {self.wait!r}, which least= needs; give a thinker that "
                "continues partial sequences, or Thinking(waits=0)"
            )
        longest = max((t.most for t in budgets if t.most is not None), default=None)
        after = self._count(self.end + self.cue)
        if room is not None and longest is not None and room <= longest + after:
            raise InputError(
                f"max_tokens={room!r} counts thought and answer, and {longest} tokens of thought leave no room for an "
                f"answer; give the generator more, or most ≤ {max(0, room - 1 - after)}"
            )

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        thought = await self._think(prefix, thinking_of(prefix.prompt, self.thinking), scope)
        if thought.thought is not None and thought.finish in ("eos", "stop") and thought.text != prefix.text:
            return await conclude(thought, scope, self.answer)  # the server told it apart, with its answer
        (sequence,) = await self.generator.generate(self._end(thought), scope=scope.child("answer"))
        return await conclude(sequence, scope, self.answer)

    async def _think(self, prefix: Sequence, budget: Thinking, scope: Scope) -> Sequence:
        """A thought without its end: of at least `least` tokens as far as `waits` goes, and of at most `most`."""
        thought, tokens = prefix, 0
        for i in range(budget.waits + 1):
            room = None if budget.most is None else budget.most - tokens
            if room == 0:
                break
            before, until = thought, None if room is None else Tokens(room)
            (thought,) = await self._thinker.generate(before, until=until, scope=scope.child(f"thought/{i}"))
            await conclude(reopen(thought), scope)
            tokens += new_tokens(before, thought, self._count)
            if thought.finish in (None, "length") or tokens >= budget.least or i == budget.waits:
                break
            tokens += self._count(self.wait)
            if budget.most is not None and tokens > budget.most:
                break
            thought = self._send_on(thought)
        return thought

    def _end(self, thought: Sequence) -> Sequence:
        """The thought with the beginning of an answer behind it."""
        if thought.thought is None:
            return reopen(thought, self.end + self.cue)
        return replace(reopen(thought, self.cue), thought=replace(thought.thought, ended=True))

    def _send_on(self, thought: Sequence) -> Sequence:
        if thought.thought is not None:
            raise UnsupportedError(
                f"{self._thinker!r} tells thoughts apart, and one that is shorter than least= cannot be sent on there; "
                "ask the server by api='completions', where thoughts are text, or give Thinking(least=0)"
            )
        return reopen(thought, self.wait)


def budget_forcing(
    generator: Generator,
    *,
    end: Filled,
    most: Amount | None = None,
    least: Amount = 0,
    waits: Amount = 1,
    wait: Filled = "Wait",
    cue: str = "",
    answer: AnswerRule | None = None,
) -> BudgetForcing:
    """BudgetForcing with one budget of thought for all problems, by its numbers: for experiment files.

    most: tokens of thought at most. least: tokens of thought at least. waits: how often an end of the thought is put
    off. wait: the text that is written in its place. cue: the text before the answer.
    """
    return BudgetForcing(generator, Thinking(most, least, waits), end=end, wait=wait, cue=cue, answer=answer)


vars(budget_forcing).update(thinks=True)
