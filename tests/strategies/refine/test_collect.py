"""Pairs (bad, better) for training: which there are, what they weigh, and a file that survives interruptions."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import DataError, EngineError, InputError, PromptError
from metagen.generators.function import FunctionGenerator
from metagen.journal import SQLiteJournal
from metagen.sequence import Message, Prompt, Score, Sequence
from metagen.strategies.candidates import Candidate
from metagen.strategies.prompts import FollowUp
from metagen.strategies.refine.collect import Collected, acollect, collect
from metagen.strategies.refine.feedback import Remark, ToolFeedback
from metagen.strategies.refine.pair_file import PairFile
from metagen.strategies.refine.pairs import Pair, Pairing
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.refine.trajectory import Round
from metagen.strategies.tools import Tool
from metagen.testing import first_word, numbers, run
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.utility.edit import EditSimilarity
from metagen.verifiers.utility.pairs import FunctionUtility

PROMPT = Prompt("p", text="x:")
LINE = FollowUp("|{feedback}", "|?")
PROBLEMS = [Prompt(f"p{i}", text=f"Problem {i}:") for i in range(6)]


def rounds(**scores: float | None) -> list[Round]:
    """A round for each text with this value, remarked on by its name."""
    made = []
    for text, value in scores.items():
        score = Score(value) if value is not None else Score(None, verdict="timeout")
        candidate = Candidate(Sequence(PROMPT, text, finish="eos"), None, score)
        remark = Remark(f"on {text}")
        made.append(Round(candidate, "revision", remark, LINE(PROMPT, text, remark.text)))
    return made


def paired(pairing: Pairing, pool: list[Round]) -> list[Pair]:
    return run(lambda s: pairing.pairs(pool, s))[0]


def test_all_pairs_that_gain_weighed_by_the_formula() -> None:
    found = paired(Pairing(alpha=2.0), rounds(a=0.0, b=0.5, c=1.0, d=0.5, e=None))
    assert {(p.bad, p.better): p.values for p in found} == {
        ("a", "b"): (0.0, 0.5), ("a", "c"): (0.0, 1.0), ("a", "d"): (0.0, 0.5),
        ("b", "c"): (0.5, 1.0), ("d", "c"): (0.5, 1.0),
    }  # fmt: skip
    z = math.exp(1) + math.exp(2) + math.exp(1)
    weights = {(p.bad, p.better): p.weight for p in found}
    assert weights["a", "c"] == pytest.approx(math.exp(2) / z) and weights["a", "b"] == pytest.approx(
        math.exp(1) / z
    )
    assert weights["b", "c"] == weights["d", "c"] == 1.0
    assert [p.better for p in found[:3]] == ["c", "b", "d"], "the heaviest first, equals by their texts"
    assert found[0].asked.text == "x:a\n\n|on a\n\n" and found[0].feedback == "on a"
    assert [(p.bad, p.better) for p in paired(Pairing(most=1), rounds(a=0.0, b=0.5, c=1.0))] == [
        ("a", "c"),
        ("b", "c"),
    ]


def test_similarity_draws_towards_small_edits() -> None:
    like = FunctionUtility(
        lambda better, bad: float(better.text[0] == bad.text[0]), name="head", symmetric=True
    )
    pool = rounds(ax=0.0, ay=0.5, by=1.0)
    found = {(p.bad, p.better): p for p in paired(Pairing(alpha=1.0, beta=3.0, utility=like), pool)}
    near, far = found["ax", "ay"], found["ax", "by"]
    assert (near.similarity, far.similarity) == (1.0, 0.0)
    assert near.weight / far.weight == pytest.approx(math.exp(0.5 + 3.0) / math.exp(1.0))
    plain = {(p.bad, p.better): p for p in paired(Pairing(alpha=1.0), pool)}
    assert plain["ax", "ay"].similarity is None and plain["ax", "ay"].weight < plain["ax", "by"].weight
    edits = paired(Pairing(beta=1.0, utility=EditSimilarity()), rounds(kitten=0.0, sitting=1.0))
    assert edits[0].similarity == pytest.approx(1 - 3 / 7)


def test_what_may_be_bad_and_what_may_be_better() -> None:
    pool = rounds(a=0.0, b=0.5, c=1.0)
    cut = Sequence(PROMPT, "c", finish="length")
    pool[2] = replace(pool[2], candidate=replace(pool[2].candidate, sequence=cut))
    assert [(p.bad, p.better) for p in paired(Pairing(), pool)] == [("a", "b")], (
        "what is cut is not to be learned"
    )
    pool[0] = replace(
        pool[0], candidate=replace(pool[0].candidate, sequence=Sequence(PROMPT, "a", finish="length"))
    )
    assert [(p.bad, p.better) for p in paired(Pairing(), pool)] == [("a", "b")], "but it may be mended"
    pool[0] = replace(pool[0], asked=None)
    assert paired(Pairing(), pool) == [], "without a prompt there is nothing to learn from"
    assert paired(Pairing(), rounds(a=0.5, b=0.5)) == [] and paired(Pairing(), []) == []
    twice = [*rounds(a=0.0, b=1.0), *rounds(a=0.0)]
    assert len(paired(Pairing(), twice)) == 1


def test_records_are_what_trainers_read() -> None:
    text = Pair(Prompt("q", text="mend"), "bad", "better", None, (0.0, 1.0), None, 1.0).record()
    assert (text["prompt"], text["completion"], text["problem"]) == ("mend", "better", "q")
    chat = Pair(
        Prompt("q", messages=(Message("user", "mend"),)), "bad", "better", "w", (0.0, 1.0), 0.5, 1.0
    ).record()
    assert chat["prompt"] == [{"role": "user", "content": "mend"}]
    assert chat["completion"] == [{"role": "assistant", "content": "better"}]


# -- the file ----------------------------------------------------------------------------------------


def strategy(name: str = "w", fail: Callable[[Prompt], bool] = lambda prompt: False) -> Refinement:
    """Digits that a verifier likes the more the greater they are; a problem may fail."""

    def write(prefix: Sequence, seed: int, index: int) -> str:
        if fail(prefix.prompt):
            raise EngineError(f"no {prefix.prompt.problem_id}")
        return str(seed % 10)

    verifier = FunctionVerifier(lambda s: Score(int(s.text) / 10, feedback=f"{s.text} is small"))
    return Refinement(FunctionGenerator(write, name=name), verifier=verifier, rounds=2)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_one_call_from_problems_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "pairs.jsonl"
    found = collect(strategy(), PROBLEMS, path, n=3)
    records = lines(path)
    assert found == Collected(path, 6, len(records), 6 * 3 * 2, found.copies, 0, False)
    assert len(records) > 30 and [r["problem"] for r in records] == sorted(r["problem"] for r in records)
    for record in records:
        low, high = record["values"]
        assert (
            low < high
            and record["completion"] == str(round(high * 10))
            and record["bad"] == str(round(low * 10))
        )
        assert record["prompt"].startswith("Problem ") and f"{record['bad']} is small" in record["prompt"]
    by_bad: dict[tuple[str, str], float] = {}
    for record in records:
        key = record["problem"], record["bad"]
        by_bad[key] = by_bad.get(key, 0.0) + record["weight"]
    assert all(total == pytest.approx(1.0) for total in by_bad.values())


def test_candidates_are_those_that_the_strategy_itself_would_make(tmp_path: Path) -> None:
    """The chains are its samples number 0, 1, …: one journal serves both."""
    refining = strategy()
    with SQLiteJournal(tmp_path / "journal", seed=0) as journal:
        drawn, rows = run(
            lambda s: refining.generate(Sequence.of(PROBLEMS[0]), n=3, scope=s), journal=journal, problem="p0"
        )
        broken = strategy(fail=lambda prompt: True)
        found = collect(broken, PROBLEMS[:1], tmp_path / "pairs.jsonl", n=3, journal=journal)
    assert found.pairs > 0 and max(r["completion"] for r in lines(found.path)) == max(s.text for s in drawn)
    assert len(rows) == 3 * 6 or found.copies


@pytest.mark.parametrize("concurrency", [1, 3, 20])
def test_the_file_does_not_depend_on_how_many_run_at_a_time(tmp_path: Path, concurrency: int) -> None:
    async def write(prefix: Sequence, seed: int, index: int) -> str:
        await asyncio.sleep((seed % 5) / 1000)
        return str(seed % 10)

    slow = Refinement(FunctionGenerator(write, name="w"), verifier=strategy().verifier, rounds=2)
    collect(strategy(), PROBLEMS, tmp_path / "a", n=2)
    collect(slow, PROBLEMS, tmp_path / "b", n=2, concurrency=concurrency)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_interrupted_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    whole = collect(strategy(), PROBLEMS, tmp_path / "whole", n=2)
    path, seen = tmp_path / "pairs", list[str]()

    def failing(prompt: Prompt) -> bool:
        return prompt.problem_id == "p3"

    with pytest.raises(EngineError, match="no p3"):
        collect(strategy(fail=failing), PROBLEMS, path, n=2, concurrency=2)
    finished = {r["problem"] for r in lines(path)}
    assert {"p0", "p1"} <= finished <= {"p0", "p1", "p2"}, "p2 may run beside p3"

    def watched(prompt: Prompt) -> bool:
        seen.append(prompt.problem_id)
        return False

    again = collect(strategy(fail=watched), iter(PROBLEMS), path, n=2)
    assert set(seen) == {p.problem_id for p in map(Prompt.of, PROBLEMS)} - finished
    assert path.read_bytes() == whole.path.read_bytes()
    assert replace(again, path=whole.path) == whole
    seen.clear()
    assert collect(strategy(fail=watched), PROBLEMS, path, n=2) == again and not seen
    more = collect(strategy(), [*PROBLEMS, Prompt("p9", text="Another:"), PROBLEMS[0]], path, n=2)
    assert more.problems == 7 and path.read_bytes().startswith(whole.path.read_bytes())


def test_whatever_was_torn_when_it_died_is_mended(tmp_path: Path) -> None:
    """Any cut of the progress file, with anything after the last whole problem in the data file."""
    whole = collect(strategy(), PROBLEMS[:3], tmp_path / "whole", n=2)
    data, notes = whole.path.read_bytes(), (tmp_path / "whole.progress").read_bytes()
    for size in [0, 5, *range(20, len(notes), 37), len(notes) - 1]:
        path = tmp_path / f"torn{size}"
        path.write_bytes(data + b'{"prompt": "tor')
        path.with_name(f"{path.name}.progress").write_bytes(notes[:size])
        collect(strategy(), PROBLEMS[:3], path, n=2)
        assert path.read_bytes() == data
        assert path.with_name(f"{path.name}.progress").read_bytes() == notes


def test_files_of_others_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs"
    collect(strategy(), PROBLEMS[:2], path, n=2)
    for other, options in ((strategy("other"), {}), (strategy(), {"alpha": 2.0}), (strategy(), {"seed": 1})):
        with pytest.raises(DataError, match="another strategy or other options"):
            collect(other, PROBLEMS[:2], path, **{"n": 2, **options})  # type: ignore[arg-type]
    path.write_text("")
    with pytest.raises(DataError, match=r"has 0 bytes where 'pairs.progress' counts"):
        collect(strategy(), PROBLEMS[:2], path, n=2)
    (tmp_path / "pairs.progress").write_text("[]\n")
    with pytest.raises(DataError, match="is damaged"):
        collect(strategy(), PROBLEMS[:2], path, n=2)
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(DataError, match="was not made by collecting pairs"):
        collect(strategy(), PROBLEMS[:2], tmp_path / "mine", n=2)
    assert (tmp_path / "mine").read_text() == "precious"


def test_one_process_at_a_time_writes(tmp_path: Path) -> None:
    path = tmp_path / "pairs"

    def again(prompt: Prompt) -> bool:
        with pytest.raises(DataError, match="being written by another process"):
            PairFile(path, "x").__enter__()
        return False

    assert collect(strategy(fail=again), PROBLEMS[:1], path, n=1).problems == 1


def test_a_budget_leaves_the_pairs_that_there_are_and_says_so(tmp_path: Path) -> None:
    free = collect(strategy(), PROBLEMS, tmp_path / "free", n=2)
    short = collect(strategy(), PROBLEMS, tmp_path / "short", n=2, budget={"calls": 6})
    none = collect(strategy(), PROBLEMS, tmp_path / "none", n=2, budget={"calls": 0})
    assert 0 < short.pairs < free.pairs and short.exhausted == none.exhausted == 6
    assert (none.pairs, none.revisions, free.exhausted) == (0, 0, 0)


def test_feedback_that_was_not_asked_for_leaves_a_candidate_out(tmp_path: Path) -> None:
    """The last revision of a chain: its score has words anyway, a tool was not asked about it."""
    own = strategy()
    told = Refinement(
        own.generator, verifier=own.verifier, feedback=ToolFeedback(Tool(lambda: "no", name="t")), rounds=1
    )
    own = Refinement(own.generator, verifier=own.verifier, rounds=1)
    for refining, last in ((told, False), (own, True)):
        path = tmp_path / str(last)
        collect(refining, PROBLEMS, path, n=1)
        expected = []
        for problem in PROBLEMS:
            prefix = Sequence.of(problem)
            chain, _ = run(
                lambda s, r=refining, x=prefix: r.trajectory(x, s.child("0")),
                problem=problem.problem_id,  # type: ignore[misc]
            )
            draft, revision = (one.candidate.sequence.text for one in chain.rounds)
            if draft < revision or (last and draft != revision):
                expected.append((problem.problem_id, min(draft, revision), max(draft, revision)))
        assert [(r["problem"], r["bad"], r["completion"]) for r in lines(path)] == expected
        assert expected


def test_a_pair_is_learned_under_the_prompt_that_the_corrector_has_seen(tmp_path: Path) -> None:
    """With memory: the attempts before stand in it. The last candidate is asked about as the next round would be."""
    asked: list[str] = []

    def write(prefix: Sequence, seed: int, index: int) -> str:
        asked.append(prefix.prompt.text or "")
        return "3142"[len(asked) - 1]

    verifier = FunctionVerifier(lambda s: Score(int(s.text) / 10, feedback=f"{s.text}?"))
    made = Refinement(FunctionGenerator(write), verifier=verifier, rounds=3, ask=LINE, memory=1)
    collect(made, PROBLEMS[:1], tmp_path / "pairs", n=1)
    prompts = {r["bad"]: r["prompt"].replace("\n\n", "") for r in lines(tmp_path / "pairs")}
    head = "Problem 0:"
    assert prompts == {"3": f"{head}3|3?", "1": f"{head}3|3?1|1?", "2": f"{head}4|4?2|2?"}
    assert [text.replace("\n\n", "") for text in asked[1:3]] == [prompts["3"], prompts["1"]]


def test_a_prompt_is_the_one_that_fitted(tmp_path: Path) -> None:
    def write(prefix: Sequence, seed: int, index: int) -> str:
        text = prefix.prompt.text or ""
        if text.count("|") > 1:
            raise PromptError("longer than the context")
        return "12"[":1" in text] if "|" in text else "0"

    verifier = FunctionVerifier(lambda s: Score(int(s.text) / 10, feedback="more"))
    made = Refinement(FunctionGenerator(write), verifier=verifier, rounds=2, ask=LINE, memory=5)
    collect(made, PROBLEMS[:1], tmp_path / "pairs", n=1)
    prompts = {
        (r["bad"], r["completion"]): r["prompt"].replace("\n\n", "") for r in lines(tmp_path / "pairs")
    }
    assert prompts["1", "2"] == "Problem 0:1|more"


def test_bad_options_are_refused(tmp_path: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"n": 0}, {"n": 1.5}, {"concurrency": 0}, {"most": 0}, {"alpha": math.inf}, {"beta": math.nan},
    ]  # fmt: skip
    for options in bad:
        with pytest.raises(InputError, match=f"{next(iter(options))}="):
            collect(strategy(), PROBLEMS, tmp_path / "pairs", **options)
    with pytest.raises(InputError, match="utility is not asked with beta=0; give beta"):
        collect(strategy(), PROBLEMS, tmp_path / "pairs", utility=EditSimilarity())
    with pytest.raises(InputError, match=r"beta=2.0 weighs a similarity, and there is none; give utility"):
        Pairing(beta=2.0)
    with pytest.raises(InputError, match="give it one"):
        collect(Refinement(numbers(), rounds=0), PROBLEMS, tmp_path / "pairs")
    assert not list(tmp_path.iterdir())
    assert collect(strategy(), [], tmp_path / "empty").problems == 0


def test_in_a_loop_of_ones_own(tmp_path: Path) -> None:
    def strings() -> Iterator[str]:
        yield "one"
        yield "two"

    refining = Refinement(numbers(), verifier=first_word, rounds=1)
    found = asyncio.run(acollect(refining, strings(), tmp_path / "pairs", beta=1.0))
    assert (
        found.problems == 2 and found.pairs > 0 and all(0 <= r["similarity"] <= 1 for r in lines(found.path))
    )
