"""The laws of engines hold for ours, and find the faults of broken ones."""

from __future__ import annotations

import asyncio
import math
from collections import abc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any, Self

import pytest

from metagen.errors import BudgetExhausted, EngineError, InputError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.engine import (
    Engine,
    Evaluated,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    Sample,
)
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.primitive import EngineGenerator
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence, Tokens
from metagen.testing import EngineLaws, GeneratorLaws
from metagen.testing.asking import FEATURES

TOKENS = ("a", "b", "ab", "c", "é", "\n", "$")


def table(prompt: str, done: tuple[str, ...]) -> list[float]:
    """No two tokens are equally probable, and the longer a text is the sooner it ends."""
    place = sum((i + 1) * TOKENS.index(token) for i, token in enumerate(done)) + 3 * len(prompt) + len(done)
    weights = [1.0 + (place * (i + 2)) % 7 + 0.01 * i for i in range(len(TOKENS) - 1)]
    weights.append(0.4 * len(done))
    return [weight / sum(weights) for weight in weights]


class Exact(EngineLaws):
    """The laws as they are tried on engines over the table, sound and broken ones."""

    tolerance = 1e-9
    many = 400
    kind: type[EnumerableEngine] = EnumerableEngine
    delay = 0.0

    def make(self) -> Engine:
        return self.kind(TOKENS, table, name="laws", max_context=200, delay=self.delay)

    def decode(self, engine: Engine, ids: abc.Sequence[int]) -> str:
        assert isinstance(engine, EnumerableEngine)
        return EnumerableEngine.decode(engine, ids)


class TestEnumerableEngine(Exact):
    pass


class TestEnumerableEngineThatTakesItsTime(Exact):
    delay = 0.0005


class TextOnly:
    """As a server is that gives texts and no more."""

    tokenizer_fingerprint: str | None = None
    supports: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._inner = EnumerableEngine(TOKENS, table, name="laws")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    def render(self, prefix: Sequence) -> None:
        return None

    async def generate(self, request: GenerateRequest) -> Generated:
        params = request.params
        if params.stop_token_ids or params.ignore_eos or params.logprobs:
            raise UnsupportedError(f"a server of texts cannot do {params!r}")
        # What the inner engine would tell of is more than this one has.
        answer = await self._inner.generate(replace(request, ended={}, heard=None, written=None))
        return Generated(tuple(Sample(s.text, None, None, finish=s.finish) for s in answer.samples))

    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        raise UnsupportedError("a server of texts reads no log-probabilities")


class TestEngineOfTextsAlone(EngineLaws):
    many = 400
    without = frozenset(FEATURES) - {"seeds"}

    def make(self) -> Engine:
        return TextOnly()


class TestTorchEngine(EngineLaws):
    """Of two prompts it is sure, of two it is not."""

    prompts = (
        "Q:a=81/9;b=a+7;c=b-2;c?\nS:\na=81/9=",
        "Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=",
        "Q:a=5",
        "Q:",
    )
    flips = 0.02
    most = 40
    many = 400

    def make(self) -> Engine:
        return TorchEngine("tiny-0.1m", threads=1)


class TestTorchEngineWithoutCompiledSteps(TestTorchEngine):
    @pytest.fixture(autouse=True)
    def by_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("METAGEN_COMPILED", "off")


class TestGeneratorOfAnEngine(GeneratorLaws):
    begun = "ab"

    def make(self) -> AbstractContextManager[Generator]:
        @contextmanager
        def opened() -> Iterator[Generator]:
            with EnumerableEngine(TOKENS, table, name="laws") as engine:
                yield engine.generator()

        return opened()


class TestGeneratorOfAnEngineOfTexts(GeneratorLaws):
    """It says that it cannot be asked for pieces, since nobody counts what a piece has used."""

    begun = "ab"

    def make(self) -> AbstractContextManager[Generator]:
        @contextmanager
        def opened() -> Iterator[Generator]:
            with TextOnly() as engine:
                generator = EngineGenerator(engine)
                assert not generator.accepts_until
                yield generator

        return opened()


# -- broken engines ----------------------------------------------------------------------------------


def asks(change: Callable[[GenerateRequest], GenerateRequest]) -> type[EnumerableEngine]:
    """An engine that answers another request."""

    class Asks(EnumerableEngine):
        async def generate(self, request: GenerateRequest) -> Generated:
            return await super().generate(change(request))

    return Asks


def answers(change: Callable[[GenerateRequest, Generated], Generated]) -> type[EnumerableEngine]:
    """An engine that gives another answer."""

    class Answers(EnumerableEngine):
        async def generate(self, request: GenerateRequest) -> Generated:
            return change(request, await super().generate(request))

    return Answers


def samples(change: Callable[[GenerateRequest, Sample], Sample]) -> type[EnumerableEngine]:
    """An engine that gives other samples."""
    return answers(lambda r, answer: replace(answer, samples=tuple(change(r, s) for s in answer.samples)))


def params(**changes: Any) -> type[EnumerableEngine]:
    """An engine that knows better how to decode."""
    return asks(lambda request: replace(request, params=request.params.replace(**changes)))


def reads(
    change: Callable[[list[EvaluateRequest], list[Evaluated]], list[Evaluated]],
) -> type[EnumerableEngine]:
    """An engine that reads something else."""

    class Reads(EnumerableEngine):
        async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
            return change(requests, await super().evaluate(requests))

    return Reads


def first_twice(request: GenerateRequest, answer: Generated) -> Generated:
    return replace(answer, samples=(answer.samples[0], *answer.samples[:-1]))


def one_too_few(request: GenerateRequest, answer: Generated) -> Generated:
    return replace(answer, samples=answer.samples[:-1] or answer.samples)


def by_length(request: GenerateRequest, answer: Generated) -> Generated:
    return replace(answer, samples=tuple(sorted(answer.samples, key=lambda s: len(s.text))))


def ids_of_the_first(request: GenerateRequest, answer: Generated) -> Generated:
    return replace(answer, samples=tuple(replace(s, ids=answer.samples[0].ids) for s in answer.samples))


def without_the_end(request: GenerateRequest, sample: Sample) -> Sample:
    return replace(sample, generated=len(sample.ids or ()))


def with_the_stop_text(request: GenerateRequest, sample: Sample) -> Sample:
    return replace(sample, text=sample.text + request.params.stop[0]) if sample.finish == "stop" else sample


def with_the_ids_of_the_stop_text(request: GenerateRequest, sample: Sample) -> Sample:
    return replace(sample, ids=(*(sample.ids or ()), 0)) if sample.finish == "stop" else sample


def ends_before_the_delimiter(request: GenerateRequest, sample: Sample) -> Sample:
    return replace(sample, step_end=sample.step_end - 1) if sample.step_end else sample


def finished_at_the_delimiter(request: GenerateRequest, sample: Sample) -> Sample:
    return replace(sample, finish="stop") if sample.step_end else sample


def finished_where_it_was_cut(request: GenerateRequest, sample: Sample) -> Sample:
    return replace(sample, finish="length") if sample.cut else sample


def sum_of_the_text_alone(request: GenerateRequest, sample: Sample) -> Sample:
    each = sample.token_logprobs
    return sample if each is None else replace(sample, logprob=sum(each[: len(sample.ids or ())]))


def of_the_adapted_model(request: GenerateRequest, sample: Sample) -> Sample:
    each = tuple(2 * value for value in sample.token_logprobs or ())
    return replace(sample, token_logprobs=each, logprob=sum(each)) if each else sample


def confidence_of_what_was_drawn(request: GenerateRequest, sample: Sample) -> Sample:
    each = sample.token_confidences
    return sample if each is None else replace(sample, token_confidences=tuple(2 * c for c in each))


def longer_block(request: GenerateRequest) -> GenerateRequest:
    until = request.until
    return replace(request, until=Tokens(until.count + 1)) if isinstance(until, Tokens) else request


def one_seed_for_all(request: GenerateRequest) -> GenerateRequest:
    return replace(request, seeds=(request.seeds[0],) * len(request.seeds))


def seeds_of_32_bits_and_few(request: GenerateRequest) -> GenerateRequest:
    return replace(request, seeds=tuple(seed % 3 for seed in request.seeds))


NEW = count(10**6)


def seeds_of_its_own(request: GenerateRequest) -> GenerateRequest:
    return replace(request, seeds=tuple(next(NEW) for _ in request.seeds))


def seeds_by_place(request: GenerateRequest) -> GenerateRequest:
    return replace(request, seeds=tuple(seed + i for i, seed in enumerate(request.seeds)))


def temperature_of_1(request: GenerateRequest) -> GenerateRequest:
    if not request.params.temperature:
        return request
    return replace(request, params=request.params.replace(temperature=1.0))


class StopsInItsOwnTextAlone(EnumerableEngine):
    """Does not see a stop text that began in what it goes on with."""

    async def generate(self, request: GenerateRequest) -> Generated:
        free = replace(request, params=request.params.replace(stop=()))
        answer = await super().generate(free)
        found = [
            [s.text.index(stop) for stop in request.params.stop if stop in s.text] for s in answer.samples
        ]
        return replace(answer, samples=tuple(
            replace(s, text=s.text[: min(at)], finish="stop") if at else s
            for s, at in zip(answer.samples, found, strict=True)
        ))  # fmt: skip


class SharedState(EnumerableEngine):
    """Draws by how many run beside it."""

    running = 0

    async def generate(self, request: GenerateRequest) -> Generated:
        self.running += 1
        try:
            await asyncio.sleep(0)
            seeds = tuple(seed + self.running for seed in request.seeds)
            return await super().generate(replace(request, seeds=seeds))
        finally:
            self.running -= 1


class UnknownIsNothing(EnumerableEngine):
    async def generate(self, request: GenerateRequest) -> Generated:
        return replace(await super().generate(request), prefilled=0, cached=0)


class CountsThePrefixOnce(EnumerableEngine):
    async def generate(self, request: GenerateRequest) -> Generated:
        answer = await super().generate(request)
        return replace(answer, prefilled=answer.prefix_tokens, cached=0)


class NeverCaches(EnumerableEngine):
    def _read(self, ids: tuple[int, ...], most: int | None = None) -> int:
        return 0


class ForgetsToCount(EnumerableEngine):
    async def generate(self, request: GenerateRequest) -> Generated:
        answer = await super().generate(request)
        self.stats.cached -= answer.cached or 0
        return answer


class BeginsAnew(EnumerableEngine):
    """Forgets what was begun, and says that it did not."""

    async def generate(self, request: GenerateRequest) -> Generated:
        answer = await super().generate(replace(request, prefix=Sequence.of(request.prefix.prompt)))
        return replace(answer, prefix_ids=self.render(request.prefix))


class TokenisesAgain(EnumerableEngine):
    def render(self, prefix: Sequence) -> tuple[int, ...]:
        return super().render(replace(prefix, tokens=None))


class TrustsForeignIds(EnumerableEngine):
    def render(self, prefix: Sequence) -> tuple[int, ...]:
        own = prefix.tokens and replace(prefix.tokens, tokenizer=self.tokenizer_fingerprint)
        return super().render(replace(prefix, tokens=own))


class OverlooksTheForm(EnumerableEngine):
    def render(self, prefix: Sequence) -> tuple[int, ...]:
        turns = replace(prefix.prompt, form=None) if prefix.prompt.messages else prefix.prompt
        return super().render(replace(prefix, prompt=turns))


class ClaimsATemplate(EnumerableEngine):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.chat = "template"


class SwallowsCancellation(EnumerableEngine):
    async def generate(self, request: GenerateRequest) -> Generated:
        try:
            return await super().generate(request)
        except asyncio.CancelledError:
            return Generated(tuple(Sample("", (), 0) for _ in request.seeds))


class KeepsPlaces(EnumerableEngine):
    """Has few places, and those of the cancelled are never free again."""

    places = 30

    async def generate(self, request: GenerateRequest) -> Generated:
        while not self.places:  # noqa: ASYNC110 - it waits in vain
            await asyncio.sleep(0.001)
        self.places -= 1
        answer = await super().generate(request)
        self.places += 1
        return answer


class KeepsTheUnfinished(EnumerableEngine):
    async def generate(self, request: GenerateRequest) -> Generated:
        try:
            return await super().generate(request)
        except asyncio.CancelledError:
            request.ended.update({i: Sample("", (), 0) for i in range(len(request.seeds))})
            raise


class KeepsUnderOtherNumbers(EnumerableEngine):
    async def generate(self, request: GenerateRequest) -> Generated:
        try:
            return await super().generate(request)
        except asyncio.CancelledError:
            kept = list(request.ended.values())
            request.ended.clear()
            request.ended.update(enumerate(kept))
            raise


class TellsUnderOtherNumbers(EnumerableEngine):
    async def generate(self, request: GenerateRequest) -> Generated:
        if (heard := request.heard) is not None:
            request = replace(request, heard=lambda i, s, n: heard((i + 1) % len(request.seeds), s, n))
        return await super().generate(request)


def tells(change: Callable[[str], str], more: int = 0) -> type[EnumerableEngine]:
    """An engine that tells other texts, or those of the sample so many numbers further."""

    def other(request: GenerateRequest) -> GenerateRequest:
        if (written := request.written) is None:
            return request
        n = len(request.seeds)
        return replace(request, written=lambda i, text: written((i + more) % n, change(text)))

    return asks(other)


class GoesOnTelling(EnumerableEngine):
    async def generate(self, request: GenerateRequest) -> Generated:
        try:
            return await super().generate(request)
        finally:
            if request.written is not None:
                asyncio.get_running_loop().call_later(0.01, request.written, 0, "")


class ClaimsToTell(EnumerableEngine):
    tells_attempts = True


class TellsTooLate(ClaimsToTell):
    async def generate(self, request: GenerateRequest) -> Generated:
        answer = await super().generate(request)
        with suppress(BudgetExhausted):
            await request.attempt(range(len(request.seeds)))
        return answer


class CallsAllFree(ClaimsToTell):
    async def generate(self, request: GenerateRequest) -> Generated:
        attempt = await request.attempt(range(len(request.seeds)))
        answer = await super().generate(request)
        attempt.free()
        return answer


class CallsItRefused(EnumerableEngine):
    """Says of what it has begun that it was never asked."""

    async def generate(self, request: GenerateRequest) -> Generated:
        try:
            return await super().generate(request)
        except (asyncio.CancelledError, EngineError):
            raise InputError("nothing was begun") from None


class OneForEquals(EnumerableEngine):
    """Runs equal requests once; who cancels one cancels all."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._running: dict[GenerateRequest, asyncio.Task[Generated]] = {}

    async def generate(self, request: GenerateRequest) -> Generated:
        if request not in self._running:
            self._running[request] = asyncio.create_task(super().generate(request))
        try:
            return await self._running[request]
        finally:
            self._running.pop(request, None)


class OneLoopOnly(EnumerableEngine):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._turn = asyncio.Lock()

    async def generate(self, request: GenerateRequest) -> Generated:
        async with self._turn:
            await asyncio.sleep(0.002)
            return await super().generate(request)


class BreaksDown(EnumerableEngine):
    """Is closed by the first request that is none."""

    async def generate(self, request: GenerateRequest) -> Generated:
        try:
            return await super().generate(request)
        except InputError:
            self.close()
            raise


class TakesAnything(EnumerableEngine):
    async def generate(self, request: GenerateRequest) -> Generated:
        return await super().generate(replace(request, max_tokens=max(1, request.max_tokens)))


class NeverCloses(EnumerableEngine):
    def close(self) -> None:
        pass


class OpenFromTheStart(EnumerableEngine):
    def _check_open(self) -> None:
        if self._state == "closed":
            super()._check_open()


class NewName(EnumerableEngine):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fingerprint += str(next(NEW))


def in_order_of_positions(requests: list[EvaluateRequest], found: list[Evaluated]) -> list[Evaluated]:
    order = [sorted(range(len(r.positions)), key=lambda i, r=r: r.positions[i]) for r in requests]  # type: ignore[misc]
    return [replace(e, values=tuple(e.values[i] for i in o)) for e, o in zip(found, order, strict=True)]


def last_first(requests: list[EvaluateRequest], found: list[Evaluated]) -> list[Evaluated]:
    return [replace(one, values=other.values) for one, other in zip(found, found[::-1], strict=True)]


def probabilities(requests: list[EvaluateRequest], found: list[Evaluated]) -> list[Evaluated]:
    return [replace(e, values=tuple(tuple(map(math.exp, row)) for row in e.values)) for e in found]


class ReadsOneTooLate(EnumerableEngine):
    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        later = [replace(r, positions=tuple(min(p + 1, len(r.ids) - 1) for p in r.positions))
                 if r.labels else r for r in requests]  # fmt: skip
        return await super().evaluate(later)


class HasScores(EnumerableEngine):
    async def evaluate(self, requests: list[EvaluateRequest]) -> list[Evaluated]:
        return await super().evaluate([replace(r, outputs=False) for r in requests])


#: What must find a fault, by the engine that has it; and what is different about the trial.
FAULTS: list[tuple[type[EnumerableEngine], str, dict[str, Any]]] = [
    (answers(first_twice), "each_seed_has_its_own_sample_in_the_order_of_seeds", {}),
    (answers(one_too_few), "each_seed_has_its_own_sample_in_the_order_of_seeds", {}),
    (answers(by_length), "each_seed_has_its_own_sample_in_the_order_of_seeds", {}),
    (asks(one_seed_for_all), "each_seed_has_its_own_sample_in_the_order_of_seeds", {}),
    (asks(seeds_by_place), "each_seed_has_its_own_sample_in_the_order_of_seeds", {}),
    (asks(seeds_by_place), "more_seeds_begin_with_the_samples_of_fewer", {}),
    (asks(seeds_of_its_own), "the_same_request_gives_the_same_samples", {}),
    (asks(seeds_of_32_bits_and_few), "samples_have_the_distribution_that_is_read", {"temperature": 1.0}),
    (SharedState, "a_sample_is_the_same_whatever_else_is_in_the_batch", {}),
    (SharedState, "thousands_ask_at_once", {}),
    (params(temperature=1.0), "temperature_0_is_greedy_whatever_the_seed", {}),
    (params(top_k=0), "temperature_0_is_greedy_whatever_the_seed", {}),
    (params(top_p=1.0), "temperature_0_is_greedy_whatever_the_seed", {}),
    (params(temperature=1.0), "samples_have_the_distribution_that_is_read", {"temperature": 0.5}),
    (params(temperature=0.5), "samples_have_the_distribution_that_is_read", {"temperature": 1.0}),
    (params(temperature=1.0), "what_is_greedy_is_the_most_probable", {}),
    (params(top_k=0), "top_k_and_temperature_narrow_what_is_drawn", {}),
    (asks(temperature_of_1), "top_k_and_temperature_narrow_what_is_drawn", {}),
    (params(top_p=1.0), "what_top_p_leaves_is_the_smallest_set_of_its_mass", {"top_p": 0.3}),
    (params(top_p=1.0), "what_top_p_leaves_is_the_smallest_set_of_its_mass", {"top_p": 0.7}),
    (StopsInItsOwnTextAlone, "a_stop_text_may_begin_in_the_completion_that_is_gone_on_with", {}),
    (params(ignore_eos=True), "a_sample_ends_by_itself_or_by_its_limit", {}),
    (params(ignore_eos=False), "end_tokens_may_be_ignored", {}),
    (samples(without_the_end), "a_sample_ends_by_itself_or_by_its_limit", {}),
    (asks(lambda r: replace(r, max_tokens=r.max_tokens + 1)), "a_sample_ends_by_itself_or_by_its_limit", {}),
    (params(stop=()), "a_stop_text_ends_the_text_and_is_not_in_it", {"length": 1}),
    (samples(with_the_stop_text), "a_stop_text_ends_the_text_and_is_not_in_it", {"length": 2}),
    (samples(with_the_ids_of_the_stop_text), "a_stop_text_ends_the_text_and_is_not_in_it", {"length": 2}),
    (params(stop_token_ids=()), "a_stop_token_ends_the_text_and_is_not_in_it", {}),
    (answers(ids_of_the_first), "a_text_is_the_decoding_of_its_ids", {}),
    (samples(ends_before_the_delimiter), "a_step_ends_behind_its_delimiter", {}),
    (samples(finished_at_the_delimiter), "a_step_ends_behind_its_delimiter", {}),
    (asks(lambda r: replace(r, until=None)), "a_step_ends_behind_its_delimiter", {}),
    (samples(finished_where_it_was_cut), "a_step_cut_by_its_length_can_be_gone_on_with", {}),
    (asks(longer_block), "a_block_has_as_many_tokens_as_were_asked_for", {}),
    (BeginsAnew, "going_on_comes_to_the_same_end_as_one_go", {"by": "blocks"}),
    (BeginsAnew, "going_on_comes_to_the_same_end_as_one_go", {"by": "steps"}),
    (TokenisesAgain, "ids_are_used_as_they_are_and_those_of_another_tokenizer_not_at_all", {}),
    (TrustsForeignIds, "ids_are_used_as_they_are_and_those_of_another_tokenizer_not_at_all", {}),
    (OverlooksTheForm, "messages_are_read_as_turns_or_as_plain_text", {}),
    (ClaimsATemplate, "messages_are_read_as_turns_or_as_plain_text", {}),
    (samples(sum_of_the_text_alone), "log_probabilities_add_up_and_are_those_of_the_raw_model", {}),
    (samples(of_the_adapted_model), "samples_have_the_log_probabilities_that_are_read_of_them", {}),
    (params(logprobs=True), "log_probabilities_add_up_and_are_those_of_the_raw_model", {}),
    (params(top_logprobs=0), "confidences_change_nothing_that_is_drawn", {}),
    (samples(confidence_of_what_was_drawn), "confidences_are_those_of_the_best_two", {}),
    (params(grammar=None), "a_grammar_holds_what_is_written", {}),
    (params(banned=()), "an_adapter_is_had_or_refused_by_name", {"name": "banned"}),
    (UnknownIsNothing, "what_a_request_read_is_its_prefix_once_for_each_sample", {}),
    (CountsThePrefixOnce, "what_a_request_read_is_its_prefix_once_for_each_sample", {}),
    (EnumerableEngine, "what_a_request_read_is_its_prefix_once_for_each_sample", {"without": {"cache"}}),
    (EnumerableEngine, "what_a_request_read_is_its_prefix_once_for_each_sample", {"without": {"counts"}}),
    (NeverCaches, "what_was_read_once_is_read_from_the_cache", {}),
    (ForgetsToCount, "the_engines_own_counters_add_up", {}),
    (reads(in_order_of_positions), "values_come_by_position_and_label_as_they_were_asked_for", {}),
    (reads(probabilities), "samples_have_the_log_probabilities_that_are_read_of_them", {}),
    (reads(last_first), "several_inputs_are_answered_as_each_alone", {}),
    (ReadsOneTooLate, "values_come_by_position_and_label_as_they_were_asked_for", {}),
    (HasScores, "what_cannot_be_read_is_refused", {}),
    (EnumerableEngine, "what_cannot_be_read_is_refused", {"without": {"evaluate"}}),
    (OneLoopOnly, "event_loops_of_several_threads_ask_at_once", {}),
    (BreaksDown, "a_bad_request_harms_no_other", {}),
    (TakesAnything, "a_bad_request_harms_no_other", {}),
    (
        SwallowsCancellation,
        "cancelled_requests_free_what_they_held_and_keep_what_had_ended",
        {"delay": 0.001},
    ),
    (
        KeepsPlaces,
        "cancelled_requests_free_what_they_held_and_keep_what_had_ended",
        {"delay": 0.001, "patience": 3.0},
    ),
    (KeepsTheUnfinished, "cancelled_requests_free_what_they_held_and_keep_what_had_ended", {"delay": 0.001}),
    (
        KeepsUnderOtherNumbers,
        "cancelled_requests_free_what_they_held_and_keep_what_had_ended",
        {"delay": 0.001},
    ),
    (TellsUnderOtherNumbers, "samples_are_told_of_as_they_end_and_the_last_by_the_answer", {}),
    (asks(lambda r: replace(r, written=None)), "a_text_grows_while_it_is_told_and_becomes_the_samples", {}),
    (EnumerableEngine, "a_text_grows_while_it_is_told_and_becomes_the_samples", {"without": {"written"}}),
    (tells(lambda text: text[-1:]), "a_text_grows_while_it_is_told_and_becomes_the_samples", {}),
    (
        tells(lambda text: text[:-1]),
        "a_text_grows_while_it_is_told_and_becomes_the_samples",
        {"without": {"written"}},
    ),
    (tells(lambda text: text + "$"), "a_text_grows_while_it_is_told_and_becomes_the_samples", {}),
    (tells(lambda text: text, more=1), "a_text_grows_while_it_is_told_and_becomes_the_samples", {}),
    (GoesOnTelling, "a_text_grows_while_it_is_told_and_becomes_the_samples", {}),
    (GoesOnTelling, "nothing_is_told_once_a_request_is_cancelled", {"delay": 0.001, "told": 3}),
    (ClaimsToTell, "attempts_are_told_before_they_begin_or_not_at_all", {}),
    (CallsAllFree, "attempts_are_told_before_they_begin_or_not_at_all", {}),
    (TellsTooLate, "without_leave_nothing_begins", {}),
    (CallsItRefused, "what_is_cut_off_stays_charged", {"delay": 0.001}),
    (CallsItRefused, "what_an_engine_fails_at_stays_charged", {"delay": 0.001}),
    (OneForEquals, "one_of_two_equal_requests_may_be_cancelled", {"delay": 0.001}),
    (
        EnumerableEngine,
        "what_it_is_without_it_refuses_or_leaves_unknown",
        {"without": {"ids", "until", "evaluate"}},
    ),
    (EnumerableEngine, "what_it_is_without_it_refuses_or_leaves_unknown", {"without": {"ignore_eos"}}),
    (EnumerableEngine, "what_it_is_without_it_refuses_or_leaves_unknown", {"without": {"until"}}),
    (EnumerableEngine, "what_it_is_without_it_refuses_or_leaves_unknown", {"without": {"sedes"}}),
    (NeverCloses, "another_of_the_same_model_is_the_same_engine", {}),
    (OpenFromTheStart, "another_of_the_same_model_is_the_same_engine", {}),
    (NewName, "another_of_the_same_model_is_the_same_engine", {}),
]


def tried(kind: type[EnumerableEngine], law: str, given: dict[str, Any]) -> None:
    """One law, on an engine of that kind."""
    given = dict(given)

    class Trial(Exact):
        without = frozenset(given.pop("without", ()))
        patience = given.pop("patience", Exact.patience)

    Trial.kind, Trial.delay = kind, given.pop("delay", 0.0)
    trial = Trial()
    with trial.make() as engine:
        getattr(trial, f"test_{law}")(engine, **given)


@pytest.mark.parametrize(("kind", "law", "given"), FAULTS)
def test_a_law_finds_the_fault(kind: type[EnumerableEngine], law: str, given: dict[str, Any]) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception, RuntimeError, TimeoutError)):
        tried(kind, law, given)


def test_a_law_says_at_once_that_nothing_is_told() -> None:
    silent = asks(lambda request: replace(request, written=None))
    with pytest.raises(AssertionError, match="0 texts were told; add 'written' to `without`"):
        tried(silent, "nothing_is_told_once_a_request_is_cancelled", {"told": 1})


def test_every_law_can_fail() -> None:
    laws = {name.removeprefix("test_") for name in dir(EngineLaws) if name.startswith("test_")}
    assert laws - {law for _, law, _ in FAULTS} == set()
