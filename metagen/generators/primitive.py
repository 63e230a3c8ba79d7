"""Primitive generators: one leaf call per request, with its accounting, seeds and record.

`Primitive` is the part that all share; `EngineGenerator` decodes with an engine.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from abc import abstractmethod
from collections import abc
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from metagen.attempts import UNTOLD
from metagen.border import one_each, promises
from metagen.call import Ended, Item, Outcome, Request
from metagen.cost import FREE, Price, Usage, decode_flops, flops_2n, prefill_flops
from metagen.errors import InputError, PluginError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.engine import (
    CHAT_API,
    Engine,
    Generated,
    GenerateRequest,
    Sample,
    SamplingParams,
    Share,
)
from metagen.generators.heard import Told, has_begun
from metagen.generators.spoken import Part, Spoken, undivided
from metagen.generators.tool_calls import tool_bytes
from metagen.generators.watch import watch_answer
from metagen.journal import Row
from metagen.logs import logger
from metagen.scope import Scope
from metagen.sequence import (
    Prompt,
    Score,
    Sequence,
    Step,
    Thought,
    TokenIds,
    Tokens,
    Until,
    digest,
)

_LOG = logger(__name__)
#: What a score holds: numbers and texts, and tuples of them.
OF_SCORE = tuple(f.name for f in dataclasses.fields(Score))
#: What a sample may hold of each of its tokens.
BY_TOKEN = ("token_logprobs", "token_confidences")


class Primitive(Generator):
    """A generator whose samples are leaf calls."""

    #: It is made of no others; what it holds is data.
    oracle: ClassVar[bool] = False
    #: Whether its samples are on disk already, so that the journal need not keep them.
    recorded: ClassVar[bool] = False
    #: Fingerprint of the tokenizer of the ids it returns; None without ids.
    tokenizer_fingerprint: str | None = None

    async def generate(
        self, prefix: Sequence, *, n: int = 1, start: int = 0, until: Until = None, scope: Scope
    ) -> list[Sequence]:
        self.check(prefix, n, start, until)
        step = until if isinstance(until, Step) else None
        if (
            step is not None
        ):  # where a sequence ends is read from its text: engines and records know nothing of it
            until = step.asked
        most = self.most(prefix, until)
        if most is not None and most < 1:
            return [dataclasses.replace(prefix, finish="length")] * n
        content = self.request_digest(prefix, until)
        scope.tell(prefix, content)
        items = tuple(Item(content, i) for i in range(start, start + n))
        request = Request("generate", self.fingerprint, items, most, self.recorded)
        voice = scope.voice if n == 1 else None
        spoken = None if voice is None else Spoken(voice, scope.path, prefix, self.part_of(prefix))

        async def execute(positions: abc.Sequence[int], cap: int | None, ended: Ended) -> list[Outcome]:
            ended.written = None if spoken is None else spoken.hear
            return await self.sample(prefix, [items[i] for i in positions], until, cap, scope, ended)

        def worst(positions: abc.Sequence[int], cap: int | None) -> Usage:
            tokens = cap if cap is not None else most
            return self.worst(prefix, len(positions), tokens, scope)

        try:
            rows = await scope.call(request, execute, worst, partial(self.remember, prefix, scope))
        finally:
            if spoken is not None:
                spoken.stop()
        # Rows that share a payload are one sequence: whoever judges sequences judges it once.
        made: dict[int, Sequence] = {}
        for row in rows:
            if id(row.payload) not in made:
                sequence = self._sequence(prefix, row)
                made[id(row.payload)] = step.mark_end(prefix, sequence) if step is not None else sequence
        results = [made[id(row.payload)] for row in rows]
        if spoken is not None and results:
            spoken.end(results[0])
        return results

    def request_digest(self, prefix: Sequence, until: Until) -> bytes:
        """Names what is asked for, in seeds and records."""
        return digest(prefix.digest, repr(until))

    def part_of(self, prefix: Sequence) -> Part:
        """Tells thought and answer apart in a text behind the prefix that is still being written."""
        return undivided

    @abstractmethod
    @promises(one_each("items"))
    async def sample(
        self, prefix: Sequence, items: list[Item], until: Until, cap: int | None, scope: Scope, ended: Ended
    ) -> list[Outcome]:
        """One outcome per item; its payload is made by `payload`.

        ended: where to put outcomes by place in `items` as they end before the others: they are recorded at once, lest
        a deadline, an error or a kill lose what has been paid for. Empty where samples end together.
        """

    @abstractmethod
    def worst(self, prefix: Sequence, n: int, tokens: int | None, scope: Scope) -> Usage:
        """Logical worst case of n samples of at most `tokens` tokens each."""

    def most(self, prefix: Sequence, until: Until) -> int | None:
        """New tokens that one sample may have; None if they cannot be limited."""
        return None

    def remember(self, prefix: Sequence, scope: Scope, rows: list[Row]) -> None:
        """Note in the logical prefix cache what the rows hold."""

    def _sequence(self, prefix: Sequence, row: Row) -> Sequence:
        data = row.payload
        assert data is not None
        ids, scores = data.get("ids"), data.get("scores")
        by_token = {name: tuple(data[name]) for name in BY_TOKEN if data.get(name) is not None}
        tokenizer = self.tokenizer_fingerprint
        result = prefix.extend(
            data["text"],
            tokens=TokenIds(tuple(ids), tokenizer) if ids is not None and tokenizer is not None else None,
            logprob=data.get("logprob"),
            **by_token,
            log_mass=data.get("log_mass"),
            finish=data.get("finish"),
            cut=data.get("cut", False),
            step_end=data.get("step_end"),
            thought=thought_of(data),
        )
        if scores:
            result = dataclasses.replace(result, scores={k: Score(**v) for k, v in scores.items()})
        if row.status == "truncated":
            result = dataclasses.replace(result, finish="length", exhausted=True)
        return result


def payload(sample: Sample, scores: Mapping[str, Score] | None = None) -> dict[str, Any]:
    """A sample as JSON, without what is empty."""
    data: dict[str, Any] = {"text": sample.text}
    if sample.ids is not None:
        data["ids"] = list(sample.ids)
    for name in ("logprob", "log_mass", "finish", "step_end"):
        if getattr(sample, name) is not None:
            data[name] = getattr(sample, name)
    for name in BY_TOKEN:
        if getattr(sample, name) is not None:
            data[name] = list(getattr(sample, name))
    if sample.cut:
        data["cut"] = True
    if (thought := sample.thought) is not None:
        given = dataclasses.asdict(thought)
        data["thought"] = {k: v for k, v in given.items() if v is not None and (k, v) != ("ended", True)}
    if scores:
        data["scores"] = {k: {name: getattr(v, name) for name in OF_SCORE} for k, v in scores.items()}
    return data


def thought_of(data: Mapping[str, Any]) -> Thought | None:
    """The thought in a payload."""
    return None if data.get("thought") is None else Thought(**data["thought"])


class EngineGenerator(Primitive):
    """Decodes with an engine under fixed sampling parameters.

    price: of the engine's tokens; None if the engine bills and the price is unknown. An engine that can tell before the
    first request that parameters are wrong has a method `check(params)`, which is asked here and raises InputError.
    Raises UnsupportedError for parameters that the engine does not support.
    """

    def __init__(
        self, engine: Engine, params: SamplingParams | None = None, *, price: Price | None = FREE
    ) -> None:
        self.engine = engine
        self.params = params or SamplingParams()
        self.price = price
        self.tokenizer_fingerprint = engine.tokenizer_fingerprint
        # Of an engine that is not opened, ids may be unknown here, and yet be told when it is.
        told = getattr(engine, "tells_ids", self.tokenizer_fingerprint is not None)
        self.accepts_until = told and not self.params.thought_end
        if self.params.grammar is not None and "grammar" not in self.supports:
            raise UnsupportedError(
                f"{engine!r} cannot hold completions to a grammar; use an engine that does, such as TorchEngine"
            )
        held = self.params.grammar
        if held is not None and (held.close or not held.canonical) and "closing" not in self.supports:
            raise UnsupportedError(
                f"{engine!r} holds completions to grammars in its own way, and {held!r:.120} asks for another; use an "
                "engine that masks by itself, such as TorchEngine, or leave close and canonical as they are"
            )
        if self.params.healing and "healing" not in self.supports:
            raise UnsupportedError(f"{engine!r} heals no prompts; use TorchEngine, or leave healing off")
        if self.params.top_logprobs and "top_logprobs" not in self.supports:
            raise UnsupportedError(
                f"{engine!r} cannot keep top_logprobs={self.params.top_logprobs!r}; use an engine that can, such as "
                "TorchEngine, or leave it at 0"
            )
        if self.params.log_mass and "log_mass" not in self.supports:
            raise UnsupportedError(
                f"{engine!r} does not see what its masks leave, so that it cannot keep log_mass; use TorchEngine, or "
                "leave it off"
            )
        if (search := self.params.search) is not None:
            if "search" not in self.supports:
                raise UnsupportedError(
                    f"{engine!r} runs no {search.kind} search; use an engine that does, such as TorchEngine"
                )
            self.independent = False
        if lacking := [name for name in self.params.on if name not in self.supports]:
            drafted = lacking == ["mirostat"] and getattr(engine, "draft", None) is not None
            other = "leave out draft" if drafted else "use an engine that has it, such as TorchEngine"
            raise UnsupportedError(
                f"{engine!r} has no {lacking[0]}, and {lacking[0]}={getattr(self.params, lacking[0])!r} is asked for; "
                f"{other}, or leave it out"
            )
        if (check := getattr(engine, "check", None)) is not None:
            check(self.params)
        self._fingerprint = digest(engine.fingerprint, self.params.fingerprint).hex()
        self._said: set[str] = set()

    @property
    def supports(self) -> frozenset[str]:
        """What its engine can do beyond plain sampling."""
        # Engines of others may have been written before there was anything beyond.
        return getattr(self.engine, "supports", frozenset())

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def __repr__(self) -> str:
        return f"EngineGenerator({self.engine!r}, {self.params!r})"

    def replace(self, **changes: Any) -> EngineGenerator:
        return EngineGenerator(self.engine, self.params.replace(**changes), price=self.price)

    @property
    def chat(self) -> str | None:
        """By what its model reads messages."""
        return getattr(self.engine, "chat", None)

    def request_digest(self, prefix: Sequence, until: Until) -> bytes:
        name = super().request_digest(prefix, until)
        prompt = prefix.prompt
        if not prompt.messages or prompt.form == "text" or self.chat == CHAT_API:
            return name
        # A model's chat template may be added or changed between two runs: the same turns are another text then.
        if self.chat is None:
            return digest(name, "plain") if prompt.form == "auto" else name
        return digest(name, self.chat)

    def sends(self, prompt: Prompt) -> str | None:
        """How a prompt is sent, where it is otherwise than whoever wrote it may think."""
        if prompt.text is not None and prompt.form is None and self.chat not in (None, CHAT_API):
            return "a text is sent as plain text, without the chat template"
        if prompt.form == "auto" and self.chat is None:
            return "messages are sent as plain text, since there is no chat template"
        return None

    def _tell(self, prompt: Prompt) -> None:
        """Say so, once."""
        said = self.sends(prompt)
        if said is None or said in self._said:
            return
        self._said.add(said)
        _LOG.warning(said, extra={"engine": repr(self.engine)})
        if prompt.text is not None:
            warnings.warn(
                f"{said} of {self.engine!r}; form: chat sends it as a user's turn (in Python: Prompt.of(text, "
                "form='chat'), or messages; for prompts that a strategy writes, chat: true), and form: text says that "
                "plain text is meant",
                stacklevel=2,
            )

    def most(self, prefix: Sequence, until: Until) -> int | None:
        room = self.params.max_tokens - self._length(prefix)
        if isinstance(until, Tokens):
            room = min(room, until.count)
        elif isinstance(until, Step) and until.max_tokens is not None:
            room = min(room, until.max_tokens)
        return room

    def check(self, prefix: Sequence, n: int, start: int, until: Until) -> None:
        if self.tokenizer_fingerprint is None and until is not None:
            raise UnsupportedError(
                f"{self.engine!r} has no token ids, so what a prefix has used of max_tokens is unknown; "
                "generate to the end, or use an engine that counts"
            )
        if self.params.thought_end and until is not None:
            raise UnsupportedError(
                f"thought_end={self.params.thought_end!r} tells thought and answer of a whole completion apart, and "
                f"{until!r} ends before; leave thought_end out, so that the text holds both, or generate to the end"
            )
        super().check(prefix, n, start, until)
        if self.params.healing and until is not None and not prefix.text:
            raise UnsupportedError(
                f"healing rewrites the last tokens of the prompt, which a step or block such as {until!r} would have "
                "to count; generate to the end, or leave healing off"
            )
        if (search := self.params.search) is not None and start + n > search.most:
            raise InputError(
                f"n={n!r} from start={start!r}: a {search.kind} search finds {search.most} sequences at most; ask for "
                "fewer, or widen it"
            )

    def _length(self, prefix: Sequence) -> int:
        """Tokens of the completion so far, ancestors included; the bytes of its text bound them without a tokenizer."""
        if not prefix.text and prefix.thought is None:
            return 0
        if prefix.tokens is not None and prefix.tokens.tokenizer == self.tokenizer_fingerprint:
            return len(prefix.tokens.ids)
        if self.tokenizer_fingerprint is None:
            return len(prefix.text.encode("utf-8", "surrogatepass")) + self._thought_tokens(prefix)
        return len(self.engine.encode(prefix.text)) + self._thought_tokens(prefix)

    def _count_thought(self, sample: Sample) -> Sample:
        """The tokens of its thought, where its ids are all thought, or begin with those that write it."""
        thought, ids = sample.thought, sample.ids
        if thought is None:
            return sample
        known = thought.tokens
        if not thought.ended and (self.params.search is not None or self.params.healing):
            # What was decoded are other rows too, or tokens of the prompt.
            known = None if ids is None else len(ids) + (sample.finish in ("eos", "stop"))
        elif known is None and ids is not None:
            own = self.engine.encode(thought.written or "")
            known = len(own) if ids[: len(own)] == own else None
        return dataclasses.replace(sample, thought=dataclasses.replace(thought, tokens=known))

    def _thought_tokens(self, prefix: Sequence) -> int:
        """Tokens of its thought; where nobody counted them, as many as it has bytes at most."""
        thought = prefix.thought or Thought(tokens=0)
        if thought.tokens is not None:
            return thought.tokens
        return len((thought.written or thought.text or "").encode("utf-8", "surrogatepass"))

    async def sample(
        self, prefix: Sequence, items: list[Item], until: Until, cap: int | None, scope: Scope, ended: Ended
    ) -> list[Outcome]:
        self._tell(prefix.prompt)
        room = self.params.max_tokens - self._length(prefix)
        ranks: tuple[int, ...] = ()
        seeds = tuple(scope.seed(item) for item in items)
        if self.params.search is not None:
            # Whatever is asked for, the search is the same one.
            ranks = tuple(item.index for item in items)
            seeds = (scope.seed(dataclasses.replace(items[0], index=0)),) * len(items)
        most = room if cap is None else min(room, cap)
        told = Told(self, prefix, cap, scope, ended, min(most, self.most(prefix, until) or most))
        request = GenerateRequest(
            prefix,
            seeds,
            self.params,
            max_tokens=most,
            until=until,
            ranks=ranks,
            heard=told.hear,
            begin=told.begin,
            written=ended.written,
        )
        told.shares = request.shares
        whole = UNTOLD
        if getattr(self.engine, "tells_attempts", False):
            told.apart()
        elif self.bills:
            whole = await told.begin(range(len(seeds)))
        try:
            answer = await watch_answer(
                self.engine, self.engine.generate(request), lambda: len(request.ended)
            )
        except BaseException as error:
            if isinstance(error, InputError) and not isinstance(error, PluginError):
                whole.free()
            told.salvage(request)
            raise
        return told.outcomes(answer)

    def part_of(self, prefix: Sequence) -> Part:
        """With `thought_end`, both are known once the text holds it; a thought that was begun is told when whole."""
        end = self.params.thought_end
        if not end or has_begun(prefix):
            return undivided

        def part(text: str) -> tuple[Thought | None, str] | None:
            if prefix.thought is not None or end not in text:
                return None
            sample = split_thought(Sample(text, None, None), end)
            return sample.thought, sample.text

        return part

    @property
    def bills(self) -> bool:
        """Whether somebody may ask for money: attempts are on disk before they begin."""
        return self.price is not FREE or getattr(self.engine, "bills", False)

    def at_most(self, prefix: Sequence, n: int, tokens: int) -> Usage:
        """What one request for n samples may cost physically: no cache of the engine's is relied on."""
        ids = self.engine.render(prefix)
        total = most_tokens(prefix) if ids is None else len(ids)
        rows = 1 if self.params.search is None else self.params.search.rows
        return dataclasses.replace(self._usage(total, 0, max(n, rows) * tokens), calls=n)

    def charge(self, prefix: Sequence, answer: Generated, scope: Scope) -> tuple[int | None, int | None]:
        """Logical prefix tokens of the request: new to this problem, and paid for before."""
        total = answer.prefix_tokens
        if total is None:
            return None, None
        cache = scope.prefixes(self.engine.fingerprint)
        if answer.prefix_ids is not None:
            known = cache.add(answer.prefix_ids)
        else:
            text = letters(prefix)
            known = total * cache.add(text) // len(text)
        return total - known, known

    def outcome(
        self,
        sample: Sample,
        total: int | None,
        head: tuple[int | None, int | None] | None,
        share: Share,
        cap: int | None,
        begun: bool = False,
    ) -> Outcome:
        """begun: the prefix has a completion already, which no thought begins.

        total: tokens of the prefix. head: those that this sample pays for, new and known, if it is the one that does.
        share: those that were computed and read from a cache for it, physically (`Share`).

        A budget cannot be kept with what nobody has counted: where one has cut the request short, it is the most.
        """
        if (end := self.params.thought_end) and sample.thought is None and not begun:
            sample = self._count_thought(split_thought(sample, end))
        if cap is not None and sample.generated is None:
            sample = dataclasses.replace(sample, generated=cap)
        prefilled, cached = head or (None if total is None else 0, total)
        usage = dataclasses.replace(self._usage(prefilled, cached, sample.generated), forced=sample.forced)
        run = sample.generated if sample.computed is None else sample.computed
        run = run if share[3] is None else share[3]
        physical = Usage(prefilled=share[0], cached=share[1], generated=run, calls=1, forced=sample.forced)
        if self.price is not FREE:
            physical = dataclasses.replace(physical, money=self._price(physical, share[2]))
        ended = sample.finish in ("eos", "stop") or sample.step_end is not None
        truncated = cap is not None and not ended and (sample.generated or 0) >= cap
        if self.params.search is None:
            return Outcome(payload(sample), usage, physical, truncated)
        # With more room another sequence might have won.
        score = Score(math.exp(min(sample.score or 0.0, 0.0)), raw=sample.score)
        return Outcome(payload(sample, {self.params.search.kind: score}), usage, physical, cap is not None)

    def _price(self, physical: Usage, read: int | None) -> float | None:
        """The price of what was computed; where cached tokens cost what others cost, they need not be told apart."""
        price = self.price
        if price is None or physical.generated is None:
            return None
        if price.cached not in (None, price.prompt):
            return price.of(physical)
        total = 0 if not price.prompt else read
        return None if total is None else price.of(Usage(prefilled=total, generated=physical.generated))

    def _usage(self, prefilled: int | None, cached: int | None, generated: int | None) -> Usage:
        # The rows of a search grow side by side, each behind the prefix.
        rows = 1 if self.params.search is None else self.params.search.rows
        exact: float | None = None
        simple: float | None = None
        shape = self.engine.shape
        if shape is not None and prefilled is not None and cached is not None and generated is not None:
            total = prefilled + cached
            each, longer = divmod(generated, rows)
            exact = (rows - longer) * decode_flops(shape, each, total)
            if longer:
                exact += longer * decode_flops(shape, each + 1, total)
            if prefilled:
                exact += prefill_flops(shape, total, cached)
            simple = flops_2n(shape, prefilled + generated)
        usage = Usage(prefilled, cached, generated, flops=exact, flops_2n=simple)
        if self.price is FREE:
            return usage
        return dataclasses.replace(usage, money=self.price.of(usage) if self.price else None)

    def worst(self, prefix: Sequence, n: int, tokens: int | None, scope: Scope) -> Usage:
        assert tokens is not None
        ids = self.engine.render(prefix)
        if ids is None:
            total, known = most_tokens(prefix), 0
        else:
            total, known = len(ids), scope.prefixes(self.engine.fingerprint).count_known(ids)
        if self.params.search is not None:
            # All of it is paid for with the first sample.
            rows = self.params.search.rows
            return dataclasses.replace(self._usage(total - known, known, rows * tokens), calls=n)
        first = self._usage(total - known, known, tokens)
        if n == 1:
            return dataclasses.replace(first, calls=1)
        other = self._usage(0, total, tokens)
        return Usage(
            prefilled=first.prefilled,
            generated=n * tokens,
            calls=n,
            flops=_plus(first.flops, other.flops, n - 1),
            flops_2n=_plus(first.flops_2n, other.flops_2n, n - 1),
            money=_plus(first.money, other.money, n - 1),
        )

    def remember(self, prefix: Sequence, scope: Scope, rows: list[Row]) -> None:
        cache = scope.prefixes(self.engine.fingerprint)
        head = self.engine.render(prefix)
        for row in rows:
            assert row.payload is not None
            if head is None:
                cache.note(letters(prefix) + _letters(row.payload["text"], thought_of(row.payload)))
            else:
                # The last token was decoded and never fed back: whoever goes on from here pays for it.
                ids = row.payload.get("ids", ())
                count = (row.usage.generated or 1) - 1
                if self.params.search is not None or self.params.healing:
                    # What was decoded are other rows too, or tokens of the prompt.
                    count = len(ids) - (row.payload.get("finish") != "eos")
                cache.note((*head, *ids)[: len(head) + max(count, 0)])


def most_tokens(prefix: Sequence) -> int:
    """Tokens of a prefix and its tools at most: each holds at least one byte; templates add a few per message."""
    return len(letters(prefix)) + tool_bytes(prefix.prompt) + 16 * (1 + len(prefix.prompt.messages))


def letters(prefix: Sequence) -> bytes:
    """The bytes of a rendered prefix, for engines that have no token ids."""
    parts = [f"{m.role}\n{m.content}\n" for m in prefix.prompt.messages]
    head = prefix.prompt.text or "".join(parts)
    return head.encode("utf-8", "surrogatepass") + _letters(prefix.text, prefix.thought)


def _letters(text: str, thought: Thought | None) -> bytes:
    before = "" if thought is None else thought.written or thought.text or ""
    return (before + text).encode("utf-8", "surrogatepass")


def split_thought(sample: Sample, end: str) -> Sample:
    """The sample with what it has up to `end` as its thought; blanks around both are no part of either.

    What would open such a thought, `end` without its slash, is left out where the text begins with it. A sample that
    never comes to `end` is all thought if its length ended it, or if it opens one; else it has none.
    """
    opening = end.replace("/", "", 1)
    head, found, rest = sample.text.partition(end)
    opened = opening != end and head.lstrip().startswith(opening)
    if not found and not opened and sample.finish != "length":
        return sample
    inner = head.lstrip().removeprefix(opening) if opened else head
    text = rest.lstrip()
    return dataclasses.replace(
        sample,
        text=text,
        thought=Thought(
            inner.strip(), None if found else sample.generated, sample.text.removesuffix(text), bool(found)
        ),
    )


def _plus(first: float | None, other: float | None, times: int) -> float | None:
    return None if first is None or other is None else first + times * other
