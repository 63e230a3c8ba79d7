"""What is told of a solve while it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from metagen.budget import Budget
from metagen.cost import Usage
from metagen.errors import MetagenError
from metagen.events import Event
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.function import FunctionGenerator
from metagen.generators.spoken import Spoken
from metagen.generators.torch.engine import TorchEngine
from metagen.journal import MemoryJournal
from metagen.sequence import Sequence
from metagen.strategies.base import Result, Solved, Strategy
from metagen.strategies.chain.chain import Chain
from metagen.strategies.chain.steps import Ask, Continue
from metagen.strategies.parallel import BestOfN, MajorityVote, Sample
from metagen.strategies.tree.rebase import Rebase
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.numbers import NumberRule

PROMPT = "Q:a=12+7;b=a*3;c=b-8;c?\nS:\n"
SHORT = FunctionVerifier(lambda s: 1.0 / (1 + len(s.text)), name="short")


@pytest.fixture(scope="module")
def engine() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.5m", threads=1) as opened:
        yield opened


def saying(*texts: str) -> FunctionGenerator:
    return FunctionGenerator(lambda prompt, seed, index: texts[index % len(texts)])


def events_of(strategy: Strategy, **how: object) -> list[Event]:
    async def main() -> list[Event]:
        return [event async for event in strategy.stream(PROMPT, **how)]  # type: ignore[arg-type]

    return asyncio.run(main())


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def text_of(events: list[Event]) -> str:
    return "".join(event.text or "" for event in events if event.kind == "text")


def result_of(events: list[Event]) -> Result:
    last = events[-1]
    assert isinstance(last, Solved) and last.result is not None
    return last.result


def test_all_that_a_choice_pays_for_is_told_and_adds_up(engine: TorchEngine) -> None:
    strategy = BestOfN(engine.generator(max_tokens=100), n=6, verifier=SHORT, answer=NumberRule())
    events = events_of(strategy, seed=3)
    result = result_of(events)
    calls = [event for event in events if event.kind in ("sample", "score")]
    assert kinds(events).count("sample") == 6
    assert Usage.sum(event.usage or Usage() for event in calls) == result.usage
    assert {event.text for event in calls if event.kind == "sample"} >= {result.text}
    chosen = {event.text: event.value for event in events if event.kind == "offer"}
    assert chosen[result.text] == max(value for value in chosen.values() if value is not None)
    assert kinds(events).count("text") == 0  # none of them is the answer before one is chosen
    assert all(event.started and event.ended and event.ended >= event.started for event in calls)


@pytest.mark.parametrize("seed", range(4))
def test_a_sample_is_told_as_it_is_written(engine: TorchEngine, seed: int) -> None:
    events = events_of(Sample(engine.generator(max_tokens=100)), seed=seed)
    written = [event for event in events if event.kind == "text"]
    assert len(written) > 3 and text_of(events) == result_of(events).text
    assert kinds(events).index("text") < kinds(events).index("sample")


def test_the_last_link_of_a_chain_is_told_and_no_other(engine: TorchEngine) -> None:
    model = engine.generator(max_tokens=60)
    chain = Chain(
        {"first": Ask(saying("a=12+7"), "{prompt}"), "last": Ask(model, "Q:{first};b=a*3;b?\nS:\n")}
    )
    events = events_of(chain, seed=1)
    assert text_of(events) == result_of(events).text
    assert {event.path for event in events if event.kind == "text"} == {"0/last"}
    # A link that goes on from another one tells what that has written, too.
    chain = Chain({"first": Ask(model, "{prompt}"), "last": Continue(model, "\nA:", after="first")})
    events = events_of(chain, seed=1)
    assert "\nA:" in text_of(events) and text_of(events) == result_of(events).text


def test_several_samples_at_once_are_not_mixed(engine: TorchEngine) -> None:
    async def main() -> list[Event]:
        heard: list[Event] = []
        strategy = Sample(engine.generator(max_tokens=60))
        prefix, scope = strategy.open_call(PROMPT, None, 0, None, heard.append)
        await strategy.generate(prefix, n=3, scope=scope)
        return heard

    assert "text" not in kinds(asyncio.run(main()))


def test_what_may_begin_a_stop_string_is_held_back(engine: TorchEngine) -> None:
    events = events_of(Sample(engine.generator(max_tokens=100, stop=("\nb=19*3=58",))), seed=0)
    parts = [event.text or "" for event in events if event.kind == "text"]
    assert text_of(events) == result_of(events).text
    beginnings = ["\nb=19*3=58"[:k] for k in range(1, 10)]
    said = ""
    for part in parts[:-1]:
        said += part
        assert not any(said.endswith(beginning) for beginning in beginnings)


MARK = "</t>"


def thinking(text: str) -> EnumerableEngine:
    """Writes one text, a character a token."""
    tokens = tuple(dict.fromkeys(text))

    def table(prompt: str, done: tuple[str, ...]) -> list[float]:
        wanted = text[len(done)] if len(done) < len(text) else None
        return [float(token == wanted) for token in tokens] + [float(wanted is None)]

    return EnumerableEngine((*tokens, "$"), table, name="thinking", delay=0.001)


@pytest.mark.parametrize("opening", ["", "<t>"])
def test_an_answer_behind_a_thought_is_told_as_it_is_written(opening: str) -> None:
    with thinking(f"{opening}1+1 is 2{MARK}\n\nThe answer is 2.") as engine:
        events = events_of(Sample(engine.generator(max_tokens=100, thought_end=MARK)))
    told = [event for event in events if event.kind in ("thought", "text")]
    assert [event.text for event in told if event.kind == "thought"] == ["1+1 is 2"] == [told[0].text]
    assert text_of(events) == result_of(events).text == "The answer is 2." and len(told) > 4
    assert kinds(events).index("text") < kinds(events).index("sample")


def test_where_a_thought_may_still_end_nothing_is_told_before_the_text_is_whole() -> None:
    with thinking("no thought at all") as engine:
        events = events_of(Sample(engine.generator(max_tokens=100, thought_end=MARK)))
    assert [event.text for event in events if event.kind == "text"] == ["no thought at all"]
    assert kinds(events).index("sample") < kinds(events).index("text")


def test_nothing_is_told_behind_a_call_that_is_over() -> None:
    async def main() -> list[Event]:
        heard: list[Event] = []
        spoken = Spoken(heard.append, "0", Sequence.of("Q"))
        spoken.hear(0, "a")
        await asyncio.sleep(0)
        spoken.hear(0, "ab")
        spoken.stop()
        await asyncio.sleep(0)
        return heard

    assert [event.text for event in asyncio.run(main())] == ["a"]


def test_a_replay_tells_the_same_and_says_that_it_is_one(engine: TorchEngine) -> None:
    strategy, journal = (
        MajorityVote(engine.generator(max_tokens=60), n=4, answer=NumberRule()),
        MemoryJournal(),
    )
    first = events_of(strategy, journal=journal)
    again = events_of(strategy, journal=journal)

    def told(events: list[Event]) -> list[tuple[int, str | None, Usage | None]]:
        calls = (event for event in events if event.kind == "sample")
        return sorted((event.index, event.text, event.usage) for event in calls)

    assert told(first) == told(again)
    assert {event.cached for event in first if event.kind == "sample"} == {False}
    assert {event.cached for event in again if event.kind == "sample"} == {True}
    one = Sample(engine.generator(max_tokens=60))
    assert text_of(events_of(one, journal=journal)) == text_of(events_of(one, journal=journal)) != ""


def test_a_search_tells_its_steps(engine: TorchEngine) -> None:
    events = events_of(Rebase(engine.generator(max_tokens=80), n=4, verifier=SHORT, answer=NumberRule()))
    steps = [event for event in events if event.kind == "sample"]
    assert len({event.path for event in steps}) > 2 and kinds(events).count("score") > 2
    assert kinds(events)[-1] == "answer"


def test_what_a_limit_refuses_is_told() -> None:
    strategy = MajorityVote(saying("3", "4", "5"), n=3, answer=NumberRule())
    events = events_of(strategy, budget=Budget(calls=2))
    assert [event.refused for event in events if event.kind == "sample"] == [False, False, True]
    assert result_of(events).exhausted


def test_an_error_comes_behind_what_was_told() -> None:
    def fail(prompt: str, seed: int, index: int) -> str:
        raise ValueError("no")

    heard: list[Event] = []

    async def main() -> None:
        async for event in Sample(FunctionGenerator(fail)).stream("?"):
            heard.append(event)

    with pytest.raises(MetagenError, match="no"):
        asyncio.run(main())
    assert "answer" not in kinds(heard)


def test_who_leaves_ends_the_work(engine: TorchEngine) -> None:
    async def main() -> None:
        before = engine.stats.aborted_tokens
        generator = engine.generator(max_tokens=2000, ignore_eos=True)
        async for event in Sample(generator).stream(PROMPT):
            if event.kind == "text":
                break
        for _ in range(500):
            if engine.stats.aborted_tokens > before:
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it went on")

    asyncio.run(main())


def test_a_listener_that_fails_loses_nothing(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    heard: list[str] = []

    def listen(event: Event) -> None:
        heard.append(event.kind)
        raise RuntimeError("mine")

    strategy = MajorityVote(saying("3", "3", "5"), n=3, answer=NumberRule())
    result = strategy.solve("?", on_event=listen)
    assert result.text == strategy.solve("?").text and heard == ["sample"]
    assert "told nothing more" in caplog.text


@pytest.mark.parametrize(
    "strategy",
    [Sample(saying("7")), MajorityVote(saying("3", "3", "5"), n=3, answer=NumberRule())],
    ids=["sample", "majority"],
)
def test_emit_gets_the_answer_of_every_strategy_once(strategy: Strategy) -> None:
    heard: list[Sequence] = []
    result = strategy.solve("?", emit=heard.append)
    assert heard == [result.sequence]
