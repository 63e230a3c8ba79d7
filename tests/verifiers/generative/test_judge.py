"""A judge on engines that tell no probabilities: a hosted chat model behind real HTTP writes its verdicts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import metagen as mg
from metagen.cli import app
from metagen.errors import InputError, UnsupportedError
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.openai import OpenAIEngine
from metagen.sequence import Prompt, Score, Sequence
from metagen.testing import run
from metagen.verifiers.base import Verifier
from metagen.verifiers.generative.judge import Judge
from metagen.verifiers.generative.pairwise import PairwiseJudge, PreferenceUtility, Tournament
from metagen.verifiers.generative.question import CORRECT, PREFERENCE, RUBRIC, Question
from metagen.verifiers.generative.respondent import WritingRespondent
from metagen.verifiers.generative.written import VerdictReader
from metagen.verifiers.utility.judge import AGAINST_REFERENCE, JudgeUtility
from tests.generators.openai.model_server import serves
from tests.generators.openai.serving import Asked, Handler, Reply, Server, answer, said

PROMPT = Prompt("p", text="What is 2 + 2?")


def hosted(write: Callable[[str, int], str]) -> Handler:
    """A chat model without log-probabilities. write: from what the user says and the seed, what is answered."""

    async def handle(asked: Asked) -> Reply:
        assert asked.path.endswith("/chat/completions") and "logprobs" not in asked.body
        text = write(asked.body["messages"][-1]["content"], asked.body.get("seed", 0))
        return Reply(body=answer(said(text), prompt=9, new=5))

    return handle


def sequences(*texts: str) -> list[Sequence]:
    return [Sequence.of(PROMPT).extend(text, finish="eos") for text in texts]


def score(verifier: Verifier, *texts: str) -> list[Score]:
    return run(lambda scope: verifier.score(sequences(*texts), scope=scope.child("score")), problem="p")[0]


def solution(message: str) -> str:
    return message.partition("Solution:\n")[2].partition("\n")[0]


# -- which way ----------------------------------------------------------------------------------------------


def test_a_hosted_model_writes_and_the_judge_says_so() -> None:
    def write(message: str, seed: int) -> str:
        verdict = "Yes" if (random.Random(seed).random() < 0.75) == ("4" in solution(message)) else "No"
        return f"I checked.\nIs the answer correct (Yes/No)? {verdict}"

    with Server(hosted(write)).open() as server, OpenAIEngine("m", base_url=server.url) as engine:
        judge = Judge(engine, samples=40)
        good, bad = score(judge, "4", "5")
        assert judge.way == "samples" and "40 written verdicts" in repr(judge)
        assert len(server.asked) == 80
        assert "Yes, No" in server.asked[0].body["messages"][-1]["content"], "the form of the answer is said"
    assert good.value is not None and bad.value is not None
    assert good.value > 0.5 > bad.value and good.unread == 0


def test_one_name_on_every_engine() -> None:
    """The same words and the same call: labels where they are told, else samples."""
    wording: dict[str, Any] = {
        "template": "{task}{candidate}",
        "labels": {"Y": 1, "N": 0},
        "cue": "?",
        "join": "",
        "chat": False,
    }
    with EnumerableEngine(["Y", "N", "?", "<end>"], lambda *_: [0.9, 0.1, 0.0, 0.0], name="table") as engine:
        labels = Judge(engine, **wording)
        (read,) = score(labels, "4")
        written = Judge(engine, by="samples", samples=3, max_tokens=1, **wording)
        (counted,) = score(written, "4")
    assert (labels.way, written.way) == ("labels", "samples")
    assert read.value == pytest.approx(0.9) and counted.value in (
        0.0,
        pytest.approx(1 / 3),
        pytest.approx(2 / 3),
        1.0,
    )
    assert labels.fingerprint != written.fingerprint
    function = Judge(generator=mg.FunctionGenerator(lambda *_: "No"))
    assert function.way == "samples" and score(function, "4")[0].value == 0.0


def test_a_way_that_cannot_be_is_refused_with_the_remedy() -> None:
    engine = OpenAIEngine("m", base_url="http://localhost:9/v1", tokenizer="tiny-0.1m", dialect="vllm")
    with pytest.raises(UnsupportedError, match="by='samples'"):
        Judge(engine, by="labels")
    with pytest.raises(InputError, match="expected one of both"):
        Judge()
    with pytest.raises(InputError, match="by='logits'"):
        Judge(engine, by="logits")  # type: ignore[arg-type]
    own = OpenAIEngine(
        "m", base_url="http://localhost:9/v1", tokenizer="tiny-critic", dialect="vllm", api="completions"
    )
    assert Judge(own).way == "labels" and Judge(own).respondent.question.cue == "V:"
    for by in ("auto", "labels"):
        with pytest.raises(InputError, match="need no samples"):
            Judge(own, by=by, samples=4)
    writer = mg.FunctionGenerator(lambda *_: "Yes")
    for ignored, remedy in (({"max_tokens": 64}, "give it there"), ({"temperature": 0.0}, "give it there"),
                            ({"normalise": False}, "leave it out")):  # fmt: skip
        with pytest.raises(InputError, match=remedy):
            Judge(generator=writer, **ignored)


def test_verdicts_that_cannot_be_read_are_none_and_counted() -> None:
    said_of = {"a": "I will not judge.", "b": "Yes"}

    def write(message: str, seed: int) -> str:
        text = solution(message)
        return said_of.get(text, "Yes" if seed % 2 else "hm")

    with Server(hosted(write)).open() as server, OpenAIEngine("m", base_url=server.url) as engine:
        mute, sure, half = score(Judge(engine, samples=12), "a", "b", "c")
    assert (mute.value, mute.verdict, mute.unread) == (None, "unparsable", 12)
    assert (sure.value, sure.unread) == (1.0, 0)
    assert half.value == 1.0 and 0 < half.unread < 12, "what cannot be read is no No"


def test_what_a_hosted_judge_costs_is_not_free() -> None:
    price = mg.Price(prompt=1e6, generated=1e6)
    with (
        Server(hosted(lambda *_: "Yes")).open() as server,
        OpenAIEngine("m", base_url=server.url, price=price) as engine,
    ):
        _, rows = run(lambda s: Judge(engine, samples=2).score(sequences("4"), scope=s), problem="p")
    assert sum(row.usage.money or 0.0 for row in rows) >= 2 * 5


def test_the_critic_that_ships_judges_through_a_chat_server() -> None:
    """As a hosted model would: no ids, no log-probabilities; near what its labels' probabilities say."""
    prompt = Prompt("p", text="Q:a=12+7;a?\nS:\n")
    steps = [Sequence.of(prompt).extend(s) for s in ("a=12+7=19\nA:19\n", "a=12+7=18\nA:18\n")]
    with mg.TorchEngine("tiny-critic", threads=1) as engine:
        local = Judge(engine, critiques=16)
        question = local.respondent.question
        wording: dict[str, Any] = {
            "template": question.template, "labels": dict(question.labels), "cue": question.cue,
            "join": "", "chat": False,
        }  # fmt: skip
        with (
            Server(serves(engine)).open() as server,
            OpenAIEngine("m", base_url=server.url) as remote,
        ):
            far = Judge(remote, samples=16, max_tokens=80, **wording)
            scores, _ = run(lambda s: far.score(steps, scope=s), problem="p")
            near, _ = run(lambda s: local.score(steps, scope=s), problem="p")
    assert (local.way, far.way) == ("labels", "samples")
    for here, there in zip(near, scores, strict=True):
        assert here.value is not None and there.value is not None
        assert abs(here.value - there.value) < 0.5
    assert scores[0].value is not None and scores[1].value is not None
    assert scores[0].value > scores[1].value


def test_labels_are_read_from_a_server_that_tells_them() -> None:
    """By the same words, with the same scores, as from the engine behind it."""
    prompt = Prompt("p", text="Q:a=12+7;a?\nS:\n")
    steps = [Sequence.of(prompt).extend(s) for s in ("a=12+7=19\nA:19\n", "a=12+7=18\nA:18\n")]
    with mg.TorchEngine("tiny-critic", threads=1) as engine, Server(serves(engine)).open() as server:
        spoken: Any = {"api": "completions", "dialect": "vllm", "tokenizer": "tiny-critic"}
        with OpenAIEngine("m", base_url=server.url, **spoken) as remote:
            far = Judge(remote)
            scores, rows = run(lambda s: far.score(steps, scope=s), problem="p")
        near, _ = run(lambda s: Judge(engine).score(steps, scope=s), problem="p")
    assert far.way == "labels" and {row.kind for row in rows} == {"score"}
    assert [s.value for s in scores] == pytest.approx([s.value for s in near], abs=1e-3)


# -- pairs and utilities ------------------------------------------------------------------------------------


def test_pairs_are_compared_by_a_hosted_model() -> None:
    def write(message: str, seed: int) -> str:
        first = message.partition("Answer A:\n")[2].partition("\n")[0]
        second = message.partition("Answer B:\n")[2].partition("\n")[0]
        return f"The better answer (A/B): {'A' if len(first) > len(second) else 'B'}"

    with Server(hosted(write)).open() as server, OpenAIEngine("m", base_url=server.url) as engine:
        rates = score(Tournament(engine, samples=1), "4", "four", "it is four")
    assert [s.value for s in rates] == [0.0, 0.5, 1.0]


def test_comparisons_that_cannot_be_read_are_counted_once() -> None:
    mute = Tournament(generator=mg.FunctionGenerator(lambda *_: "both are fine"), samples=3)
    scores = score(mute, "4", "5", "6")
    assert {(s.value, s.verdict) for s in scores} == {(None, "unscored")}
    assert sum(s.unread for s in scores) == 3 * 2 * 3, "three pairs, in both orders, three times"


def test_ratings_that_cannot_be_read_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    judge = Judge(generator=mg.FunctionGenerator(lambda *_: "fine"), samples=2)
    utility = JudgeUtility(judge.about_pairs(AGAINST_REFERENCE))
    run(lambda s: utility.matrix(sequences("a", "b"), scope=s), problem="p")
    (record,) = [r for r in caplog.records if r.message == "ratings cannot be read"]
    assert (vars(record)["unread"], vars(record)["pairs"]) == (8, 4)


def test_comparisons_that_cannot_be_read_are_counted_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    writer = mg.FunctionGenerator(lambda *_: "both are fine")
    utility = PreferenceUtility(PairwiseJudge(WritingRespondent(writer, PREFERENCE, samples=2)))
    run(lambda s: utility.matrix(sequences("a", "b"), scope=s), problem="p")
    (record,) = [r for r in caplog.records if r.message == "comparisons cannot be read"]
    assert vars(record)["unread"] == 4, "one pair, in both orders, twice"


def test_a_hosted_model_rates_answers_against_each_other() -> None:
    def write(message: str, seed: int) -> str:
        reference = message.partition("Reference answer:\n")[2].partition("\n")[0]
        other = message.partition("Answer to rate:\n")[2].partition("\n")[0]
        return '{"rating": 5}' if other == reference else "Score: 2/10" if other != "?" else "no idea"

    with Server(hosted(write)).open() as server, OpenAIEngine("m", base_url=server.url) as engine:
        utility = JudgeUtility(Judge(engine, samples=1).about_pairs(AGAINST_REFERENCE))

        async def matrix(scope: mg.Scope) -> list[list[float]]:
            found = await utility.matrix(sequences("a", "b", "?"), sequences("a", "b"), scope=scope)
            return [[float(value) for value in row] for row in found]

        rows, _ = run(matrix, problem="p")
    assert rows[0] == [1.0, pytest.approx(0.2)] and rows[1] == [pytest.approx(0.2), 1.0]
    assert all(value != value for value in rows[2]), "unknown, and not 0"


FILE = """\
name: hosted
task: {{kind: arithmetic, split: validation, levels: [3], per_level: 2}}
engines:
  model: {{kind: torch, model: tiny-0.1m}}
  hosted: {{kind: openai, model: m, base_url: {url}, price: {{prompt: 0, generated: 0}}}}
generators: {{small: {{engine: model, max_tokens: 90}}}}
verifiers:
  judge: {{kind: judge, engine: hosted, samples: 2}}
  duel: {{kind: tournament, engine: hosted, samples: 1}}
strategies:
  best: {{kind: best_of_n, verifier: judge}}
  duels: {{kind: best_of_n, verifier: duel}}
  rated: {{kind: mbr, utility: {{kind: judge, cue: "Rating (1-5):"}}, judge: judge}}
grid: {{n: [4]}}
"""


def test_all_of_it_in_an_experiment_file(tmp_path: Path) -> None:
    kinds: Counter[str] = Counter()

    def write(message: str, seed: int) -> str:
        if "Answer A:" in message:
            kinds["pairs"] += 1
            return "A"
        if "Reference answer:" in message:
            kinds["ratings"] += 1
            return "Rating (1-5): 4"
        kinds["verdicts"] += 1
        return "Yes" if len(solution(message)) % 2 else "I cannot say"

    file = tmp_path / "hosted.yaml"
    with Server(hosted(write)).open() as server:
        file.write_text(FILE.format(url=server.url), "utf-8")
        done = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run")])
        assert done.exit_code == 0, done.output
    rows = pq.read_table(tmp_path / "run" / "candidates.parquet").to_pylist()
    assert {row["score.judge"] for row in rows} <= {1.0, None} and 1.0 in {row["score.judge"] for row in rows}
    silent = sum(row["verdict.judge"] == "unparsable" for row in rows)
    assert silent and silent == sum(row["score.judge"] is None and row["unread.judge"] == 2 for row in rows)
    told = " ".join(done.output.split())
    assert (
        f"judge: no score for {silent} of {len(rows)} samples (unparsable: {silent}); {2 * silent} written verdicts"
        in told
    )
    assert kinds["pairs"] and kinds["ratings"] and kinds["verdicts"] <= 2 * len(rows)


@pytest.mark.parametrize(
    "judge",
    [
        # Ids without a way to read labels: what is known before the engine opens is what it says then.
        "judge: {kind: judge, engine: told, samples: 2}",
        "judge: {kind: judge, generator: small, samples: 1, chat: false, template: '{task}{candidate}'}",
    ],
)
def test_an_estimate_knows_the_way_and_a_generator_may_judge(tmp_path: Path, judge: str) -> None:
    file = tmp_path / "hosted.yaml"
    text = FILE.format(url="http://localhost:9/v1").replace(
        "judge: {kind: judge, engine: hosted, samples: 2}", judge
    )
    told = "told: {kind: openai, model: m, base_url: 'http://localhost:9/v1', dialect: vllm, tokenizer: tiny-0.1m}"
    file.write_text(text.replace("generators:", f"  {told}\ngenerators:"), "utf-8")
    done = CliRunner().invoke(app, ["run", str(file), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert (
        "judge: what it asks is not known before it runs; --probe measures it (it writes its verdicts)"
        in " ".join(done.output.split())
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("{kind: judge, engine: hosted, samples: 2}", "{kind: judge, samples: 2}", "one of both"),
        ("engine: hosted, samples: 2", "engine: hosted, by: logits", "verifiers.judge.by = 'logits'"),
        ('{kind: judge, cue: "Rating (1-5):"}', "{kind: exact, cue: x}", "give it with kind: judge"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = tmp_path / "hosted.yaml"
    text = FILE.format(url="http://localhost:9/v1")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")
    done = CliRunner().invoke(app, ["run", str(file), "--dry-run"])
    assert done.exit_code == 2 and words in done.output.replace("\n", " "), done.output


def test_a_utility_needs_a_judge(tmp_path: Path) -> None:
    file = tmp_path / "hosted.yaml"
    file.write_text(FILE.format(url="http://localhost:9/v1").replace(", judge: judge}", "}"), "utf-8")
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(tmp_path / "run")])
    assert done.exit_code == 2 and "a verifier of kind judge" in " ".join(done.output.split()), done.output


# -- what is written ----------------------------------------------------------------------------------------

SCALE = Question("{task}{candidate}", {str(i): float(i) for i in range(11)}, "Score (0-10):")


@pytest.mark.parametrize(
    ("question", "text", "raw"),
    [
        (CORRECT, "Score: 7/10", 0.7),
        (CORRECT, "**Score:** 70%", 0.7),
        (CORRECT, "I would rate it 3 out of 4. Grade: 3 out of 4.", 0.75),
        (CORRECT, '```json\n{"reason": "adds up {see}", "verdict": "yes"}\n```', 1.0),
        (CORRECT, '{"correct": false, "score": 9}', 0.0),
        (CORRECT, '{"score": "9/10"}', 0.9),
        (CORRECT, "Score: 7", None),
        (CORRECT, "Score: 11/10", None),
        (CORRECT, "Score: -3/10", None),
        (CORRECT, "It took 3/4 of an hour.", None),
        (CORRECT, "The tank fills at a rate of 5% per minute. The solution is right.", None),
        (CORRECT, "His work rate is 1/6 per hour.", None),
        (CORRECT, "Score: 1 Is the answer correct (Yes/No)? No", 0.0),
        (RUBRIC, "Rating (1-5): 4.5", 4.5),
        (RUBRIC, "Rating (1-5): 4/5", 4.0),
        (RUBRIC, "Rating: **3**", 3.0),
        (RUBRIC, "Score: 7/10", 1 + 0.7 * 4),
        (RUBRIC, "Score: 7", None),
        (RUBRIC, "Rating (1-5): -1", None),
        (RUBRIC, '{"rating": 2}', 2.0),
        (RUBRIC, '{"rating": true}', None),
        (RUBRIC, '{"a": 1} then {"rating": 5}', 5.0),
        (RUBRIC, "Score (out of 10): 4", 1 + 0.4 * 4),
        (RUBRIC, "Rating (0-10): 4", 1 + 0.4 * 4),
        (RUBRIC, "**Score (on a scale from 1 to 10):** 4", 1 + 0.4 * 4),
        (RUBRIC, "Score (1-5): 4", 4.0),
        (RUBRIC, "Score (of steps 1-3): 4", 4.0),
        (RUBRIC, "Score (0-10): 2/5", 2.0),
        (RUBRIC, "4.5", 4.5),
        (RUBRIC, "**4.5**", 4.5),
        (RUBRIC, "7", None),
        (RUBRIC, "-2.5", None),
        (CORRECT, "0.5", None),
        (SCALE, "Score (0-10): 10", 10.0),
        (SCALE, "Score (0-10): 7.5/10", 7.5),
        (SCALE, "9 out of 10", 9.0),
        (PREFERENCE, "Score: 7/10", None),
        (PREFERENCE, '{"winner": "B"}', 0.0),
        (PREFERENCE, "The better answer (A/B): Answer B", 0.0),
        (PREFERENCE, "The better answer (A/B): **Option A**, by far", 1.0),
        (PREFERENCE, "Answer B.", 0.0),
        (PREFERENCE, "The better answer (A/B): Answering", None),
        (AGAINST_REFERENCE, "Rating (1-5): 3", 3.0),
        (CORRECT, "{" * 3000, None),
    ],
)  # fmt: skip
def test_a_verdict_is_a_label_or_else_a_score(question: Question, text: str, raw: float | None) -> None:
    found = VerdictReader(question).read(text)
    assert (None if found is None else found.raw) == (None if raw is None else pytest.approx(raw)), found


@pytest.mark.parametrize(
    ("question", "text", "raw"),
    [
        (SCALE, "Weak. Score (0-10): 1", None),
        (SCALE, "1", None),
        (SCALE, "Score (0-10): 7", 7.0),
        (SCALE, "Score (0-10): 1\nFor", 1.0),
        (RUBRIC, "Rating (1-5): 4", 4.0),
        (RUBRIC, "Rating (1-5): 1/1", None),
    ],
)
def test_a_number_that_a_cut_text_may_go_on_with_is_no_verdict(
    question: Question, text: str, raw: float | None
) -> None:
    found = VerdictReader(question).read(text, ended=False)
    assert (None if found is None else found.raw) == raw
    assert VerdictReader(question).read(text) is not None


def test_a_thousand_tokens_of_numbers_are_read_in_time_that_grows_with_them() -> None:
    """No pattern goes back over what it has read: this ends at once, or not in an hour."""
    text = "Score " + "1/10 " * 20_000 + "(" * 20_000
    VerdictReader(RUBRIC).read(text)
