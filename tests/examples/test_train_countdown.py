"""The recipe of the Countdown family, on a small share of its steps and data: `countdown/countdown_family.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metagen.tasks.countdown import notation
from metagen.tasks.countdown.game import moves, reachable, table
from metagen.tasks.countdown.problems import TARGETS
from metagen.tasks.split import Split

PROPOSER, VALUE = "tiny-countdown", "tiny-countdown-value"
SCRIPT = "countdown/countdown_family.py"


@pytest.mark.slow
def test_an_interrupted_run_comes_to_the_same_weights_bit_for_bit(scripts: Any, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    scripts.run(SCRIPT, whole)
    scripts.interrupt(SCRIPT, broken, (broken / "checkpoints" / f"{PROPOSER}-1.pt").exists)
    scripts.run(SCRIPT, broken)
    assert scripts.files(whole) == scripts.files(broken)
    config = json.loads((whole / "models" / VALUE / "config.json").read_text())
    assert config["metagen"]["kind"] == "prm"


def test_the_corpus_is_of_the_training_space_and_right(train: Callable[[str], Any]) -> None:
    games = train("games")
    problems = train("metagen.tasks.countdown.problems")
    for prompt, completion in games.shard(0, 30, 0):
        numbers, target = notation.read_prompt(prompt)
        assert all(notation.check(numbers, target, completion, finished=True))
        asked = problems.Problem(tuple(int(n) for n in numbers), int(target))
        assert problems.split_of(asked) is Split.TRAIN
    assert games.shard(0, 5, 1) == games.shard(0, 5, 1) != games.shard(1, 5, 1)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_what_many_tables_can_reach_is_what_the_solver_says_of_each(
    train: Callable[[str], Any], count: int
) -> None:
    arrays = train("arrays")
    rng = np.random.default_rng(count)
    tables = rng.integers(1, 60 if count < 4 else 13, (12, count))
    reached = arrays.members(arrays.reach(tables))
    for row, found in zip(tables.tolist(), reached, strict=True):
        assert found.tolist() == [reachable(table(row), target) for target in TARGETS]
    targets = rng.integers(TARGETS.start, TARGETS.stop, len(tables))
    assert (arrays.has(arrays.reach(tables), targets) == reached[range(12), targets - TARGETS.start]).all()


def test_what_results_are_allowed_is_what_the_game_says(train: Callable[[str], Any]) -> None:
    results = train("arrays").results()
    assert not results[0].any() and not results[:, 0].any()
    for a, b in np.random.default_rng(0).integers(1, 1000, (200, 2)).tolist():
        assert {r for r in results[a, b].tolist() if r} == {move.result for move in moves(table([a, b]))}


def test_random_games_keep_to_the_rules_and_their_labels_are_the_solvers(train: Callable[[str], Any]) -> None:
    tables = train("tables")
    told = tables.some_games(0, 0, 40)
    assert told == tables.some_games(0, 0, 40) != tables.some_games(1, 0, 40)
    for game in told:
        prompt, _, steps = game.text.partition("S:\n")
        numbers, target = notation.read_prompt(f"{prompt}S:\n")
        text = steps.replace(tables.TAG, "")
        assert notation.replay(numbers, text).complete in (True, False)
        assert list(game.labels) == notation.check(numbers, target, text, finished=True)
        assert all(notation.replay(numbers, text).steps) and len(game.tables) == len(game.labels)
    lost = [sum(game.labels) for game in told if len(game.tables) == 4]
    assert len(set(lost)) > 2  # a target goes out of reach at any step


@pytest.mark.parametrize(
    ("text", "ended", "labels"),
    [
        ("7*3=21;2 5 21\n5-2=3;3 21\n21+3=24;24\n", True, (True, True, True)),
        ("7*3=21;2 5 21\n5-2=3;3 21\n21+3=24;24", True, (True, True, True)),
        ("7*3=21;2 5 21\n5-2=3;3 2", False, (True,)),
        ("7-5=2;2 2 3\n2*2=4;3 4\n4*3=12;12\n", True, (True, True, False)),
        ("7*3=22;2 5 22\n5-2=3;3 22\n", True, (False,)),
        ("", True, ()),
    ],
)
def test_attempts_are_labelled_by_what_can_still_be_reached(
    train: Callable[[str], Any], text: str, ended: bool, labels: tuple[bool, ...]
) -> None:
    tables, problems = train("tables"), train("metagen.tasks.countdown.problems")
    found = tables.judged(problems.Problem((3, 5, 7, 2), 24), text, ended)
    assert len(found.labels) == len(labels) and found.labels[-1:] == labels[-1:]
    (row,) = tables.rows([found])
    assert len(row.tags) == len(labels) and len(row.sets) == len(found.tables)


def test_a_number_is_one_token_and_every_text_comes_back(train: Callable[[str], Any]) -> None:
    vocabulary = train("vocabulary")
    tokenizer = vocabulary.numbers()
    text = "Q:3 25 7=624\nS:\n25*25=625;3 625\n<step>007 1024 0 x"
    encoded = tokenizer.encode(text)
    assert encoded.ids[1:] == vocabulary.ids(text)
    assert encoded.tokens[1:8] == ["Q", ":", "3", " ", "25", " ", "7"] and "625" in encoded.tokens
    assert tokenizer.decode(encoded.ids[1:], skip_special_tokens=False) == text


def test_the_loss_of_the_sets_alone_teaches_what_can_be_reached(train: Callable[[str], Any]) -> None:
    """A few steps on a few games: both losses fall, so both gradients reach the model."""
    import torch

    tables, values, llama, vocabulary = map(train, ("tables", "values", "llama", "vocabulary"))
    torch.manual_seed(0)
    rows = tables.rows(tables.some_games(0, 0, 30))
    model = llama.Llama(llama.Shape(vocabulary.numbers().get_vocab_size(), 32, 3, 32))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses = []
    for _ in range(30):
        loss = values.loss_of(model, rows, 1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    said = values.said(model, rows)
    assert [len(p) for p in said] == [len(row.tags) for row in rows]
