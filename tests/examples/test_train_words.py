"""The recipe of the adapters in words: its data, its labels, and the whole of it for two steps on a few real layers."""

from __future__ import annotations

import asyncio
import json
import math
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import peft
import pytest
import safetensors
import torch
from safetensors.torch import save_file

from metagen import Prompt, Sequence, TorchEngine
from metagen.scope import Scope
from metagen.sequence import Message
from metagen.verifiers.implicit import ImplicitProcessRewardModel
from tests.fetched import fetch_or_skip

WORDS = Path(__file__).parents[2] / "examples" / "train" / "words"
GSM8K = {
    "question": "Ann has 3 boxes of 12 pens. She gives 6 pens away. How many pens are left?",
    "answer": "Ann had 3*12 = <<3*12=36>>36 pens.\nThere are 36-6 = <<36-6=30>>30 left.\n#### 30",
}
MAWPS = """Question,Numbers,Equation,Answer
Tom had number0 apples . He ate number1 . How many are left ?,9.0 4.0,- number0 number1,5.0
A pen costs $ number0 . What do number1 of Ann 's pens cost ?,2.5 4.0,* number0 number1,10.0
Two piles of number0 and number1 stones . How many ?,5.0 5.0,+ number0 number1,10.0
"""


APPLES = {
    "question": "Tom had 9 apples. He bought 4 and ate 2. How many has he now?",
    "answer": "11",
    "numbers": ["9", "4", "2"],
    "equation": "- + number0 number1 number2",
    "source": "story",
    "held_out": False,
    "solutions": [{"text": "9 + 4 = 13\nThe answer is 13.", "count": 3}],
}


@pytest.fixture(scope="module")
def words() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a module of the directory."""
    own = {path.stem for path in WORDS.glob("*.py")}
    others = {name: sys.modules.pop(name) for name in own & set(sys.modules)}
    sys.path.insert(0, str(WORDS))
    yield import_module
    sys.path.remove(str(WORDS))
    for name in own & set(sys.modules):
        del sys.modules[name]
    sys.modules.update(others)


@pytest.fixture
def published(tmp_path: Path) -> list[str]:
    """The options that name files in the published forms."""
    (tmp_path / "train.jsonl").write_text(json.dumps(GSM8K) + "\n")
    (tmp_path / "train.csv").write_text(MAWPS)
    return ["--gsm8k", str(tmp_path / "train.jsonl"), "--mawps", str(tmp_path / "train.csv")]


def test_solutions_have_a_step_a_line(
    words: Callable[[str], ModuleType], tmp_path: Path, published: list[str]
) -> None:
    data = words("data")
    (one,) = data.gsm8k(tmp_path / "train.jsonl")
    assert one.solution == "Ann had 3*12 = 36 pens.\nThere are 36-6 = 30 left.\nThe answer is 30."
    several = list(data.mawps([tmp_path / "train.csv"]))
    first = [e for e in several if e.question.startswith("Tom")]
    assert first[0].question == "Tom had 9 apples. He ate 4. How many are left?"
    assert first[0].solution == "9 - 4 = 5\nThe answer is 5."
    assert all(Fraction(e.answer) > 0 for e in several)
    (pens, *_) = [e for e in several if "pens" in e.question]
    assert pens.question == "A pen costs $2.5. What do 4 of Ann's pens cost?" and pens.answer == "10"
    assert not [e for e in several if "piles" in e.question], (
        "which of two equal numbers is meant, nobody knows"
    )


@pytest.mark.parametrize(
    ("equation", "numbers", "steps"),
    [
        ("- number0 number1", (9, 4), ["9 - 4 = 5"]),
        ("/ - number0 number1 number2", (96, 42, 6), ["96 - 42 = 54", "54 / 6 = 9"]),
        ("* number0 + number1 number2", (7, 8, 2), ["8 + 2 = 10", "7 * 10 = 70"]),
        ("* 0.01 number0", (250,), ["0.01 * 250 = 2.5"]),
        ("/ number0 number1", (1, 3), None),
        ("/ number0 - number1 number1", (1, 3), None),
    ],
)
def test_equations_are_worked_out(
    words: Callable[[str], ModuleType], equation: str, numbers: tuple[int, ...], steps: list[str] | None
) -> None:
    worked = words("data").work_out(equation.split(), [Fraction(n) for n in numbers])
    assert (worked and worked[0]) == steps


def test_answers_are_compared_as_numbers(words: Callable[[str], ModuleType]) -> None:
    candidates = words("candidates")
    assert candidates.is_right("1 + 2 = 3\nThe answer is 3.", "3")
    assert candidates.is_right("The answer is 1,200.", "1200")
    assert not candidates.is_right("The answer is 13.", "3")
    assert not candidates.is_right("The answer is 3. Or 4?", "3")


def test_each_question_of_a_story_has_its_equation(words: Callable[[str], ModuleType]) -> None:
    problems = words("problems")
    templates = problems.stories(problems.STORIES)
    assert len(templates) > 200
    found = {p.question: p for p in problems.draw_all(templates, len(templates), np.random.default_rng(0))}
    for problem in found.values():
        assert not re.search(r"[{}]|number\d", problem.question)
        assert all(re.search(rf"\b{n}\b", problem.question) for n in problem.numbers)
        assert len(set(problem.numbers)) == len(problem.numbers), "numbers are told apart by their values"
        worked = words("data").work_out(problem.equation.split(), [Fraction(n) for n in problem.numbers])
        assert worked and worked[1] == Fraction(problem.answer) > 0


def test_a_sentence_that_is_not_needed_brings_a_number(
    words: Callable[[str], ModuleType], tmp_path: Path, published: list[str]
) -> None:
    problems = words("problems")
    templates = problems.mawps([tmp_path / "train.csv"])
    drawn = list(problems.draw_all(templates[:1], 60, np.random.default_rng(0)))
    more = [p for p in drawn if len(p.numbers) == 3]
    assert 8 <= len(more) <= 35, "every third, with a false alarm once in a thousand"
    assert all(p.equation == "- number0 number1" and "How many are left?" in p.question for p in drawn)
    assert all(int(p.answer) == int(p.numbers[0]) - int(p.numbers[1]) for p in drawn)


@pytest.mark.parametrize(
    ("solution", "values"),
    [
        ("9 + 4 = 13\n13 - 2 = 11\nThe answer is 11.", [1, 1, 1]),
        ("9 - 2 = 7\n7 + 4 = 11\nThe answer is 11.", [1, 1, 1]),
        ("9 - 2 = 7\n7 - 4 = 3\nThe answer is 3.", [1, 0, 0]),
        ("9 * 4 = 36\n36 - 2 = 34\nThe answer is 34.", [0, 0, 0]),
        ("9 + 4 = 13\n13 - 2 = 12\nThe answer is 12.", [1, 0, 0]),
        ("9 + 4 = 12\n12 - 2 = 11\nThe answer is 11.", [-1, -1, -1]),
        ("So 9 and 4 are 13.\nThe answer is 13.", [-1, 0]),
        ("9 + 4 = 13\nThe answer is 13.", [1, 0]),
        ("9 + 4 = 13", [0]),
    ],
)
def test_lines_have_values(words: Callable[[str], ModuleType], solution: str, values: list[float]) -> None:
    assert words("candidates").values_of(APPLES, solution) == values


def test_a_row_has_right_and_wrong_solutions_of_the_same_weight(words: Callable[[str], ModuleType]) -> None:
    candidates, rewards = words("candidates"), words("rewards")
    rng = np.random.default_rng(0)
    for _ in range(20):
        texts = candidates.choose(APPLES, rng)
        found = [candidates.values_of(APPLES, text)[-1] for text in texts]
        assert len(texts) == candidates.TOGETHER and set(found) == {0.0, 1.0}
        solutions = [(text, candidates.values_of(APPLES, text)) for text in texts]
        row = rewards.row_of(Letters(), APPLES["question"], solutions)
        right, wrong = (
            sum(w for w, v in zip(row["weights"], row["values"], strict=True) if v == value)
            for value in (1, 0)
        )
        assert right == pytest.approx(wrong) and right in (pytest.approx(0.5), pytest.approx(1.0))
        assert {len(column) for column in row.values()} == {len(row["input_ids"])}


def test_a_token_is_predicted_by_the_one_before_it_in_its_own_solution(
    words: Callable[[str], ModuleType],
) -> None:
    texts = ["9 + 4 = 13\n13 - 2 = 11\nThe answer is 11.", "9 - 4 = 5\nThe answer is 5."]
    solutions = [(text, words("candidates").values_of(APPLES, text)) for text in texts]
    row = words("rewards").row_of(Letters(), APPLES["question"], solutions)
    branch = row["branch"]
    assert set(branch) == {0, 1, 2}
    for i, own in enumerate(branch):
        if own:
            assert row["before"][i] == [j for j in range(i) if branch[j] in (0, own)][-1]
            assert row["begun"][i] == branch.index(own) - 1
            assert row["position_ids"][i] == sum(other in (0, own) for other in branch[:i])


class Letters:
    """A tokenizer of one token a character."""

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}

    def apply_chat_template(self, turns: list[dict[str, str]], **_: bool) -> str:
        return turns[0]["content"]


@pytest.fixture
def few_layers(words: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lowest layers of the base, under its name in a cache of its own: each step and token costs a third."""
    whole, tuning = fetch_or_skip("smollm2-135m"), words("tuning")
    config, count = json.loads((whole / "config.json").read_text()), 3
    assert tuning.LAYERS[-1] + 1 == config["num_hidden_layers"] == 30, "it tunes the upper layers of the base"
    monkeypatch.setattr(tuning, "LAYERS", list(range(1, count)))
    monkeypatch.setenv("METAGEN_CACHE", str(tmp_path / "cache"))
    cut = tmp_path / "cache" / "models" / whole.name
    shutil.copytree(whole, cut, ignore=shutil.ignore_patterns("*.safetensors"))
    (cut / "config.json").write_text(json.dumps(config | {"num_hidden_layers": count}))
    with safetensors.safe_open(whole / "model.safetensors", "pt") as weights:
        names = [n for n in weights.keys() if not re.match(r"model\.layers\.([3-9]|\d\d)\.", n)]  # noqa: SIM118
        save_file({name: weights.get_tensor(name) for name in names}, cut / "model.safetensors")


@pytest.mark.slow
def test_the_recipe_for_two_steps(
    words: Callable[[str], ModuleType], scripts: Any, few_layers: None, tmp_path: Path, published: list[str]
) -> None:
    """What is trained is what the verifiers read: the same ids, the same places."""

    def run(script: str, *args: str) -> str:
        """In this process, which has imported torch, transformers and peft: what a script knows is in its files."""
        said: str = scripts.here([sys.executable, str(WORDS / script), *args])
        return said

    data, solver, rewards = (str(tmp_path / name) for name in ("data", "solver", "rewards"))
    run("data.py", *published, "--into", data)
    rows = (Path(data) / "train.jsonl").read_text() + (Path(data) / "validation.jsonl").read_text()
    for name in ("train", "validation"):
        (Path(data) / f"{name}.jsonl").write_text(rows)
    short = ("--steps", "2", "--batch", "2")
    run("solver.py", "--data", data, "--into", solver, *short, "--rank", "2")
    assert "'train_runtime'" in run("solver.py", "--data", data, "--into", solver, *short, "--rank", "2"), (
        "it goes on from its end"
    )
    with pytest.raises(SystemExit, match=r"were not made with --rate 0\.5; give another --into"):
        run("solver.py", "--data", data, "--into", solver, *short, "--rank", "2", "--rate", "0.5")
    problems, rollouts = tmp_path / "problems.jsonl", tmp_path / "rollouts.jsonl"
    run("problems.py", *published[2:], "--into", str(problems), "--count", "3", "--validation", "1")
    sample = (
        "rollouts.py",
        "--problems",
        str(problems),
        "--solver",
        f"{solver}/adapter",
        "--into",
        str(rollouts),
    )
    run(*sample, "--samples", "2", "--count", "3", "--quiet")
    before = rollouts.read_text()
    run(*sample, "--samples", "2", "--count", "3", "--quiet")
    assert rollouts.read_text() == before, "what is there is not made again"
    with pytest.raises(SystemExit, match=r"has solutions of .*'samples': 2.*, not of .*'samples': 3.*--into"):
        run(*sample, "--samples", "3", "--count", "3", "--quiet")
    assert [json.loads(line)["held_out"] for line in before.splitlines()] == [True, False, False]
    learned = ("--problems", str(problems), "--rollouts", str(rollouts), "--begin", f"{solver}/adapter")
    # Of two steps of the warm-up, the first moves nothing: at the usual rate the judge would say what the solver does.
    fast = ("--longest", "400", "--rate", "1")
    assert "eval_loss" in run("rewards.py", *learned, "--into", rewards, *fast, *short)
    record = json.loads(before.splitlines()[0])
    record["solutions"] += [
        {"text": f"The answer is {answer}.", "count": 1} for answer in (record["answer"], "7531")
    ]
    rollouts.write_text(json.dumps(record) + "\n")
    judged = ("measure.py", "--judge", f"{rewards}/adapter", "--solutions", str(rollouts))
    with pytest.raises(SystemExit, match=r"smollm2-135m-solver: .* began as another adapter"):
        run(*judged)
    measured = run(*judged, "--reference", f"{solver}/adapter")
    assert "AUC within problems, judge, all" in measured and "vote, calculator, judge" in measured

    tuning, recipe = words("tuning"), words("rewards")
    base, tokenizer = tuning.base()
    texts = ["9 + 4 = 13\n13 - 2 = 11\nThe answer is 11.", "9 - 4 = 5\nThe answer is 5."]
    solutions = [(text, words("candidates").values_of(APPLES, text)) for text in texts]
    row = recipe.row_of(tokenizer, APPLES["question"], solutions)
    trained = peft.PeftModel.from_pretrained(base.float(), f"{rewards}/adapter")
    reference = peft.PeftModel.from_pretrained(tuning.base()[0].float(), f"{solver}/adapter")
    with (
        TorchEngine(f"{rewards}/adapter", dtype="float32") as engine,
        TorchEngine(f"{solver}/adapter", dtype="float32") as before,
    ):
        prompt = Prompt("p", messages=(Message("user", APPLES["question"]),))
        verifier = ImplicitProcessRewardModel(engine, before, beta=recipe.BETA, cumulative=True)
        sequences = [Sequence(prompt, text) for text in texts]
        scores = asyncio.run(verifier.score(sequences, scope=Scope.root("p")))
        for k, sequence in enumerate(sequences, 1):
            own = [i for i, branch in enumerate(row["branch"]) if branch in (0, k)]
            assert [row["input_ids"][i] for i in own] == list(verifier._trace(sequence).ids)
    # Where one value is read and is 1, the loss is -log of what the verifier says there. Solutions of a row do not see
    # each other, so that this holds of each as if it were alone.
    ends = [i for i, value in enumerate(row["values"]) if value != recipe.UNREAD]
    said = [value for score in scores for value in score.steps or ()]
    assert len(ends) == len(said) == 5
    for end, value in zip(ends, said, strict=True):
        one = row | {
            "values": [1.0] * len(row["values"]),
            "weights": [float(i == end) for i in range(len(row["values"]))],
        }
        with torch.inference_mode():
            batch = tuning.Padded(recipe.FILL)([one])
            loss = recipe.RewardTrainer.compute_loss(SimpleNamespace(reference=reference), trained, batch)
        assert math.exp(-loss.item()) == pytest.approx(value, abs=0.003)
