"""Thoughts that servers tell apart from answers: every shape of them, cut ones, streams, and what is sent back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import metagen as mg
from metagen.cli import app
from metagen.cost import Usage
from metagen.errors import EngineError, PromptError, UnsupportedError
from metagen.generators.openai import OpenAIEngine
from metagen.generators.openai.retries import Patience
from metagen.generators.openai.stream import Following
from metagen.journal import Row
from metagen.sequence import Message, Prompt, Score, Sequence, Thought
from metagen.strategies.reopen import reopen
from metagen.strategies.sequential.budget_forcing import BudgetForcing, Thinking, budget_forcing
from metagen.testing import run
from metagen.testing.generators import CountingJournal
from metagen.verifiers.with_thought import WithThought
from tests.generators.openai.serving import (
    KEY,
    Asked,
    Handler,
    Reply,
    Server,
    always,
    answer,
    delta,
    in_turn,
    said,
    stream,
)

PROMPT = Prompt("p", text="What is 2 + 2?")
THOUGHT = "2 + 2 is 4.\nAnswer: 5? No."


def counts(thought: Any, **more: Any) -> dict[str, Any]:
    return {"completion_tokens_details": {"reasoning_tokens": thought}} | more


def thoughtful(content: Any, finish: str = "stop", **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **fields}
    choice = said("", finish_reason=finish, message=message)
    del choice["text"]
    return choice


def ask(server: Server, prefix: Sequence | None = None, **options: Any) -> tuple[Sequence, list[Row]]:
    generating = {"max_tokens": 50} | options.pop("generator", {})
    with OpenAIEngine("m", base_url=server.url, patience=Patience(attempts=1), **options) as engine:
        generator = engine.generator(**generating)
        (sequence,), rows = run(
            lambda s: generator.generate(prefix or Sequence.of(PROMPT), scope=s), problem="p"
        )
    return sequence, rows


# -- shapes -------------------------------------------------------------------------------------------------

SHAPES: dict[str, dict[str, Any]] = {
    "vllm": thoughtful("Answer: 4", reasoning=THOUGHT),
    "vllm, both names": thoughtful("Answer: 4", reasoning=THOUGHT, reasoning_content=THOUGHT),
    "deepseek": thoughtful("Answer: 4", reasoning_content=THOUGHT),
    "deepseek, beside null": thoughtful("Answer: 4", reasoning=None, reasoning_content=THOUGHT),
    "openrouter": thoughtful(
        "Answer: 4", reasoning=THOUGHT, reasoning_details=[{"type": "reasoning.text", "text": THOUGHT, "index": 0}]
    ),
    "openrouter, details": thoughtful(
        "Answer: 4",
        reasoning=None,
        reasoning_details=[
            {"type": "reasoning.text", "text": THOUGHT[:7]},
            {"type": "reasoning.encrypted", "data": "AAAA"},
            {"type": "reasoning.text", "text": THOUGHT[7:]},
        ],
    ),
    "mistral": thoughtful([
        {"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]},
        {"type": "text", "text": "Answer: 4"},
    ]),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_thought_is_told_apart_from_the_answer(shape: str) -> None:
    with Server(always(Reply(body=answer(SHAPES[shape], new=20, **counts(14))))).open() as server:
        sequence, (row,) = ask(server)
    assert sequence.text == "Answer: 4" and sequence.finish == "eos"
    assert sequence.thought == Thought(THOUGHT, 14)
    assert row.usage.generated == 20, "thoughts are paid for like the answer"


def test_a_thought_that_is_not_shown_is_counted() -> None:
    with Server(always(Reply(body=answer(thoughtful("4"), new=20, **counts(14))))).open() as server:
        sequence, _ = ask(server)
    assert sequence.thought == Thought(None, 14)


@pytest.mark.parametrize(
    "fields", [{}, counts(0), counts(None), {"completion_tokens_details": None}, counts("x")]
)
def test_no_thought_is_none(fields: dict[str, Any]) -> None:
    body = answer(thoughtful("4", reasoning=None, reasoning_content=""), new=20, **fields)
    with Server(always(Reply(body=body))).open() as server:
        sequence, _ = ask(server)
    assert sequence.thought is None and sequence.text == "4"


def test_tokens_of_a_thought_that_nobody_counts_are_unknown() -> None:
    with Server(always(Reply(body=answer(SHAPES["deepseek"], new=20)))).open() as server:
        sequence, _ = ask(server)
    assert sequence.thought == Thought(THOUGHT, None)


@pytest.mark.parametrize(
    ("usage", "generated", "thought", "wrong"),
    [
        ({"prompt": 5, "new": 6, **counts(14, total_tokens=25)}, 20, 14, 0),  # beside the answer's
        ({"prompt": 5, "new": 20, **counts(14, total_tokens=25)}, 20, 14, 0),  # within
        ({"prompt": 5, "new": 20, "reasoning_tokens": 14}, 20, 14, 0),
        ({"prompt": 5, "new": 6, **counts(14, total_tokens=11)}, 6, None, 1),  # more than all
    ],
)
def test_counts_that_leave_thoughts_out_are_made_whole(
    usage: dict[str, Any], generated: int, thought: int | None, wrong: int
) -> None:
    with (
        Server(always(Reply(body=answer(SHAPES["vllm"], **usage)))).open() as server,
        OpenAIEngine("m", base_url=server.url) as engine,
    ):
        (one,), rows = run(
            lambda s: engine.generator(max_tokens=50).generate(Sequence.of(PROMPT), scope=s), problem="p"
        )
        assert engine.stats.extra["wrong_counts"] == wrong
    assert rows[0].usage.generated == generated and one.thought is not None and one.thought.tokens == thought


def test_a_key_in_a_thought_is_dropped_with_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOLD_KEY", KEY)
    choice = thoughtful("4", reasoning=f"They sent me {KEY}.")
    with (
        Server(always(Reply(body=answer(choice)))).open() as server,
        pytest.raises(EngineError, match="wrote the key") as caught,
    ):
        ask(server, api_key_env="TOLD_KEY")
    assert KEY not in str(caught.value)


# -- cut ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [None, ""])
@pytest.mark.parametrize("shown", [True, False])
def test_a_cut_thought_is_no_empty_answer(content: str | None, shown: bool) -> None:
    choice = thoughtful(content, "length", **({"reasoning_content": THOUGHT} if shown else {}))
    with Server(always(Reply(body=answer(choice, new=50, **counts(50))))).open() as server:
        sequence, _ = ask(server)
    assert sequence.cut_in_thought and sequence.finish == "length" and sequence.text == ""
    with (
        Server(always(Reply(body=answer(choice, new=50, **counts(50))))).open() as server,
        OpenAIEngine("m", base_url=server.url) as engine,
    ):
        vote = mg.MajorityVote(engine.generator(max_tokens=50), n=3, answer=mg.NumberRule())
        result = vote.solve(PROMPT)
    assert result.answer is not None and result.answer.key is None, "the answer in its thought is none"


def test_answers_are_read_in_the_answer_alone() -> None:
    choice = thoughtful("I give up.", reasoning=THOUGHT)
    with Server(always(Reply(body=answer(choice)))).open() as server:
        sequence, _ = ask(server)
    (read,), _ = run(lambda _: mg.NumberRule().read([sequence]), problem="p")
    assert read.key is None, "not the 5 in its thought"


# -- streams ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_a_streamed_answer_is_the_same(field: str) -> None:
    chunks = [
        delta(role="assistant", content=""),
        *(delta(None, 0, **{field: piece}) for piece in (THOUGHT[:5], THOUGHT[5:])),
        *(delta(content=piece) for piece in ("Answer", ": 4")),
        delta("stop"),
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 20, **counts(14)}},
    ]
    with Server(always(stream(*chunks))).open() as server:
        sequence, (row,) = ask(server, stream=True)
        assert server.asked[0].body["stream"] is True
        assert server.asked[0].body["stream_options"] == {"include_usage": True}
    assert (sequence.text, sequence.thought, sequence.finish) == ("Answer: 4", Thought(THOUGHT, 14), "eos")
    assert row.usage.generated == 20


def test_a_stream_of_details_and_of_several_choices() -> None:
    chunks = [
        delta(index=1, reasoning_details=[{"type": "reasoning.text", "text": "b"}]),
        delta(index=0, reasoning_details=[{"type": "reasoning.text", "text": "a"}]),
        delta(index=0, reasoning_details=[{"type": "reasoning.text", "text": "a"}]),
        delta("stop", index=0, content="A"),
        delta("length", index=1),
    ]
    with (
        Server(always(stream(*chunks))).open() as server,
        OpenAIEngine("m", base_url=server.url, stream=True, n_per_request=2) as engine,
    ):
        made, _ = run(
            lambda s: engine.generator(max_tokens=9).generate(Sequence.of(PROMPT), n=2, scope=s), problem="p"
        )
    assert [(s.text, s.thought and s.thought.text) for s in made] == [("A", "aa"), ("", "b")]
    assert made[1].cut_in_thought


@pytest.mark.parametrize(
    "reply",
    [
        stream(delta(content="4"), end=False),
        stream(delta(content="4"), {"error": {"message": "overloaded"}}),
        Reply(body=b"data: {not json\n\n"),
        Reply(body=b"data: 5\n\n"),
    ],
)
def test_a_stream_that_broke_off_is_no_answer(reply: Reply) -> None:
    with Server(always(reply)).open() as server, pytest.raises(EngineError, match="given up"):
        ask(server, stream=True)


@pytest.mark.parametrize("break_", ["\u2028", "\u2029", "\x85"])
def test_a_character_that_breaks_lines_in_texts_breaks_no_event(break_: str) -> None:
    """JSON may hold them as they are, and vLLM sends them so."""
    chunks = [delta(content=f"one{break_}"), delta("stop", content="two")]
    body = "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\r\n\r\n" for chunk in chunks).encode()
    reply = Reply(body=body, headers={"content-type": "text/event-stream"})
    with Server(always(reply)).open() as server:
        assert ask(server, stream=True)[0].text == f"one{break_}two"


@pytest.mark.parametrize("answer_in_parts", [False, True])
def test_a_stream_of_parts_is_the_same(answer_in_parts: bool) -> None:
    """As Mistral sends thoughts; the answer behind them comes as text, or in parts."""

    def say(text: str) -> Any:
        return [{"type": "text", "text": text}] if answer_in_parts else text

    thinking = [
        {"type": "thinking", "thinking": [{"type": "text", "text": p}]} for p in (THOUGHT[:5], THOUGHT[5:])
    ]
    chunks = [
        delta(role="assistant", content=""),
        *(delta(content=[piece]) for piece in thinking),
        *(delta(content=say(piece)) for piece in ("Answer", ": 4")),
        delta("stop"),
    ]
    told: list[str] = []
    with Server(always(stream(*chunks))).open() as server:
        sequence, _ = ask(server, stream=True)
        for chunk in stream(*chunks).body.splitlines():  # type: ignore[union-attr]
            Following(told.append)(chunk + b"\n")
    assert sequence.thought is not None
    assert (sequence.text, sequence.thought.text) == ("Answer: 4", THOUGHT)
    assert told == ["Answer", ": 4"]


# -- records ------------------------------------------------------------------------------------------------


def test_the_journal_keeps_thoughts_and_tells_samples_apart_by_them() -> None:
    journal, texts = CountingJournal(), iter("abcdef")

    async def handle(asked: Asked) -> Reply:
        return Reply(body=answer(thoughtful("4", reasoning=next(texts)), **counts(1)))

    with Server(handle).open() as server, OpenAIEngine("m", base_url=server.url) as engine:
        generator = engine.generator(max_tokens=9)

        async def draw(scope: mg.Scope) -> list[Sequence]:
            return await generator.generate(Sequence.of(PROMPT), n=2, scope=scope)

        first, _ = run(draw, problem="p", journal=journal)
        again, _ = run(draw, problem="p", journal=journal)
        assert len(server.asked) == 2
    assert first == again and {s.thought.text for s in first if s.thought} == {"a", "b"}
    assert len({s.digest for s in first}) == 2 and len({s.answered.digest for s in first}) == 1


FILE = """\
name: thoughts
task: {{kind: arithmetic, split: validation, levels: [1], per_level: 2}}
engines: {{hosted: {{kind: openai, model: m, base_url: {url}, stream: true}}}}
generators: {{hosted: {{engine: hosted, max_tokens: 40}}}}
strategies: {{vote: {{kind: majority}}}}
grid: {{n: [2]}}
"""


def test_a_run_exports_and_shows_thoughts(tmp_path: Path) -> None:
    met: set[str] = set()

    async def handle(asked: Asked) -> Reply:
        question = asked.body["messages"][-1]["content"]
        if question not in met:  # one of the two samples of each problem
            met.add(question)
            choice = thoughtful(None, "length", reasoning="I wonder\nand wonder")
            return Reply(body=answer(choice, new=40, **counts(40)))
        return Reply(body=answer(thoughtful("A:4\n", reasoning="It is A:7\n"), new=9, **counts(5)))

    file = tmp_path / "thoughts.yaml"
    with Server(handle).open() as server:
        file.write_text(FILE.format(url=server.url), "utf-8")
        done = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run")])
        assert done.exit_code == 0, done.output
    rows = pq.read_table(tmp_path / "run" / "candidates.parquet").to_pylist()
    assert {(row["thought"], row["thought_tokens"], row["finish"], row["answer"]) for row in rows} == {
        ("I wonder\nand wonder", 40, "length", None), ("It is A:7\n", 5, "eos", "4"),
    }  # fmt: skip
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run"), rows[0]["problem"]])
    assert shown.exit_code == 0, shown.output
    assert "thought of 40 tokens" in shown.output and "and wonder" in shown.output
    assert "cut within its thought" in " ".join(shown.output.split())
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "thinking === null" in page


# -- verifiers ----------------------------------------------------------------------------------------------


def test_process_rewards_see_a_thought_if_they_are_to() -> None:
    sequence = Sequence(PROMPT, "a\nb\n", finish="eos", thought=Thought("x\ny\n", 4))
    seen: list[Sequence] = []

    def look(one: Sequence) -> Score:
        seen.append(one)
        steps = tuple(1.0 for line in one.text.splitlines() if line)
        return Score(1.0, steps=steps)

    plain = mg.FunctionVerifier(look)
    (alone,), _ = run(lambda s: plain.score([sequence], scope=s), problem="p")
    (both,), _ = run(lambda s: WithThought(plain).score([sequence], scope=s), problem="p")
    assert alone.steps == (1.0,) * 2 and both.steps == (1.0,) * 4
    assert seen[0].thought == Thought("x\ny\n", 4), "a function sees it beside the text"
    assert seen[1].text == "x\ny\n\n\na\nb\n"
    with mg.TorchEngine("tiny-prm", threads=1) as engine:
        prm = mg.ProcessRewardModel(engine)
        (own,), rows = (
            run(lambda s: prm.score([sequence, sequence.answered], scope=s), problem="p")[0][:1],
            None,
        )
        (whole,), _ = run(lambda s: WithThought(prm).score([sequence], scope=s), problem="p")
    assert own.steps is not None and whole.steps is not None and len(whole.steps) > len(own.steps)
    assert rows is None


def test_a_judge_reads_the_answer_alone() -> None:
    asked: list[str] = []

    def write(prefix: Sequence, seed: int, index: int) -> str:
        asked.append(prefix.prompt.messages[0].content)
        return "Yes"

    sequence = Sequence(PROMPT, "It is 4.", finish="eos", thought=Thought("SECRET", 4))
    judge = mg.Judge(generator=mg.FunctionGenerator(write), samples=1)
    run(lambda s: judge.score([sequence], scope=s), problem="p")
    assert "SECRET" not in asked[0] and "It is 4." in asked[0]


def test_a_judge_whose_thought_was_cut_gives_no_verdict() -> None:
    cut = thoughtful(None, "length", reasoning="Yes, yes")
    with (
        Server(always(Reply(body=answer(cut)))).open() as server,
        OpenAIEngine("m", base_url=server.url) as engine,
    ):
        sequence = Sequence(PROMPT, "4", finish="eos")
        (one,), _ = run(lambda s: mg.Judge(engine, samples=2).score([sequence], scope=s), problem="p")
    assert (one.value, one.verdict, one.unread) == (None, "unparsable", 2)


# -- what is sent back --------------------------------------------------------------------------------------


def test_a_turn_that_is_gone_on_with_gives_the_thought_back() -> None:
    begun = Sequence(PROMPT, "So ", logprob=None, thought=Thought(THOUGHT, 14))
    with Server(always(Reply(body=answer(thoughtful("4"))))).open() as server:
        sequence, _ = ask(server, begun, dialect="vllm")
        last = server.asked[0].body["messages"][-1]
    assert last == {"role": "assistant", "content": "So ", "reasoning": THOUGHT, "reasoning_content": THOUGHT}
    assert sequence.text == "So 4" and sequence.thought == begun.thought


def test_a_turn_whose_thought_is_not_known_cannot_be_gone_on_with() -> None:
    hidden = Sequence(PROMPT, "So ", logprob=None, thought=Thought(None, 14))
    with Server(always(Reply(body=answer(thoughtful("4"))))).open() as server:
        with pytest.raises(UnsupportedError, match="does not show what it thought"):
            ask(server, hidden, dialect="vllm")
        shown = Sequence(PROMPT, "So ", logprob=None, thought=Thought("x", 14))
        with pytest.raises(PromptError, match="marks around it are not known"):
            ask(server, shown, api="completions")
        with pytest.raises(UnsupportedError, match="partial turn"):
            ask(server, shown)
        assert not server.asked
    with mg.TorchEngine("tiny-0.1m", threads=1) as engine, pytest.raises(PromptError, match="not known"):
        engine.render(shown)


def test_a_refinement_sends_the_answer_and_not_the_thought() -> None:
    words = ("It is 5.", "It is 4.")
    replies = [Reply(body=answer(thoughtful(text, reasoning="SECRET"))) for text in words]
    with Server(in_turn(*replies)).open() as server, OpenAIEngine("m", base_url=server.url) as engine:
        check = mg.FunctionVerifier(lambda s: Score(float("4" in s.text), feedback="wrong"))
        chain = mg.Refinement(engine.generator(max_tokens=20), verifier=check, rounds=1)
        result = chain.solve(Prompt("p", messages=(Message("user", "2 + 2?"),)))
        turns = server.asked[1].body["messages"]
    assert result.text == "It is 4."
    assert turns[1] == {"role": "assistant", "content": "It is 5."} and "SECRET" not in json.dumps(turns)


def test_a_cut_thought_is_never_taken_for_one_that_can_be_gone_on_with() -> None:
    cut = Sequence(PROMPT, logprob=None, thought=Thought(THOUGHT, 8, ended=False))
    within = thoughtful(None, "stop", reasoning=THOUGHT) | {"stop_reason": "\n"}
    with Server(always(Reply(body=answer(within)))).open() as server:
        with pytest.raises(UnsupportedError, match="no chat goes on within a thought"):
            ask(server, cut, dialect="vllm")
        assert not server.asked
        with OpenAIEngine("m", base_url=server.url, dialect="vllm", tokenizer="tiny-bpe") as engine:
            generator = engine.generator(max_tokens=60)
            with pytest.raises(UnsupportedError, match="ended within a thought"):
                run(lambda s: generator.generate(Sequence.of(PROMPT), until=mg.Step(), scope=s), problem="p")


# -- budget forcing -----------------------------------------------------------------------------------------


def test_budget_forcing_sees_a_cut_thought_and_forces_the_answer() -> None:
    cut = thoughtful(None, "length", reasoning=THOUGHT)
    replies = [
        Reply(body=answer(cut, new=8, **counts(8))),
        Reply(body=answer(thoughtful(" 4"), new=2)),
    ]
    with (
        Server(in_turn(*replies)).open() as server,
        OpenAIEngine("m", base_url=server.url, dialect="vllm", tokenizer="tiny-bpe") as engine,
    ):
        forcing = budget_forcing(engine.generator(max_tokens=60), end="</think>", most=8, cue="Answer:")
        result = forcing.solve(PROMPT)
        first, second = (asked.body for asked in server.asked)
    assert first["max_tokens"] == 8 and result.text == "Answer: 4"
    assert result.sequence.thought == Thought(THOUGHT, 8) and result.sequence.finish == "eos"
    assert second["messages"][-1]["content"] == "Answer:" and second["messages"][-1]["reasoning"] == THOUGHT
    assert "</think>" not in json.dumps(second["messages"])
    assert second["max_tokens"] < 60 - 8, "max_tokens counts the thought"


def test_budget_forcing_takes_an_answer_that_came_and_says_what_it_cannot_do() -> None:
    whole = Reply(body=answer(thoughtful("Answer: 4", reasoning=THOUGHT), new=8, **counts(5)))
    with (
        Server(always(whole)).open() as server,
        OpenAIEngine("m", base_url=server.url, dialect="vllm", tokenizer="tiny-bpe") as engine,
    ):
        generator = engine.generator(max_tokens=60)
        result = budget_forcing(generator, end="</think>", most=20, cue="Answer:").solve(PROMPT)
        assert result.text == "Answer: 4" and len(server.asked) == 1
        with pytest.raises(UnsupportedError, match="cannot be sent on there"):
            BudgetForcing(generator, Thinking(least=30, waits=1), end="</think>").solve(PROMPT)


# -- thoughts in the text -----------------------------------------------------------------------------------


def writes(text: str, finish: str = "stop") -> Handler:
    return always(Reply(body=answer(said(text, finish_reason=finish), new=9)))


@pytest.mark.parametrize(
    ("text", "finish", "thought", "left"),
    [
        ("<think>\nhm\n</think>\n\nA: 4", "stop", "hm", "A: 4"),
        ("hm\n</think>\n\nA: 4", "stop", "hm", "A: 4"),
        ("<think>\nhm", "length", "hm", ""),
        ("hm", "length", "hm", ""),
        ("<think>hm", "stop", "hm", ""),
        ("A: 4", "stop", None, "A: 4"),
        ("<think></think>A: 4</think>", "stop", "", "A: 4</think>"),
    ],
)
def test_a_thought_in_the_text_is_told_apart_if_it_is_to_be(
    text: str, finish: str, thought: str | None, left: str
) -> None:
    with Server(writes(text, finish)).open() as server:
        split, _ = ask(server, generator={"thought_end": "</think>"})
        plain, _ = ask(server)
    assert plain.text == text and plain.thought is None
    assert split.text == left and (split.thought.text if split.thought else None) == thought
    assert split.cut_in_thought == (finish == "length")
    assert split.written == text, "nothing that was written is lost"


def test_a_local_engine_goes_on_behind_the_thought_that_it_wrote() -> None:
    """By ids, and by text where these are gone."""
    prompt = Sequence.of(Prompt("p", text="Q:a=12+7;a?\nS:\n"))
    with mg.TorchEngine("tiny-0.5m", threads=1) as engine:
        plain = engine.generator(max_tokens=60, temperature=0.0)
        apart = engine.generator(max_tokens=60, temperature=0.0, thought_end="A:")
        (one,), _ = run(lambda s: plain.generate(prompt, scope=s), problem="p")
        (two,), _ = run(lambda s: apart.generate(prompt, scope=s), problem="p")
        assert two.thought is not None and two.thought.text and one.text == two.written
        assert two.text == one.text.partition("A:")[2].lstrip()
        assert two.thought.tokens == len(engine.encode(one.text.partition("A:")[0] + "A:"))
        assert engine.render(two) == engine.render(one)
        without = mg.Sequence(two.prompt, two.text, logprob=None, thought=two.thought)
        assert engine.render(without) == engine.render(one)
        with pytest.raises(UnsupportedError, match="thought_end='A:'"):
            run(lambda s: apart.generate(prompt, until=mg.Step(), scope=s), problem="p")


def test_a_local_thought_that_was_cut_is_gone_on_with() -> None:
    """More room, and the same words: the thought ends, and the answer is told apart again."""
    prompt = Sequence.of(Prompt("p", text="Q:a=12+7;a?\nS:\n"))
    with mg.TorchEngine("tiny-0.5m", threads=1) as engine:
        long = engine.generator(max_tokens=60, temperature=0.0, thought_end="A:")
        (whole,), _ = run(lambda s: long.generate(prompt, scope=s), problem="p")
        (cut,), _ = run(lambda s: long.replace(max_tokens=4).generate(prompt, scope=s), problem="p")
        (more,), _ = run(lambda s: long.generate(reopen(cut), scope=s), problem="p")
    assert cut.cut_in_thought and cut.text == "" and cut.thought is not None and cut.thought.tokens == 4
    assert (more.text, more.written, more.finish) == (whole.text, whole.written, whole.finish)
    assert more.thought is not None and more.thought.ended and more.tokens == whole.tokens


def test_usage_is_that_of_thought_and_answer() -> None:
    price = mg.Price(prompt=0.0, generated=1e6)
    with (
        Server(always(Reply(body=answer(SHAPES["vllm"], new=20, **counts(14))))).open() as server,
        OpenAIEngine("m", base_url=server.url, price=price) as engine,
    ):
        _, rows = run(
            lambda s: engine.generator(max_tokens=50).generate(Sequence.of(PROMPT), scope=s), problem="p"
        )
    assert Usage.sum(row.usage for row in rows).money == pytest.approx(20)
