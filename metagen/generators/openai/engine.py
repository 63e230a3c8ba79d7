"""OpenAIEngine: coroutines of any event loop on one side, one thread that talks to a server on the other."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Self, TypeVar

from annotated_types import Ge, Le, MinLen

from metagen.attempts import CURRENT, UNTOLD, Attempt, rereading
from metagen.border import checked
from metagen.cost import ModelShape, Price
from metagen.errors import BudgetExhausted, EngineError, InputError, PromptError, UnsupportedError
from metagen.generators.continuation import without_stops
from metagen.generators.engine import (
    CHAT_API,
    EngineStats,
    Evaluated,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    Sample,
    SamplingParams,
    Share,
)
from metagen.generators.loop import Loop
from metagen.generators.openai.answer import Answer, Counts, Malformed
from metagen.generators.openai.body import API, LengthField, Wording, limit, refuse_secrets
from metagen.generators.openai.copies import Copies
from metagen.generators.openai.cuts import refuse_cut
from metagen.generators.openai.dialects import DIALECTS, DialectName
from metagen.generators.openai.keys import VARIABLE, Key, address, redact
from metagen.generators.openai.limiter import Concurrency
from metagen.generators.openai.readings import Prompt, Readings, Values
from metagen.generators.openai.retries import Patience
from metagen.generators.openai.samples import Reader
from metagen.generators.openai.stream import Following
from metagen.generators.openai.transport import Ask, Refused, Transport, library
from metagen.generators.openai.vocabulary import Vocabulary
from metagen.generators.primitive import EngineGenerator, letters, most_tokens
from metagen.generators.turns import Kind
from metagen.logs import logger
from metagen.sequence import Sequence, digest
from metagen.values import Count, Expects, Size, Switch, Text

_LOG = logger(__name__)
T = TypeVar("T")
#: Characters of a reason that a warning quotes.
QUOTED: Final = 300
ServerModel = Annotated[str, MinLen(1), Expects("the name that the server gives the model")]
SeedBits = Annotated[int, Ge(0), Le(63), Expects("an integer from 0 (no seeds) to 63")]
#: Tokens that a chat template, or instructions of the server's own, may add to a prompt.
HIDDEN = 4096


@partial(checked, first=True)
class OpenAIEngine:
    """Asks a server that speaks the OpenAI API: vLLM, SGLang, llama.cpp, Ollama, or a hosted one.

    model: the name that the server gives it. base_url: the server's address; OpenAI's own if None.
    api: `completions` continue a text, `chat` answers messages (a text prompt becomes what the user says).
    dialect: what the server understands beyond the common fields; `openai` is none of it.
    tokenizer: the directory of the model's tokenizer, if it is here: completions are then asked for by ids, and
    steps can be. Without it there are no ids.
    shape: the model's config.json, for FLOPs. price: None is unknown. max_context: tokens, if it is known; Ollama's
    dialect needs it, and refuses answers to prompts that the server may have cut. With `tokenizer`, what does not fit
    is refused before it is sent; without one, other dialects use it for forecasts only.
    api_key_env: the environment variable with the key. None is OPENAI_API_KEY for OpenAI's own server, and no key for
    any other. revision: of what the server runs, a part of the fingerprint.
    n_per_request: samples of a prefix that one request may ask for, and prompts behind which labels are read; by
    default 128 in vLLM's dialect, which tells the tokens of each sample, else 1. At 1 each has a seed of its own. A
    server that refuses more than one, gives fewer than were asked for, or copies of one text, is asked for one at a
    time from then on, which is told once; copies among answers to different seeds are told too (`Copies` has the rule).
    One that tells what it read from its cache is asked for readings one by one, since of several it tells one number.
    seed_bits: seeds are below 2 to this power; 0 sends none. structured_outputs: whether grammars may be sent.
    continuation: whether a chat's partial turn can be gone on with; by default what the dialect says.
    stream: ask for answers as streams, which some servers want for long ones; they are read whole all the same.
    length_field: what bounds a completion is called so. extra_body: fields that are sent with every request, beside
    those that generators and the engine ask by.
    concurrency: requests at a time, at first and at most. patience: time-outs and attempts.

    Nothing is sent before the first request. `with engine:` runs it. Raises InputError or ModelError, which name
    the option, its value and the remedy.
    """

    #: The server asks for money: what it costs is unknown where the price is.
    bills = True
    #: Each request to the server is told before it is sent.
    tells_attempts = True
    #: Each position at which labels are read is a prompt.
    reads_apart = True

    def __init__(
        self,
        model: ServerModel,
        *,
        base_url: str | None = None,
        api: API = "chat",
        dialect: DialectName = "openai",
        tokenizer: str | Path | None = None,
        shape: str | Path | None = None,
        price: Price | None = None,
        max_context: Size | None = None,
        api_key_env: str | None = None,
        revision: Text | None = None,
        n_per_request: Count | None = None,
        seed_bits: SeedBits = 31,
        structured_outputs: Switch = False,
        continuation: Switch | None = None,
        length_field: LengthField = "max_tokens",
        stream: Switch = False,
        extra_body: Mapping[str, Any] | None = None,
        concurrency: Concurrency | None = None,
        patience: Patience | None = None,
    ) -> None:
        refuse_secrets(extra_body or {})
        library()
        self._name, self.price, self.max_context = model, price, max_context
        self._base_url = address(base_url)
        self._key = Key(api_key_env, self._base_url)
        self._each = DIALECTS[dialect].together if n_per_request is None else n_per_request
        self._chosen = n_per_request is None
        self._wording = Wording.of(
            model,
            api=api,
            dialect=dialect,
            continuation=continuation,
            structured_outputs=structured_outputs,
            seed_bits=seed_bits,
            length_field=length_field,
            extra_body=extra_body,
            stream=stream,
            max_context=max_context,
        )
        self._vocabulary = Vocabulary(tokenizer) if tokenizer is not None else None
        self.shape = ModelShape.from_config(shape) if shape is not None else None
        self.stats = EngineStats(
            extra=dict.fromkeys(
                ("prompt_tokens", "wrong_counts", "filtered", "declined", "copying", "no_logprobs"), 0.0
            )
        )
        self._patience, self._concurrency = patience or Patience(), concurrency or Concurrency()
        self._fingerprint = self._identity(revision)
        #: Whether the server has shown that it does not give several samples.
        self._singly = False
        #: Whether the answer to a reading told what was read from a cache; None before there was one.
        self._tells_cached: bool | None = None
        #: Of the choices of one answer, and of answers to different seeds.
        self._choices, self._answers = Copies(), Copies()
        self._loop = Loop(self._live, shown=repr(self))
        self._transport: Transport | None = None

    def __repr__(self) -> str:
        api, dialect = self._wording.api, self._wording.dialect.name
        return f"OpenAIEngine({self._name!r}, base_url={redact(self._base_url)!r}, api={api!r}, dialect={dialect!r})"

    def _identity(self, revision: str | None) -> str:
        """Model, API and all that shapes what it draws. Not the address: a server that moved is the same."""
        wording = self._wording
        given: dict[str, Any] = {
            "model": wording.model, "api": wording.api, "dialect": wording.dialect.name, "revision": revision,
            "extra": sorted((name, repr(value)) for name, value in wording.extra.items()),
            "tokenizer": self.tokenizer_fingerprint, "n": self._each, "seed_bits": wording.seed_bits,
        }  # fmt: skip
        return digest("openai", *(f"{name}={value!r}" for name, value in given.items())).hex()

    @property
    def name(self) -> str:
        return self._name

    @property
    def base_url(self) -> str:
        """The address that is asked."""
        return self._base_url

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def tokenizer_fingerprint(self) -> str | None:
        return self._vocabulary.fingerprint if self._vocabulary else None

    @property
    def chat(self) -> str | None:
        """By what messages become turns; None for completions where no chat template is known here."""
        if self._wording.api == "chat":
            return CHAT_API
        return self._vocabulary.chat if self._vocabulary is not None else None

    @property
    def takes_tools(self) -> bool:
        """Whether prompts may tell of tools: the chat API has a field for them."""
        return self._wording.api == "chat"

    @property
    def directory(self) -> Path | None:
        """The tokenizer's, where the model's config.json lies beside it."""
        place = self._vocabulary.directory if self._vocabulary else None
        return place if place is not None and (place / "config.json").is_file() else None

    @property
    def supports(self) -> frozenset[str]:
        return self._wording.supports

    @property
    def reads_labels(self) -> bool:
        """Whether log-probabilities of given tokens can be read."""
        return Readings(self._wording, self._vocabulary, repr(self)).possible

    @staticmethod
    def declares(tokenizer: Any = None, /, **options: Any) -> Wording:
        """What an engine with these options could do; nothing is read, and no key is needed."""
        return Wording.of(**options)

    def check(self, params: SamplingParams) -> None:
        """UnsupportedError for what the server's dialect cannot say of them."""
        self._wording.check(params)

    def generator(self, **params: Any) -> EngineGenerator:
        """A generator that decodes with this engine under these SamplingParams, at its price."""
        return EngineGenerator(self, SamplingParams(**params), price=self.price)

    def render(self, prefix: Sequence) -> tuple[int, ...] | None:
        """None without a tokenizer, and in a chat for a prefix whose thought the server has told in a field."""
        if self._vocabulary is None:
            return None
        apart = prefix.thought is not None and prefix.thought.written is None
        return None if apart and self._wording.api == "chat" else self._vocabulary.render(prefix)

    def encode(self, text: str) -> tuple[int, ...]:
        """UnsupportedError without a tokenizer."""
        if self._vocabulary is None:
            raise UnsupportedError(
                f"{self!r} has no token ids; give tokenizer= the directory of its tokenizer"
            )
        return self._vocabulary.encode(text)

    # -- requests --------------------------------------------------------------------------------

    async def generate(self, request: GenerateRequest) -> Generated:
        """Raises InputError or UnsupportedError for what cannot be asked, EngineError if the server fails."""
        if not request.seeds:
            raise InputError("a Generate request has no seeds; give one per sample")
        if request.max_tokens < 1:
            raise InputError(f"max_tokens={request.max_tokens!r}: expected an integer ≥ 1")
        if self._vocabulary is not None:
            self._vocabulary.expect("stop_token_ids", request.params.stop_token_ids)
        ids = self.render(request.prefix)
        self._check_fit(ids, request.max_tokens)
        # Servers give one sample where nothing is drawn by chance.
        each = self._each if request.params.temperature else 1
        groups = [range(i, min(i + each, len(request.seeds))) for i in range(0, len(request.seeds), each)]
        # What cannot be said is refused before anything is sent.
        self._wording.body(request, ids, request.seeds[0], len(groups[0]))
        ended: dict[int, Sample] = {}
        counts = await self._loop.run(self._all(request, ids, groups, ended))
        return self._build_answer(ids, [ended[i] for i in range(len(request.seeds))], counts)

    def _check_fit(self, ids: tuple[int, ...] | None, new: int) -> None:
        if ids is not None and not ids:
            raise PromptError("the prompt has no tokens; give it at least one character")
        if self.max_context is not None and ids is not None and len(ids) + new > self.max_context:
            raise PromptError(
                f"{len(ids)} tokens of prefix and max_tokens={new} exceed the context of {self.max_context} tokens of "
                f"{self._name!r}; shorten the prompt"
                + (
                    f" or give max_tokens ≤ {self.max_context - len(ids)}"
                    if len(ids) < self.max_context
                    else ""
                )
            )

    async def _all(
        self,
        request: GenerateRequest,
        ids: tuple[int, ...] | None,
        groups: list[range],
        ended: dict[int, Sample],
    ) -> list[Counts]:
        self.stats.requests += 1
        return await _together(self._group(request, ids, group, ended) for group in groups)

    async def _group(
        self,
        request: GenerateRequest,
        ids: tuple[int, ...] | None,
        group: range,
        ended: dict[int, Sample],
    ) -> list[Counts]:
        """The samples of one request to the server; of one for each, where it does not give several."""
        if len(group) == 1 or not self._singly:
            try:
                counts = await self._ask_group(request, ids, group, ended)
            except Refused as refusal:
                if len(group) == 1:
                    raise
                counts, why = [], str(refusal)
            else:
                why = f"it gave {len(ended.keys() & set(group))} choices where {len(group)} were asked for"
        else:
            counts, why = [], ""
        if rest := [i for i in group if i not in ended]:
            alone = [range(i, i + 1) for i in rest]
            # What it refuses one by one too is refused for another reason, which is the error.
            counts += await self._ask_group(request, ids, alone.pop(0), ended)
            self._takes_one(why)
            counts += await _together(self._ask_group(request, ids, one, ended) for one in alone)
        return counts

    def _count_unknown(self, request: GenerateRequest, samples: list[Sample]) -> None:
        """Samples whose log-probabilities were asked for and did not all come; the first time it is said."""
        most = request.params.top_logprobs
        lacking = sum(
            sample.thought is None
            and (sample.logprob is None or bool(most and sample.token_confidences is None))
            for sample in (samples if most or request.params.logprobs else ())
        )
        if lacking and not self.stats.extra["no_logprobs"]:
            warnings.warn(
                f"{self!r} gave fewer log-probabilities than it was asked for: those of such samples are unknown "
                "(stats.extra counts them as no_logprobs). llama.cpp's server leaves out tokens that end within a "
                "character; completions of SGLang's tell most probable tokens that read alike as one, and its chats "
                "tell each",
                stacklevel=2,
            )
        self.stats.extra["no_logprobs"] += lacking

    def _takes_one(self, why: str) -> None:
        """Ask for one sample at a time from now on, and say so."""
        if not self._singly:
            self._singly = True
            _LOG.warning("one sample at a time", extra={"engine": repr(self), "because": why[:QUOTED]})
            warnings.warn(
                f"{self!r} is asked for one sample or reading at a time from now on, since the server does not give "
                f"several ({why[:QUOTED]}); n_per_request: 1 says so from the start",
                stacklevel=2,
            )

    async def _ask_group(
        self,
        request: GenerateRequest,
        ids: tuple[int, ...] | None,
        group: range,
        ended: dict[int, Sample],
    ) -> list[Counts]:
        """Ask for the samples of a group by one request, and note those that come."""
        assert self._transport is not None
        reader = Reader(request, self._wording.dialect, self._vocabulary, ids)
        n, most = len(group), self._longest(request.prefix, ids)

        def read(content: bytes) -> tuple[Counts, list[Sample]]:
            answer = Answer.read(content, n)
            if (longest := max(choice.least for choice in answer.choices)) > limit(request):
                raise Malformed(
                    f"it wrote {longest} tokens or more where {limit(request)} were asked for at most"
                )
            counts = answer.counts(most, n * limit(request))
            own = counts.new, counts.thought
            if len(answer.choices) > 1:  # how many of them read the prompt from a cache, nobody says
                own, counts = (None, None), replace(counts, cached=None)
            samples = [reader.sample(choice, *own) for choice in answer.choices_in_order]
            self._count_unknown(request, samples)
            self.stats.extra["filtered"] += sum(c.finish == "content_filter" for c in answer.choices)
            self.stats.extra["declined"] += sum(c.declined for c in answer.choices)
            return counts, samples

        body = partial(self._wording.body, request, ids, request.seeds[group[0]], n)
        kind: Kind = "best" if request.params.top_logprobs else "plain"
        told: list[Attempt] = []

        async def begin() -> Attempt:
            told.append(await request.attempt(group))
            return told[-1]

        written = request.written if n == 1 else None
        listen = None if written is None else lambda: Following(partial(_tell, request, group[0]))
        ask = Ask(self._wording.api, body, read, lambda got: _size(*got), kind, begin, listen)
        counts, samples = await self._transport.ask(ask)
        if any(self._key.within(text) for sample in samples for text in _texts(sample)):
            raise EngineError(
                f"{self!r} wrote the key that it was sent into its answer, which is dropped: do not trust it"
            )
        if self._wording.dialect.cuts:
            refuse_cut(self._name, request, ids, counts.prompt, self.max_context)
        self._count(counts, samples)
        # Where nobody tells the tokens of each sample, the first has all that were generated.
        together = None if all(s.generated is not None for s in samples) else 0
        computed = None if counts.prompt is None or counts.cached is None else counts.prompt - counts.cached
        share: Share = computed, counts.cached, counts.prompt, None if together is None else counts.new
        for i, sample in zip(group, samples, strict=False):
            ended[i] = sample
            prompt = counts.prompt if ids is None else None
            request.note(i, sample, prompt, share=share if i == group[0] else (0, 0, 0, together))
        if len(samples) < n:
            told[-1].mark_answered()
        if self._chosen and len(samples) > 1 and any(sample.generated is None for sample in samples):
            self._takes_one("it tells the tokens of all choices together, and not of each")
        self._compare(request, request.seeds[group[0]], ["\0".join(_texts(sample)) for sample in samples])
        return [counts]

    def _compare(self, request: GenerateRequest, seed: int, texts: list[str]) -> None:
        """Say so, once, if the server gives copies of one sample."""
        if said := self._choices.alike(request, texts):
            self.stats.extra["copying"] += 1
            self._takes_one(f"of the choices of one answer {said}: they are copies, so begin the run anew")
        if said := self._answers.again(request, seed, texts[0]):
            self.stats.extra["copying"] += 1
            _LOG.warning("samples are copies", extra={"engine": repr(self), "because": said})
            warnings.warn(
                f"{self!r} gives copies of one sample: of answers to different seeds {said}. The server ignores "
                "`temperature`, draws by one seed of its own, or answers from a cache; votes among copies say nothing. "
                "Mend that at the server, then begin the run anew",
                stacklevel=2,
            )

    def _longest(self, prefix: Sequence, ids: tuple[int, ...] | None) -> int:
        """Tokens that a prefix can have at most: each holds a byte; templates add to messages."""
        if self._wording.api == "completions":
            return len(ids) if ids is not None else len(letters(prefix)) + 16
        return most_tokens(prefix) + HIDDEN

    def _count(self, counts: Counts, samples: list[Sample]) -> None:
        stats = self.stats
        stats.samples += len(samples)
        stats.extra["wrong_counts"] += counts.wrong
        stats.extra["prompt_tokens"] += counts.prompt or 0
        if counts.prompt is not None and counts.cached is not None:
            stats.prefilled += counts.prompt - counts.cached
            stats.cached += counts.cached
        known = [s.generated for s in samples]
        stats.generated += sum(filter(None, known)) if None not in known else counts.new or 0

    def _build_answer(
        self, ids: tuple[int, ...] | None, samples: list[Sample], counts: list[Counts]
    ) -> Generated:
        """Join samples and counts. With ids the prefix is counted by them: budgets never see a server's count of it."""
        prompts = {c.prompt for c in counts}
        told = prompts.pop() if len(prompts) == 1 else None
        prefilled = [None if c.prompt is None or c.cached is None else c.prompt - c.cached for c in counts]
        cached = [c.cached for c in counts]
        return Generated(
            tuple(samples),
            ids,
            len(ids) if ids is not None else told,
            None if None in prefilled else sum(filter(None, prefilled)),
            None if None in cached or None in prefilled else sum(filter(None, cached)),
        )

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        """UnsupportedError where the server or the dialect cannot read log-probabilities of given tokens."""
        readings = Readings(self._wording, self._vocabulary, repr(self))
        parts = [readings.parts(request) for request in requests]
        if not requests:
            return []
        attempts = CURRENT.get()
        whole = UNTOLD if attempts is None else await attempts.reading()
        try:
            return await self._loop.run(self._evaluate_all(readings, parts))
        except InputError:
            if not readings.answered:
                whole.free()
            raise

    async def _evaluate_all(
        self, readings: Readings, requests: list[list[EvaluateRequest]]
    ) -> list[Evaluated]:
        self.stats.requests += 1
        prompts = [[readings.prompts(part) for part in parts] for parts in requests]
        flat = [prompt for parts in prompts for some in parts for prompt in some]
        readings.whole = sum(prompt.length for prompt in flat)
        first: list[tuple[Values, Counts]] = []
        if self._each > 1 and len(flat) > 1:
            async with self._first:  # which alone shows how the others can be asked for
                if self._tells_cached is None:
                    first = await self._read(readings, flat[:1])
        each = 1 if self._singly or self._tells_cached else self._each
        groups = readings.groups(flat[len(first) :], each)
        answers = iter([*first, *await _together(self._readings(readings, group) for group in groups)])
        return [readings.join_answers([[next(answers) for _ in some] for some in parts]) for parts in prompts]

    async def _readings(self, readings: Readings, group: list[Prompt]) -> list[tuple[Values, Counts]]:
        """What each prompt of a group says, by one request, or one by one where the server does not take several."""
        if len(group) == 1:
            return await self._read(readings, group)
        try:
            return await self._read(readings, group)
        except Refused as refusal:
            why = str(refusal)
        # What it refuses one by one too is refused for another reason, which is the error.
        found = await self._read(readings, group[:1])
        found += await _together(self._read(readings, [prompt]) for prompt in group[1:])
        self._takes_one(why)
        return found

    async def _read(self, readings: Readings, group: list[Prompt]) -> list[tuple[Values, Counts]]:
        """What each prompt of a group says, by one request."""
        assert self._transport is not None
        tokens, n = sum(prompt.length for prompt in group), len(group)

        def read(content: bytes) -> tuple[list[Values], Counts]:
            answer = Answer.read(content, n)
            if len(answer.choices) < n:
                raise Refused(f"it gave {len(answer.choices)} choices where {n} were asked for")
            counts = answer.counts(tokens, n)
            pairs = zip(group, answer.choices_in_order, strict=True)
            return [readings.values(prompt.part, choice) for prompt, choice in pairs], counts

        kind: Kind = "labels" if group[0].part.labels is not None else "plain"
        begin = rereading(tokens / max(1, readings.whole))
        ask = Ask("completions", partial(readings.body, group), read, lambda _: None, kind, begin)
        try:
            values, counts = await self._transport.ask(ask)
        except InputError:
            raise  # refused: nothing was read
        except BaseException:
            readings.answered = True
            raise
        readings.answered = True
        self._tells_cached = counts.cached is not None
        if n > 1:  # how many of them read their prompts from a cache, nobody says
            counts = replace(counts, cached=None)
        self._count(counts, [])
        return [(value, counts) for value in values]

    # -- lifecycle -------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._loop.open()
        _LOG.info("engine opened", extra={"engine": repr(self), "fingerprint": self._fingerprint})
        if self._key.withheld:
            _LOG.warning(
                "no key is named for this address, and none is sent",
                extra={"engine": repr(self), "option": "api_key_env", "withheld": VARIABLE},
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the thread; whoever waits gets an EngineError. Closing twice is allowed."""
        if self._loop.close():
            _LOG.info("engine closed", extra={"engine": repr(self), "fingerprint": self._fingerprint})

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[None]:
        """What lives in the engine's thread."""
        self._first = asyncio.Lock()
        self._transport = Transport(
            self._base_url,
            self._key,
            model=self._name,
            patience=self._patience,
            concurrency=self._concurrency,
            stats=self.stats,
        )
        try:
            yield
        finally:
            await self._transport.close()


async def _at_once(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All side by side; the first error cancels the others, and comes when they have ended. A limit that ends one lets
    the others end, which are paid for.
    """

    async def catch_refusal(one: Coroutine[Any, Any, T]) -> T | BudgetExhausted:
        try:
            return await one
        except BudgetExhausted as refusal:
            return refusal

    asked = list(work)
    tasks = [asyncio.create_task(catch_refusal(one)) for one in asked]
    try:
        found = await asyncio.gather(*tasks)
        for one in found:
            if isinstance(one, BudgetExhausted):
                raise one
        return [one for one in found if not isinstance(one, BudgetExhausted)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for unbegun in asked:
            unbegun.close()  # of what was cancelled before it began Python would warn


async def _together(work: Iterable[Coroutine[Any, Any, list[T]]]) -> list[T]:
    """What all of them give, one after the other's."""
    return [one for some in await _at_once(work) for one in some]


def _size(counts: Counts, samples: list[Sample]) -> float:
    """The length of an answer in tokens; four letters are one where they are not counted."""
    return counts.new if counts.new is not None else sum(len(text) for s in samples for text in _texts(s)) / 4


def _texts(sample: Sample) -> tuple[str, ...]:
    return sample.text, (sample.thought.text if sample.thought else None) or ""


def _tell(request: GenerateRequest, number: int, text: str) -> None:
    """Tell of a sample's text so far. A server that was asked to keep stop texts sends them, too."""
    request.tell(number, without_stops(text, request.params.stop, request.prefix.text))
