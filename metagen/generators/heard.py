"""What engines tell of samples before a request is answered: each is noted, and so recorded, when it ends."""

from __future__ import annotations

import asyncio
import threading
from collections import abc, deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol
from weakref import WeakKeyDictionary, ref

from metagen.attempts import UNTOLD, Attempt, elsewhere
from metagen.call import Ended, Outcome
from metagen.cost import Usage
from metagen.generators.engine import Engine, Generated, GenerateRequest, Sample, Share
from metagen.scope import Scope
from metagen.sequence import Sequence

#: What a sample took of a prefix that others have paid for.
NOTHING: Share = (0, 0, 0, None)
#: Seconds from when a sample of an engine that nobody bills ends to when it is noted.
ROUND = 0.02


class Charges(Protocol):
    """Says what samples cost: the generator that asked its engine for them."""

    engine: Engine

    @property
    def bills(self) -> bool:
        """Whether attempts are on disk before they begin."""
        ...

    def at_most(self, prefix: Sequence, n: int, tokens: int) -> Usage:
        """The physical cost of one request for n samples of so many tokens, at most."""
        ...

    def charge(self, prefix: Sequence, answer: Generated, scope: Scope) -> tuple[int | None, int | None]:
        """Logical prefix tokens of a request: new to its problem, and paid for before."""
        ...

    def outcome(
        self,
        sample: Sample,
        total: int | None,
        head: tuple[int | None, int | None] | None,
        share: Share,
        cap: int | None,
        begun: bool = False,
    ) -> Outcome:
        """The record of a sample, with its cost."""
        ...


class Round:
    """What is noted together in an event loop, at most `ROUND` after it was heard.

    An engine of this machine has its threads interrupted by each time that a loop wakes up; nobody bills for what a
    kill loses meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Weakly, since a loop may end before its round.
        self._waiting: list[ref[Told]] = []

    def add(self, loop: asyncio.AbstractEventLoop, told: Told) -> None:
        """In any thread."""
        with self._lock:
            self._waiting.append(ref(told))
            if len(self._waiting) > 1:
                return
        loop.call_soon_threadsafe(loop.call_later, ROUND, self._end)

    def _end(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for one in waiting:
            if (told := one()) is not None:
                told.note()


_ROUNDS: WeakKeyDictionary[asyncio.AbstractEventLoop, Round] = WeakKeyDictionary()


class Told:
    """The samples of a request as its engine tells of them: outcomes are noted in the caller's loop as they end.

    Logically the first sample pays for the prefix, whichever ends first; the others read it from the cache. What the
    prefix cost the engine is known at the end, and stands with the first of the samples that only the answer brings.
    """

    def __init__(
        self,
        generator: Charges,
        prefix: Sequence,
        cap: int | None,
        scope: Scope,
        ended: Ended,
        most: int,
    ) -> None:
        self._generator, self._prefix, self._cap, self._scope, self._most = (
            generator,
            prefix,
            cap,
            scope,
            most,
        )
        self._ended, self._loop = ended, asyncio.get_running_loop()
        self._round = _ROUNDS.setdefault(self._loop, Round())
        self._fresh: deque[tuple[int, Sample, int | None]] = deque()
        self._over = False
        self._samples: dict[int, Sample] = {}
        self._head: tuple[int | None, int | None] | None = None
        #: What samples took physically, as far as the engine has said that of each.
        self.shares: Mapping[int, Share] = {}

    def hear(self, number: int, sample: Sample, prefix_tokens: int | None) -> None:
        """In the engine's thread."""
        self._fresh.append((number, sample, prefix_tokens))
        if len(self._fresh) == 1:
            with suppress(RuntimeError):  # that loop is closed: nobody waits any more
                if self._generator.bills:
                    self._loop.call_soon_threadsafe(self.note)
                else:
                    self._round.add(self._loop, self)

    def apart(self) -> None:
        """The engine tells of each attempt."""
        if self._ended.attempts is not None:
            self._ended.attempts.apart()

    async def begin(self, numbers: abc.Sequence[int]) -> Attempt:
        """An attempt at these samples, told in whatever event loop."""
        attempts, generator = self._ended.attempts, self._generator
        if attempts is None:
            return UNTOLD
        worst = generator.at_most(self._prefix, len(numbers), self._most)
        return await elsewhere(attempts.begin(numbers, worst, durable=generator.bills), self._loop)

    def outcomes(self, answer: Generated) -> list[Outcome]:
        """One for each sample; those that were noted, as they were noted, unless the answer knows better: an engine
        around another one may change what that tells.
        """
        self._end()
        known = answer.prefilled is not None and answer.cached is not None
        read = (answer.prefilled or 0) + (answer.cached or 0) if known else None
        share: Share = answer.prefilled, answer.cached, read, None
        made = []
        for i, sample in enumerate(answer.samples):
            if i in self._ended and sample == self._samples[i]:
                made.append(self._ended[i])
                continue
            own = self.shares.get(i)
            made.append(self._outcome(i, sample, answer, share if own is None else own))
            share = NOTHING
        return made

    def salvage(self, request: GenerateRequest) -> None:
        """Note what had ended when the request was cut off. What its prefix cost the engine is unknown, unless that has
        said what each sample took.
        """
        self._end()
        ended = dict(request.ended)  # the engine may be at it still
        if not ended:
            return
        first, answer = min(ended), self._early_answer(next(iter(request.told), None))
        # After a deadline nobody comes back for the first sample: the first that ended pays for the prefix.
        pays = first if self._scope.left().seconds == 0 else 0
        for i, sample in ended.items():
            if i not in self._ended or i == first:
                share = self.shares.get(i, (None, None, None, None) if i == first else NOTHING)
                self._ended[i] = self._outcome(i, sample, answer, share, pays)

    def _end(self) -> None:
        """What is heard from now on comes too late for this call."""
        self.note()
        self._over = True

    def note(self) -> None:
        """In the caller's loop, unless the call has ended meanwhile, and nobody waits for its records."""
        while self._fresh and not self._over:
            i, sample, tokens = self._fresh.popleft()
            self._samples[i] = sample
            self._ended[i] = self._outcome(i, sample, self._early_answer(tokens), self.shares.get(i, NOTHING))

    def _early_answer(self, tokens: int | None) -> Generated:
        """The answer as far as it is known before it has come."""
        if tokens is not None:
            return Generated((), None, tokens)
        ids = self._generator.engine.render(self._prefix)
        return Generated((), ids, None if ids is None else len(ids))

    def _outcome(self, i: int, sample: Sample, answer: Generated, share: Share, pays: int = 0) -> Outcome:
        generator = self._generator
        if i == pays and self._head is None:
            self._head = generator.charge(self._prefix, answer, self._scope)
        head = self._head if i == pays else None
        return generator.outcome(
            sample, answer.prefix_tokens, head, share, self._cap, has_begun(self._prefix)
        )


def has_begun(prefix: Sequence) -> bool:
    """Whether the answer has begun, so that what follows is no thought."""
    return bool(prefix.text) or (prefix.thought is not None and prefix.thought.ended)
