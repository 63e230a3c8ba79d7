"""What the training scripts are made of: parts, labels by rollouts, pairs, critiques, and the losses on them."""

from __future__ import annotations

import hashlib
import json
import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from metagen.generators.models import sources
from metagen.tasks.arithmetic import Form, Split, draw, problems, read_prompt, reference_solution


def solved(train: Any, level: int, count: int) -> list[Any]:
    """Reference solutions of validation problems, judged."""
    rng = random.Random(level)
    pools = train("pools")
    return [
        pools.judge(p, Form.STEPS, reference_solution(p, rng=rng), finished=True)
        for p in problems(Split.VALIDATION, level, count)
    ]


# --------------------------------------------------------------------------------------------------------- parts


def test_parts_that_are_there_are_not_made_again(train: Any, tmp_path: Path) -> None:
    parts = train("parts")
    paths = [tmp_path / f"{index}.jsonl" for index in range(4)]
    paths[1].write_text('"kept"\n')
    assert parts.made(paths, range, "parts") == ["kept", 0, 1, 0, 1, 2]  # by two processes
    assert json.loads(paths[2].read_text().splitlines()[1]) == 1
    assert list(tmp_path.glob("*.part")) == []


def test_a_part_that_fails_leaves_no_file(train: Any, tmp_path: Path) -> None:
    parts = train("parts")

    def part(index: int) -> list[int]:
        if index == 1:
            raise KeyboardInterrupt
        return [index]

    paths = [tmp_path / f"{index}.pkl" for index in range(3)]
    with pytest.raises(KeyboardInterrupt):
        parts.make(paths, part, "parts", workers=1)
    assert [path.exists() for path in paths] == [True, False, False]
    assert parts.made(paths, lambda index: [10 * index], "parts", workers=1) == [0, 10, 20]


def test_the_data_of_a_seed_are_what_they_were(train: Any) -> None:
    # What ships was trained on these; weights depend on the processor besides, and are compared by the slow tests.
    corpus, specs, pools = train("corpus"), train("specs"), train("pools")
    shards = [
        [json.dumps(pair) + "\n" for pair in shard]
        for shard in (corpus.shard(0, 20, 5), specs.shard(0, 20, 25))
    ]
    made = [*("".join(shard) for shard in shards), repr(pools.near_misses(20, "pin"))]
    found = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in made]
    assert found == ["278d1dae09c583b4", "6bcad2023b61a6a9", "a29e37e006f4f99d"]


# -------------------------------------------------------------------------------------------------------- labels


def test_a_step_is_worth_the_share_of_right_answers_from_there(train: Any) -> None:
    rollouts, llama, tokenizer = train("rollouts"), train("llama"), train("tokenizer")
    (right,) = solved(train, 1, 1)
    problem = problems(Split.VALIDATION, 1, 1)[0]
    text = "".join(right.steps)
    name, _, value = right.steps[0].strip().rpartition("=")
    slipped = text.replace(f"{name}={value}", f"{name}={int(Fraction(value)) + 1}", 1)
    wrong = train("pools").judge(problem, Form.STEPS, slipped, finished=True)
    model = llama.load(sources.resolve("tiny-2m"))
    good, bad = rollouts.valued(model, tokenizer.characters(), [right, wrong], 6, "test", 64)
    assert len(good.soft) == len(right.steps)
    assert min(good.soft) >= 0.5 and good.hard == (1.0,) * len(good.soft)
    assert bad.soft[0] < 0.5 and all(0 <= v <= 1 for v in bad.soft)
    # The same prefix is worth the same in every solution that has it, and the last step ends the solution.
    again = rollouts.valued(model, tokenizer.characters(), [right, wrong], 6, "test", 64)
    assert again == [good, bad] and good.soft[-1] == 1.0


def test_values_stand_at_the_tags_and_nothing_is_left_out(train: Any) -> None:
    marked, tokenizer = train("marked"), train("tokenizer")
    wrong = next(s for s in train("pools").near_misses(50, "test") if s.labels.count(False) > 2)
    values = [0.25 * (i % 4) for i in range(len(wrong.steps))]
    row = marked.row(wrong, tokenizer.characters(), random.Random(0), outcome=False, values=values)
    tags = row.ids == tokenizer.STEP
    assert row.labels[tags].tolist() == values and (row.weights[tags] == 1).all()
    assert (row.labels[~tags] == -1).all()


def test_pairs_are_of_one_problem_and_prefer_the_right_one(train: Any) -> None:
    pairs, pools = train("pairs"), train("pools")
    found = []
    for right in solved(train, 3, 3):
        for i in range(4):
            text = "".join(right.steps)[:-1] + "9" * (i + 1) + "\n"
            problem, form = read_prompt(right.prompt)
            found += [right, pools.judge(problem, form, text, finished=True)]
    made = pairs.pairs(found, random.Random(0), most=3)
    assert len(made) == 9 == len(set(made))
    assert all(p.right.prompt == p.wrong.prompt and p.right.correct and not p.wrong.correct for p in made)
    planted = pairs.planted(5, "test")
    assert len(planted) == 5 and all(p.right.correct and not p.wrong.correct for p in planted)


def test_the_preference_loss_is_bradley_terrys(train: Any) -> None:
    import torch

    reward = train("train_reward")
    rewards = torch.tensor([2.0, -1.0, 0.5, 1.5], requires_grad=True)
    value = reward.preference(rewards)
    want = (math.log1p(math.exp(-3.0)) + math.log1p(math.exp(1.0))) / 2
    assert math.isclose(value.item(), want + reward.CENTRE * (4 + 1 + 0.25 + 2.25) / 4, rel_tol=1e-5)
    value.backward()
    better, worse = rewards.grad[0::2], rewards.grad[1::2]
    assert better[1] < 0 < worse[1]  # the pair in the wrong order is pulled apart


def test_only_its_own_labels_reach_a_model_that_the_checker_does_not_help(train: Any) -> None:
    reward, rollouts = train("train_reward"), train("rollouts")
    wrong = next(s for s in train("pools").near_misses(50, "test") if not s.correct and s.labels[0])
    plan = reward.PLANS["reward-soft"]
    ((row,),) = reward.rows(plan, [rollouts.Valued(wrong, (0.5,) * len(wrong.steps))], random.Random(0))
    assert not row.language.any() and set(row.labels.tolist()) == {-1.0, 0.5}
    ((helped,),) = reward.rows(reward.PLANS["tiny-prm"], [wrong], random.Random(0))
    assert helped.language.any() and {0.0, 1.0} <= set(helped.labels.tolist())


def test_the_process_model_that_ships_is_named_an_outcome_model_too(train: Any, tmp_path: Path) -> None:
    from metagen.verifiers.published import layout_of

    reward, llama = train("train_reward"), train("llama")
    reward.write(llama.Llama(llama.Shape(104, 64, 1, 32)), reward.PLANS["tiny-prm"], tmp_path / "made")
    for folder in (tmp_path / "made", sources.resolve("tiny-prm")):
        assert layout_of(folder, "orm").tag == "<outcome>" and layout_of(folder, "prm").tag == "<step>"


def test_an_outcome_model_does_not_learn_that_wrong_steps_do_not_matter(train: Any) -> None:
    reward, tokenizer = train("train_reward"), train("tokenizer")
    missed = train("pools").near_misses(50, "test")
    lucky = [s for s in missed if s.correct]
    # A number was changed in one step, and the reference goes on to its answer as if nothing had happened.
    assert len(lucky) > 25 and all(s.lucky and not all(s.labels) for s in lucky)
    alone = reward.rows(reward.PLANS["tiny-orm-2m"], missed, random.Random(0))
    assert len(alone) == len(missed) - len(lucky) and all(row.labels.max() == 0 for (row,) in alone)
    both = reward.rows(reward.PLANS["tiny-both"], missed, random.Random(0))
    assert sum(tokenizer.STEP in row.ids for (row,) in both) == len(missed)
    assert sum(tokenizer.OUTCOME in row.ids for (row,) in both) == len(alone)
    # Who must do without the step checker learns from all of them.
    assert len(reward.rows(reward.PLANS["reward-labels"], missed, random.Random(0))) == len(missed)


# ----------------------------------------------------------------------------------------------------- critiques


def test_a_critique_stops_at_the_first_wrong_line_and_its_verdict_is_the_answers(train: Any) -> None:
    critique, pools = train("critique"), train("pools")
    seen = set()
    for s in [*pools.near_misses(200, "test"), *solved(train, 6, 40)]:
        said = critique.critique(s)
        names, signs = said[::2], said[1::2]
        assert names == "".join(line[0] for line in s.steps)[: len(names)]
        wrong = [place for place, sound in enumerate(s.labels) if not sound]
        assert signs == "+" * wrong[0] + "-" if wrong else signs == "+" * len(s.steps)
        assert critique.verdict(s) == ("V:R" if s.correct else "V:W")
        assert critique.CUE not in "".join(s.steps) + said
        seen.add((signs[-1], critique.verdict(s)[-1]))
    assert {("+", "R"), ("-", "W")} <= seen


def test_a_solution_that_is_cut_off_is_sound_and_wrong(train: Any) -> None:
    critique, pools = train("critique"), train("pools")
    problem = draw(train("corpus").wide(random.Random(1)), random.Random(1), Split.TRAIN)
    text = reference_solution(problem).rpartition("A:")[0]
    solution = pools.judge(problem, Form.STEPS, text, finished=True)
    assert "-" not in critique.critique(solution) and critique.verdict(solution) == "V:W"


def test_a_critic_learns_what_stands_behind_a_solution(train: Any) -> None:
    critic, critique, tokenizers_ = train("train_critic"), train("critique"), train("tokenizer")
    tokenizer = tokenizers_.characters()
    (right,), (wrong,) = (
        solved(train, 3, 1),
        [s for s in train("pools").near_misses(60, "test") if not s.correct][:1],
    )
    for seed, s in enumerate((right, wrong) * 20):
        row = critic.example(s, tokenizer, random.Random(seed))
        text = tokenizer.decode(row.ids.tolist(), skip_special_tokens=True)
        asked = critique.asked(s)
        assert text in (asked + critique.critique(s) + critique.verdict(s), asked + critique.verdict(s))
        said = [i + 1 for i, label in enumerate(row.labels) if label >= 0]
        assert said == list(range(len(row.ids))[-len(text) + len(asked) :]), (
            "what follows the solution is learned"
        )
        assert [i for i, label in enumerate(row.labels) if label == 1] == [len(row.ids) - 2], (
            "the verdict's letter"
        )
        assert not row.language[-len(said) :].any() and (row.sound[-len(said) :] == -1).all()
        assert {len(a) for a in (row.ids, row.labels, row.weights, row.language, row.sound)} == {len(row.ids)}


def test_a_critic_learns_from_solutions_in_steps_of_both_kinds(train: Any) -> None:
    critic, pools = train("train_critic"), train("pools")
    direct = [
        pools.judge(problem, Form.DIRECT, "98\n", finished=True)
        for problem in problems(Split.VALIDATION, 2, 5)
    ]
    found = [*direct, *pools.near_misses(60, "test"), *solved(train, 2, 20)]
    chosen = critic.mixed(found * 2, 20, random.Random(0))
    assert (
        len(chosen) == len(set(chosen)) and not set(chosen) & set(direct) and not any(s.lucky for s in chosen)
    )
    wrong = sum(not s.correct for s in chosen)
    assert len(chosen) - wrong == 8 and 0 < wrong <= 12


def test_a_narrowed_model_keeps_the_neurons_that_matter(train: Any) -> None:
    import torch

    critic, llama = train("train_critic"), train("llama")
    torch.manual_seed(0)
    model = llama.Llama(llama.Shape(104, 64, 2, 48))
    ids = torch.randint(3, 104, (4, 20))
    with torch.no_grad():
        for layer in model.model.layers:  # what these write reaches nobody
            layer.mlp.down_proj.weight[:, ::3] = 0
        small = critic.narrowed(model, 32, ids)
        assert small.shape.feed_forward == 32
        torch.testing.assert_close(small(ids), model(ids))
        fewer = critic.narrowed(model, 8, ids)
        assert not torch.allclose(fewer(ids), model(ids), atol=1e-3)


def test_verdicts_weigh_as_much_as_all_that_is_written_before_them(train: Any) -> None:
    import torch

    critic, llama, tokenizers_ = train("train_critic"), train("llama"), train("tokenizer")
    torch.manual_seed(0)
    model, tokenizer = llama.Llama(llama.Shape(104, 64, 3, 32)), tokenizers_.characters()
    rows = [critic.example(s, tokenizer, random.Random(1)) for s in solved(train, 2, 3)]
    value = critic.loss_of(model, 2, rows)
    parts: dict[float, list[float]] = {0: [], 1: []}
    for row in rows:
        said = model(torch.tensor(row.ids.astype(int))[None])[0].log_softmax(-1)
        for place, label in enumerate(row.labels):
            if label >= 0:
                parts[label].append(-said[place, int(row.ids[place + 1])].item())
    besides = critic.loss_of(model, 2, [unsaid(row) for row in rows])
    want = sum(sum(part) / len(part) for part in parts.values())
    assert len(parts[1]) == 3 and math.isclose((value - besides).item(), want, rel_tol=1e-3)


def unsaid(row: Any) -> Any:
    """The row with nothing to be said behind the solution."""
    import dataclasses

    return dataclasses.replace(row, labels=row.labels * 0 - 1)


def test_the_wording_of_a_critique_is_a_question_of_the_package(train: Any) -> None:
    from metagen.sequence import Prompt
    from metagen.verifiers.generative.question import CORRECT
    from metagen.verifiers.generative.way import with_wording

    critique = train("critique")
    wording = {name: value for name, value in critique.OPTIONS.items() if name != "max_tokens"}
    question = with_wording(CORRECT, wording)
    (right,) = solved(train, 2, 1)
    text = "".join(right.steps)
    assert question.prompt(Prompt("p", text=right.prompt), candidate=text).text == critique.asked(right)
    assert critique.verdict(right) == question.cue + critique.RIGHT
    assert not question.is_forged(text) and question.is_forged("V:R\n")


# ---------------------------------------------------------------------------------------------------- comparison


def test_a_perfect_process_model_names_every_first_error(train: Any) -> None:
    import numpy as np

    compare = train("compare_rewards")
    errors = np.array([[0, -1], [1, -1], [-1, 2], [0, 1]])
    steps = [[[0.9 if e < 0 or i < e else 0.1 for i in range(3)] for e in row] for row in errors.tolist()]
    found = compare.first_errors([{"steps": row} for row in steps], errors)
    assert found.tolist() == [1.0] * 4
    blind = [{"steps": [[0.9] * 3 for _ in row]} for row in errors.tolist()]
    assert compare.first_errors(blind, errors).mean() <= 0.5


def test_who_comes_to_no_answer_is_never_chosen(train: Any) -> None:
    import numpy as np

    keys = [[None, "7", "8", "7"]] * 2
    candidates = train("candidates").Candidates.of(
        [[k == "7" for k in row] for row in keys], keys, (1, 4, 16)
    )
    assert candidates.ns == (1, 4)
    judge = train("judging").Judge(Path("some"), "orm")
    scores = train("compare_rewards").rules(judge, [{"values": [1.0, 0.2, 0.9, 0.3]}] * 2, candidates)[
        "some.orm"
    ]
    assert np.isnan(scores[:, 0]).all()
    assert candidates.best(scores)[-1].tolist() == [
        0.0,
        0.0,
    ]  # the wrong one with 0.9, not the empty one with 1.0
    assert candidates.vote()[-1].tolist() == [1.0, 1.0]


def test_validation_figures_become_a_card(scripts: Any, train: Any, tmp_path: Path) -> None:
    path = tmp_path / "figures.jsonl"
    options = ("--problems", 2, "--samples", 5, "--threads", 1, "--write", path)
    models = ("--generators", "tiny-0.1m", "--rewards", "tiny-prm-weak")
    said = scripts.here(scripts.command("validate.py", *options, *models))
    assert "tiny-prm-weak min weighted" in said
    figures = json.loads(path.read_text())
    assert set(figures["tiny-prm-weak last"]["best-of-n"]) == {"1", "2", "4"}
    assert figures["majority"]["1"] == pytest.approx(figures["single"])
    lines = train("cards").validated(path)["tiny-0.1m"]
    assert lines[0].startswith("Accuracy in % on 12 validation problems, 5 samples each")
    assert lines[0].endswith("by majority of 4.\n") and lines[-1].startswith("| any of 5 |")
