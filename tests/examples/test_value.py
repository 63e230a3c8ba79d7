"""Value functions for token-wise control: what they learn from, what both targets come to, and what tilts are worth."""

from __future__ import annotations

import math
import re
import shutil
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from metagen.analysis.alignment import expected_values, soft_values
from metagen.generators.models import sources
from metagen.tasks.arithmetic import Split, check, problems, read_prompt, split_of

EXAMPLES = Path(__file__).parents[2] / "examples"
GENERATOR, LARGER = "tiny-0.5m", "tiny-2m"


def begin(into: Path) -> Path:
    """A run that has the generators that ship."""
    into.mkdir()
    (into / "setting.json").write_text('{"seed": 5, "scale": 0.0003}\n')
    for name in (GENERATOR, LARGER):
        shutil.copytree(sources.resolve(name), into / "models" / name)
    return into


# ----------------------------------------------------------------------------------------- a model of eight words

PAD, BOS, EOS, A, B = range(5)
NEXT: dict[tuple[int, ...], dict[int, float]] = {
    (): {A: 0.5, B: 0.5},
    **{(x,): {EOS: 0.5, A: 0.25, B: 0.25} for x in (A, B)},
    **{(x, y): {EOS: 1.0} for x, y in product((A, B), repeat=2)},
}
REWARDS = {(A,): 0.1, (B,): 0.3, (A, A): 0.9, (A, B): 0.6, (B, A): 0.2, (B, B): 0.8}


def worth(done: tuple[int, ...]) -> float:
    """E_p[r | done], of a word that has ended its reward."""
    if done and done[-1] == EOS:
        return REWARDS[done[:-1]]
    return sum(p * worth((*done, z)) for z, p in NEXT[done].items())


class Tabular(nn.Module):
    """A number for every next token of every beginning, as a language model gives logits."""

    def __init__(self, numbers: Callable[[tuple[int, ...], int], float]) -> None:
        super().__init__()
        self.places = {done: i for i, done in enumerate(NEXT)}
        table = [[numbers(done, z) for z in range(5)] for done in NEXT]
        self.table = nn.Embedding.from_pretrained(torch.tensor([*table, [0.0] * 5]), freeze=False)

    def forward(self, ids: Tensor) -> Tensor:
        # Behind `<s>` a word begins; what follows its end is of no account.
        rows = [[self.places.get(tuple(row[1 : t + 1]), -1) for t in range(len(row))] for row in ids.tolist()]
        return self.table(torch.tensor(rows) % (len(NEXT) + 1))


def corpus(train: Any) -> Any:
    """Each word exactly as often as the model writes it, in eight."""
    returns = train("returns")
    rows = []
    for word, reward in REWARDS.items():
        row = returns.Row(
            np.array([BOS, *word, EOS], np.uint16), 0, reward, np.full(len(word) + 1, reward, np.float32)
        )
        rows += [row] * (2 if len(word) == 1 else 1)
    return returns.table(rows)


def language_model() -> Tabular:
    return Tabular(lambda done, z: math.log(NEXT[done].get(z, 1e-30)))


@pytest.mark.parametrize("target", ["FUDGE", "Q"])
def test_either_target_rests_at_the_expected_reward_and_comes_to_it(train: Any, target: str) -> None:
    script = train("train_value")
    kind, base, table = script.Target[target], language_model(), corpus(train)

    def value(done: tuple[int, ...], z: int) -> float:
        return worth((*done, z)) if z in NEXT[done] else 0.5

    exact = Tabular(lambda done, z: math.log(value(done, z) / (1 - value(done, z))))
    script.loss_of(exact, base, kind, table).backward()
    assert exact.table.weight.grad.abs().max() < 1e-6
    learned = Tabular(lambda done, z: 0.0)
    optimizer = torch.optim.Adam(learned.parameters(), lr=0.1)
    for _ in range(400):
        optimizer.zero_grad()
        script.loss_of(learned, base, kind, table).backward()
        optimizer.step()
    torch.testing.assert_close(
        torch.sigmoid(learned.table.weight[:-1]), torch.sigmoid(exact.table.weight[:-1]), atol=5e-3, rtol=0
    )


def test_a_token_that_is_never_drawn_comes_to_the_value_of_its_prefix(train: Any) -> None:
    script, base, table = train("train_value"), language_model(), corpus(train)
    learned = Tabular(lambda done, z: 0.0)
    optimizer = torch.optim.Adam(learned.parameters(), lr=0.1)
    for _ in range(400):
        optimizer.zero_grad()
        script.loss_of(learned, base, script.Target.FUDGE, table, prior=1e-2).backward()
        optimizer.step()
    for done, place in learned.places.items():
        for z, value in enumerate(torch.sigmoid(learned.table.weight[place]).tolist()):
            want = worth((*done, z)) if z in NEXT[done] else worth(done)
            assert value == pytest.approx(want, abs=0.02), (done, z)


def test_the_loss_is_half_the_square_over_the_tokens_of_completions(train: Any) -> None:
    script, returns = train("train_value"), train("returns")
    rows = [
        returns.Row(np.array([BOS, A, B, EOS]), 1, 0.5, np.array([0.0, np.nan])),  # A is of the prompt
        returns.Row(np.array([BOS, B]), 0, 0.0, np.array([1.0])),  # cut off
    ]
    flat = Tabular(lambda done, z: 0.0)
    value = script.loss_of(flat, language_model(), script.Target.FUDGE, returns.table(rows))
    assert value.item() == pytest.approx(0.5 * (0 + 0 + 0.25) / 3)
    # Behind the first token that is wrong there is nothing to learn.
    value = script.loss_of(flat, language_model(), script.Target.SOUND, returns.table(rows))
    assert value.item() == pytest.approx(0.5 * (0.25 + 0.25) / 2)
    # Bootstrapped, the last token of a row has its reward, ended or cut, and all others what is expected.
    value = script.loss_of(flat, language_model(), script.Target.Q, returns.table(rows))
    assert value.item() == pytest.approx(0.5 * (0 + 0 + 0.25) / 3)


# -------------------------------------------------------------------------------------------- the scripts


def judged(one: Any) -> float:
    problem, form = read_prompt(one.prompt)
    return float(one.ended and check(problem, one.text, form).correct)


def test_returns_are_of_training_problems_and_rewarded_for_the_answer(train: Any, tmp_path: Path) -> None:
    returns, setting, tokenizer = train("returns"), train("setting"), train("tokenizer")
    run = setting.Setting(begin(tmp_path / "run"), 5, 0.01)
    found = returns.returns(run, GENERATOR)
    assert len(found) == 60 * returns.SAMPLES and 0.2 < np.mean([r.reward for r in found]) < 0.8
    for one in found:
        assert split_of(read_prompt(one.prompt)[0]) is Split.TRAIN
        assert one.reward == judged(one)
    assert returns.returns(run, GENERATOR) == found
    departed = returns.explored(run, GENERATOR, 6000)
    assert len(departed) == 60 and len({one.kept for one in departed}) > 10
    for one, whole in zip(departed, found, strict=False):
        assert one.prompt == whole.prompt and one.text[: one.kept] == whole.text[: one.kept]
        assert one.reward == judged(one)
    # A flatter distribution writes worse.
    assert np.mean([one.reward for one in departed]) < np.mean([one.reward for one in found])
    codec = tokenizer.characters()
    for row, one in zip(returns.rows(found + departed, codec), found + departed, strict=True):
        behind = row.ids[row.start + 1 :].tolist()
        assert behind[-1:] == [tokenizer.EOS] or not one.ended
        assert codec.decode(behind, skip_special_tokens=True) == one.text[one.kept :]
        table = returns.table([row])
        assert table.ids[0, 1:][table.drawn[0]].tolist() == behind
        assert table.last.sum() == 1 and table.ids[0, 1:][table.last[0]].tolist() == behind[-1:]


def test_a_token_is_sound_up_to_the_first_that_no_right_step_could_have(train: Any) -> None:
    returns = train("returns")

    def sound(text: str, *, ended: bool = True, reward: float = 0.0) -> list[float]:
        found = returns.Return("Q:a=12+7;b=a*3;b?\nS:\n", text, ended, reward)
        return [-1.0 if np.isnan(v) else float(v) for v in returns.sound(found, len(text))]

    whole = "a=12+7=19\nb=19*3=57\nA:57\n"
    assert sound(whole, reward=1.0) == [1.0] * (len(whole) + 1)
    assert sound("a=12+7=19\n", ended=False) == [1.0] * 10
    assert sound("a=12+7=19\n") == [1.0] * 10 + [0.0], "it ended without an answer"
    # 18 begins as 19 does.
    assert sound("a=12+7=18\nA:54\n") == [1.0] * 8 + [0.0] + [-1.0] * 7
    assert sound("b=19*3=57\n", ended=False) == [0.0] + [-1.0] * 9, "a comes first"


def test_a_value_function_begins_with_what_the_generator_knows(train: Any) -> None:
    script, llama = train("train_value"), train("llama")
    base = llama.load(sources.resolve(GENERATOR))
    ids = torch.randint(3, 104, (2, 20), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(script.begun(base, 1)(ids), script.COOL * base(ids), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_an_interrupted_training_comes_to_the_same_weights(
    scripts: Any, train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, loop, setting = train("train_value"), train("loop"), train("setting")
    plan = script.Plan(GENERATOR, script.Target.Q, loop.Recipe(10_000, tokens=1024), GENERATOR)
    whole, stopped = (
        setting.Setting(begin(tmp_path / name), 5, 0.0003, 0.0) for name in ("whole", "stopped")
    )
    script.value("made", plan, whole)
    calls, loss_of = iter("ab"), script.loss_of

    def twice(*arguments: Any) -> Tensor:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return loss_of(*arguments)

    monkeypatch.setattr(script, "loss_of", twice)
    with pytest.raises(KeyboardInterrupt):
        script.value("made", plan, stopped)
    monkeypatch.setattr(script, "loss_of", loss_of)
    assert (stopped.checkpoints / "made.pt").exists() and not stopped.finished("made")
    script.value("made", plan, stopped)
    script.value("made", plan, stopped)  # there is nothing left to do
    assert scripts.files(stopped.into) == scripts.files(whole.into)
    assert f"of every next token, the probability that `{GENERATOR}` comes to the right answer" in (
        whole.models / "made" / "README.md"
    ).read_text("utf-8")


def test_what_values_do_is_measured_on_validation_problems(scripts: Any, train: Any, tmp_path: Path) -> None:
    script, setting = train("train_value"), train("setting")
    run = setting.Setting(begin(tmp_path / "run"), 5, 0.0003)
    script.value("tiny-value", script.PLANS["tiny-value"], run)
    options = ("--models", run.models, "--values", "tiny-value", "--into", tmp_path / "figures")
    command = scripts.command("value_figures.py", *options, "--problems", 1, "--samples", 2)
    said = scripts.here(command)
    rows = dict(re.findall(r"^\| (\S.*?) \| ([\d.]+) \[", said, re.MULTILINE))
    ways = train("value_figures").ways(run.models, ["tiny-value"])
    assert list(rows) == [way.name for way in ways]
    assert "| p | " in said and said.count("| – | – |") == 1
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "figures").rglob("*") if path.is_file()}
    again = scripts.here(command)
    assert again[again.index("| π |") :] == said[said.index("| π |") :]
    assert kept == {path: path.stat().st_mtime_ns for path in kept}, "nothing is drawn again"


def test_samples_of_other_models_problems_or_numbers_are_kept_beside(train: Any, tmp_path: Path) -> None:
    figures, models = train("value_figures"), begin(tmp_path / "run") / "models"
    shutil.copytree(sources.resolve("tiny-value"), models / "tiny-value")
    base, asked = models / GENERATOR, problems(Split.VALIDATION, 1, 2)

    def names(asked: list[Any], samples: int) -> list[str]:
        return [figures.file_of(way, base, asked, samples) for way in figures.ways(models, ["tiny-value"])]

    before = names(asked, 2)
    assert len(set(before)) == len(before) and names(asked, 2) == before
    assert not set(before) & {*names(asked, 3), *names(problems(Split.VALIDATION, 1, 2, 8), 2)}
    shutil.copy(base / "model.safetensors", models / "tiny-value")
    assert [a == b for a, b in zip(before, names(asked, 2), strict=True)] == [
        "tiny-value" not in name for name in before
    ]


# -------------------------------------------------------------------------------------------- tilts


@pytest.fixture
def tilts() -> Any:
    import runpy

    return runpy.run_path(str(EXAMPLES / "value_tilt.py"))


def test_values_of_right_or_wrong_say_what_the_soft_ones_are(tilts: Any) -> None:
    words, reward = tilts["WORDS"], tilts["reward"]
    plain = expected_values(words, reward)
    for weight in (0.3, 2.0):
        for begun, value in soft_values(words, reward, weight).items():
            assert math.exp(weight * value) == pytest.approx(1 + (math.exp(weight) - 1) * plain[begun])
    # p V / Z is what the model writes where it is right.
    right = tilts["by_tokens"](lambda begun: math.log(max(plain[begun], 1e-300)), 1.0)
    p, r = tilts["P"], tilts["R"]
    assert right == pytest.approx(p * r / (p @ r), abs=1e-12)


def test_no_tilt_wins_more_for_its_divergence_than_that_of_whole_words(scripts: Any) -> None:
    said = scripts.here([sys.executable, str(EXAMPLES / "value_tilt.py")])
    rows = [
        [float(cell) for cell in line.strip("| ").split(" | ")]
        for line in re.findall(r"^\| \d.*", said, re.M)
    ]
    both, equal = [row for row in rows if len(row) == 7], [row for row in rows if len(row) == 3]
    assert len(both) == 5 and len(equal) == 3
    assert all(same < 1e-12 and other > 1e-3 for *_, same, other in both)
    assert all(best > by_values for _, best, by_values in equal)
