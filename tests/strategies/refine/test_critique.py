"""Feedback by a model: Self-Refine, which stops when the model says so, and Reflexion, which remembers."""

from __future__ import annotations

import random

import pytest

from metagen.errors import InputError
from metagen.generators.function import FunctionGenerator
from metagen.sequence import Prompt, Score, Sequence
from metagen.strategies.prompts import FollowUp
from metagen.strategies.refine.feedback import CRITIQUE, REFLECT, STOP, Critique
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.refine.reflexion import RETRY, Reflexion
from metagen.strategies.refine.self_refine import SelfRefine
from metagen.testing import StrategyLaws, first_word, numbers, run
from metagen.verifiers.function import FunctionVerifier

PROMPT = Prompt("p", text="Say seven.\n")


def model(heard: list[str] | None = None) -> FunctionGenerator:
    """One model in three roles: it counts up, finds fault with all below seven, and is content with that."""

    def write(prefix: Sequence, seed: int, index: int) -> str:
        asked = (prefix.prompt.text or "").strip()
        if heard is not None:
            heard.append(asked)
        *_, said = asked.removeprefix("Say seven.").split("\n\n")
        numbers = [int(word) for word in asked.split() if word.isdigit()]
        if "Check this answer" in said:
            return (
                f"**{STOP.lower()}.**"
                if numbers[-1] == 7
                else f"{numbers[-1]} is not seven. {STOP} is not due."
            )
        if "attempt has failed" in said:
            return f"I should go above {numbers[-1]}."
        return str(numbers[-1] + 1 if numbers else 4)

    return FunctionGenerator(write, name="model", count=lambda text: len(text.split()), max_tokens=12)


class TestSelfRefine(StrategyLaws):
    def make(self) -> SelfRefine:
        return SelfRefine(numbers(), rounds=2)


class TestReflexion(StrategyLaws):
    def make(self) -> Reflexion:
        return Reflexion(numbers(), verifier=first_word, accept=0.95, rounds=2)


def test_it_criticises_itself_and_stops_when_nothing_is_left_to_mend() -> None:
    strategy = SelfRefine(model(), rounds=9)
    chain, rows = run(lambda s: strategy.trajectory(Sequence.of(PROMPT), s))
    assert [one.candidate.sequence.text for one in chain.rounds] == ["4", "5", "6", "7"]
    assert chain.ended == "content" and chain.rounds[chain.best].candidate.sequence.text == "7"
    assert [row.path for row in rows] == [
        "sample", "feedback/1", "revise/1", "feedback/2", "revise/2", "feedback/3", "revise/3", "feedback/4",
    ]  # fmt: skip
    assert chain.rounds[0].remark is not None and not chain.rounds[0].remark.done
    assert SelfRefine(model(), rounds=9).solve(PROMPT).text == "7"


def test_the_prompt_of_a_revision_is_that_of_the_paper() -> None:
    """x, y_0, f_0, …, y_k, f_k; with memory=0, x, y_k, f_k."""
    heard: list[str] = []
    tell = FollowUp("<{feedback}>")
    SelfRefine(model(heard), rounds=2, ask=tell).solve(PROMPT)
    first, second = (
        "4 is not seven. NOTHING TO MEND is not due.",
        "5 is not seven. NOTHING TO MEND is not due.",
    )
    assert heard[2] == f"Say seven.\n4\n\n<{first}>"
    assert heard[4] == f"Say seven.\n4\n\n<{first}>\n\n5\n\n<{second}>"
    heard.clear()
    SelfRefine(model(heard), rounds=2, ask=tell, memory=0).solve(PROMPT)
    assert heard[4] == f"Say seven.\n5\n\n<{second}>"


def test_with_a_verifier_the_best_is_kept_even_if_the_critic_goes_on() -> None:
    five = FunctionVerifier(lambda s: 1 - abs(5 - int(s.text)) / 10)
    strategy = SelfRefine(model(), verifier=five, accept=1.0, rounds=9)
    assert strategy.solve(PROMPT).text == "5"
    never = SelfRefine(
        model(), verifier=FunctionVerifier(lambda s: 0.9 - abs(5 - int(s.text)) / 10), rounds=2
    )
    result = never.solve(PROMPT)
    assert result.text == "5" and [o.sequence.text for o in result.candidates] == ["4", "5", "6"]


@pytest.mark.parametrize(
    "said", [STOP, f"All is well.\n{STOP.lower()}!", f"\n  ** {STOP} **\nbecause it is right"]
)
def test_content_is_a_line_of_its_own(said: str) -> None:
    critic = Critique(FunctionGenerator(lambda p, s, i: said))
    remark, _ = run(lambda s: critic.on(Sequence(PROMPT, "7", finish="eos"), None, s))
    assert remark.done and remark.text == said.strip()


@pytest.mark.parametrize("said", [f"I cannot write {STOP} yet.", "", "Wrong."])
def test_anything_else_is_not(said: str) -> None:
    critic = Critique(FunctionGenerator(lambda p, s, i: said))
    remark, _ = run(lambda s: critic.on(Sequence(PROMPT, "7", finish="eos"), None, s))
    assert not remark.done and remark.text == (said or None)
    assert Critique(critic.generator, stop=None).fingerprint != critic.fingerprint
    unstopped = Critique(FunctionGenerator(lambda p, s, i: STOP), stop=None)
    assert not run(lambda s: unstopped.on(Sequence(PROMPT, "7", finish="eos"), None, s))[0].done


def test_another_model_may_be_the_critic() -> None:
    heard: list[str] = []
    critic = FunctionGenerator(lambda p, s, i: heard.append(p.prompt.text or "") or STOP, name="critic")  # type: ignore[func-returns-value]
    result = SelfRefine(model(), critic=critic, rounds=3).solve(PROMPT)
    assert (
        result.text == "4" and len(heard) == 1 and CRITIQUE.unsaid is not None and CRITIQUE.unsaid in heard[0]
    )


def test_reflections_are_made_of_the_verifiers_words_and_carried_to_the_next_attempts() -> None:
    heard: list[str] = []
    verifier = FunctionVerifier(lambda s: Score(float(s.text == "7"), feedback=f"{s.text} != 7"))
    result = Reflexion(model(heard), verifier=verifier, rounds=5, memory=2).solve(PROMPT)
    assert result.text == "7" and len(result.candidates) == 4
    reflected = [one for one in heard if "attempt has failed" in one]
    tried = [one for one in heard if "another attempt" in one]
    assert [one.count("!=") for one in reflected] == [1, 1, 1], (
        "a reflection is on one attempt, by the verifier's words"
    )
    assert [one.count("I should go above") for one in tried] == [1, 2, 2], "two are remembered"
    assert all("!= 7" not in one for one in tried)
    assert "{feedback}" in RETRY.words and "{feedback}" in REFLECT.words


def test_options_are_checked_and_named() -> None:
    with pytest.raises(InputError, match="memory=0; expected an integer ≥ 1"):
        Reflexion(numbers(), verifier=first_word, memory=0)
    with pytest.raises(InputError, match="SelfRefine: rounds=-1"):
        SelfRefine(numbers(), rounds=-1, memory=0)
    with pytest.raises(InputError, match=r"SelfRefine: accept=0\.7 ends nothing"):
        SelfRefine(numbers(), accept=0.7)
    for stopped in (SelfRefine, Critique):
        with pytest.raises(InputError, match="stop=''; expected a text that is not empty or None"):
            stopped(numbers(), stop="")
    made = [
        SelfRefine(numbers()), SelfRefine(numbers(), memory=1), SelfRefine(numbers(), stop=None),
        SelfRefine(numbers(), critique=REFLECT), SelfRefine(numbers(), critic=model()),
        Reflexion(numbers(), verifier=first_word), Reflexion(numbers(), verifier=first_word, memory=1),
    ]  # fmt: skip
    assert len({one.fingerprint for one in made}) == len(made)


def test_self_refine_is_refinement_with_the_models_own_critique() -> None:
    """The same chain, whoever builds it; and noisy words lead no further than chance."""
    same = Refinement(model(), feedback=Critique(model()), rounds=4, memory=4)
    assert SelfRefine(model(), rounds=4).solve(PROMPT).text == same.solve(PROMPT).text

    def babble(prefix: Sequence, seed: int, index: int) -> str:
        return random.Random(seed).choice(["fine", "wrong", STOP])

    ends = {
        run(
            lambda s: SelfRefine(FunctionGenerator(babble), rounds=3).trajectory(Sequence.of(PROMPT), s),
            seed=i,
        )[0].ended
        for i in range(20)
    }
    assert ends == {"content", "rounds"}
