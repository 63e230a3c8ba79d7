"""A step that holds the mark of the answer is the last of its sequence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from metagen.errors import ConfigError, InputError
from metagen.generators.engine import Sample
from metagen.generators.torch import TorchEngine
from metagen.journal import MemoryJournal
from metagen.runs.declare import schema
from metagen.runs.work import build
from metagen.sequence import Prompt, Sequence, Step
from metagen.strategies.tree.rebase import Rebase
from metagen.strategies.tree.search import TreeSearch
from metagen.tasks.aime import AIMETask
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.tasks.gsm8k import GSM8KTask
from metagen.tasks.jsonl import JsonlTask
from metagen.tasks.math_dataset import MathTask
from metagen.verifiers.function import FunctionVerifier
from tests.strategies.tree.toys import PROMPT, table

PLAIN, MARKED = Step("\n", 40), Step("\n", 40, "A:")


def grown(text: str, *, steps: tuple[int, ...] = (), cut: bool = False) -> Sequence:
    return Sequence(Prompt("p", text="?"), text, steps=steps, cut=cut)


@pytest.mark.parametrize(
    ("before", "after", "finish"),
    [
        (grown(""), grown("A:1\n", steps=(4,)), "stop"),
        (grown("a\n", steps=(2,)), grown("a\nA:1\n", steps=(2, 6)), "stop"),
        # It holds no mark; the one before did; the step has not ended; it hangs over into what comes next.
        (grown("a\n", steps=(2,)), grown("a\nb\n", steps=(2, 4)), None),
        (grown("A:1\n", steps=(4,)), grown("A:1\nb\n", steps=(4, 6)), None),
        (grown("a\n", steps=(2,)), grown("a\nA:1", steps=(2,), cut=True), None),
        (grown("a\n", steps=(2,)), grown("a\nb\nA:", steps=(2, 4)), None),
        # It begins in what hung over, or in what was cut of it.
        (grown("a\nA", steps=(2,)), grown("a\nA:1\n", steps=(2, 6)), "stop"),
        (grown("A:", cut=True), grown("A:1\n", steps=(4,)), "stop"),
        # A beginning that no step of this search wrote.
        (grown("A:1 is wrong.\n"), grown("A:1 is wrong.\na\n", steps=(16,)), None),
    ],
)
def test_a_step_with_the_mark_ends_the_sequence(
    before: Sequence, after: Sequence, finish: str | None
) -> None:
    assert MARKED.mark_end(before, after).finish == finish
    assert PLAIN.mark_end(before, after) is after


def test_what_has_ended_otherwise_stays_as_it_is() -> None:
    for finish in ("eos", "length"):
        after = Sequence(Prompt("p", text="?"), "A:1\n", steps=(4,), finish=finish)  # type: ignore[arg-type]
        assert MARKED.mark_end(grown(""), after) is after


def test_an_empty_mark_is_refused() -> None:
    with pytest.raises(InputError, match="mark is empty"):
        Step("\n", mark="")
    assert repr(Step("\n", 3)) == "Step(delimiter='\\n', max_tokens=3)"
    assert Rebase(table({}), 2, verifier=FunctionVerifier(len), until=MARKED).fingerprint != (
        Rebase(table({}), 2, verifier=FunctionVerifier(len), until=PLAIN).fingerprint
    )


def test_no_round_is_asked_for_an_end_token() -> None:
    """Both searches draw the same steps from the same records; the marked one leaves out the round that only ends."""
    rows = {"": ["a\n"], "a\n": ["A:1\n"], "a\nA:1\n": [Sample("", None, 1, finish="eos")]}
    verifier, journal = FunctionVerifier(lambda s: 0.5), MemoryJournal()
    results = [
        Rebase(table(rows), 2, verifier=verifier, until=until).solve(PROMPT, journal=journal)
        for until in (PLAIN, MARKED)
    ]
    assert [result.text for result in results] == ["a\nA:1\n"] * 2
    assert [result.sequence.finish for result in results] == ["eos", "stop"]
    drawn = [sum(row.kind == "generate" for row in result.trace.rows) for result in results]
    assert drawn == [6, 4]
    assert results[1].usage.generated == 2 * (2 + 4)


def test_an_engine_ends_there_too_and_its_records_serve_both() -> None:
    task = ArithmeticTask("validation", levels=(1,), per_level=1)
    (problem,) = task.problems()
    with TorchEngine("tiny-2m", threads=1) as model:
        search = [
            Rebase(model.generator(max_tokens=200), 4, verifier=FunctionVerifier(lambda s: 0.5),
                   answer=task.answer, until=Step("\n", 256, mark))
            for mark in (None, task.mark)
        ]  # fmt: skip
        journal = MemoryJournal()
        plain = search[0].solve(problem.prompt, journal=journal)
        before = model.stats.generated
        marked = search[1].solve(problem.prompt, journal=journal)
        assert model.stats.generated == before
    assert marked.text == plain.text and marked.sequence.finish == "stop"
    assert marked.usage.generated == (plain.usage.generated or 0) - 4, "the end token of each of four"


def test_tasks_say_what_marks_an_answer(tmp_path: Path) -> None:
    row = {"id": "a", "question": "?", "problem": "?", "answer": "1"}
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", "utf-8")
    box = "\\boxed{"
    assert ArithmeticTask().mark == "A:" and ArithmeticTask(form="direct").mark is None
    assert [GSM8KTask(path).mark, GSM8KTask(path, form="few_shot").mark] == [box, None]
    assert [MathTask(path).mark, MathTask(path, form="few_shot").mark, AIMETask(path).mark] == [box] * 3
    assert MathTask(path, prompt="{question} End with the answer.").mark is None
    asked = {"system": "Box the answer: \\boxed{{}}.", "user": "{question}"}
    assert GSM8KTask(path, prompt=asked).mark == box
    assert [JsonlTask(path).mark, JsonlTask(path, mark="####").mark] == [None, "####"]


FILE = """
name: marks
seed: 0
task: {kind: jsonl, path: rows.jsonl, mark: "####"}
engines: {small: {kind: torch, model: tiny-0.1m}, judge: {kind: torch, model: tiny-prm}}
generators: {small: {engine: small, max_tokens: 40}}
verifiers: {prm: {kind: prm, engine: judge}}
strategies:
  task: {kind: beam, verifier: prm, m: 1}
  own: {kind: dvts, verifier: prm, m: 1, step: {mark: "So"}}
  none: {kind: rebase, verifier: prm, step: {mark: ""}}
  blocks: {kind: rebase, verifier: prm, step: {tokens: 8}}
grid: {n: [1]}
"""


def test_a_file_says_it_for_one_search_or_takes_the_tasks(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "question": "?", "answer": "1"}\n', "utf-8")
    file = tmp_path / "marks.yaml"
    file.write_text(FILE, "utf-8")
    with build.open_setup(schema.load(file)) as setup:
        made = {cell.strategy: setup.strategy(cell) for cell in setup.configurations}
    marks = {
        name: getattr(one.until, "mark", None) for name, one in made.items() if isinstance(one, TreeSearch)
    }
    assert marks == {"task": "####", "own": "So", "none": None, "blocks": None}
    with pytest.raises(ConfigError, match="a mark and tokens"):
        schema.load(file, sets=["strategies.blocks.step={tokens: 8, mark: So}"])
    with pytest.raises(ConfigError, match="a delimiter and tokens"):
        schema.load(file, sets=['strategies.blocks.step={tokens: 8, delimiter: "\\n\\n"}'])
