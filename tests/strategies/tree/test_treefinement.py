"""Treefinement: who is revised, by what words, what is never paid for twice, and the laws."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from metagen.errors import InputError, PromptError, UnsupportedError
from metagen.generators.engine import Sample as Drawn
from metagen.generators.function import FunctionGenerator
from metagen.generators.torch import TorchEngine
from metagen.scope import Scope
from metagen.sequence import Prompt, Score, Sequence
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN
from metagen.strategies.refine.feedback import Feedback, Remark, Silence
from metagen.strategies.refine.refinement import Refinement
from metagen.strategies.tree.rebase import allocate
from metagen.strategies.tree.treefinement import Treefinement
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import StrategyLaws, first_word, last_word, numbers, run
from metagen.verifiers.base import Verifier
from metagen.verifiers.function import FunctionVerifier
from metagen.verifiers.reward import ProcessRewardModel
from tests.strategies.tree.checks import (
    PROMPT,
    Relative,
    is_cancelled_cleanly,
    resumes,
    slow,
    survives_a_failing_verifier,
    survives_every_budget,
)

WORD = "TAYLOR"


def told(sequence: Sequence) -> Score:
    """How much of the word is spelt, and which places are wrong."""
    wrong = [i for i, (a, b) in enumerate(zip(sequence.text, WORD, strict=True)) if a != b]
    return Score(1 - len(wrong) / len(WORD), feedback=" ".join(map(str, wrong)) or None)


def ask(task: Prompt, candidate: str, feedback: str | None) -> Prompt:
    return replace(task, text=f"{candidate}:{feedback or ''}")


def mend(prefix: Sequence, seed: int, index: int) -> str:
    """Draws the wrong letters anew; without a word on which they are, one letter wherever it is."""
    text, _, places = (prefix.prompt.text or "").partition(":")
    rng, letters = random.Random(seed), list(text)
    for i in map(int, places.split()) if places else [rng.randrange(len(WORD))]:
        letters[i] = rng.choice("TAYLORX")
    return "".join(letters)


def draft(prefix: Sequence, seed: int, index: int) -> str:
    return "".join(random.Random(seed).choices("TAYLORX", k=len(WORD)))


SPELLING = FunctionVerifier(told, name="spelling")  # type: ignore[arg-type]  # a Score, with words
DRAFTS = FunctionGenerator(draft, name="drafts", count=len, max_tokens=len(WORD))
MENDS = FunctionGenerator(mend, name="mends", count=len, max_tokens=len(WORD))


def make(n: int = 4, **options: object) -> Treefinement:
    given: dict[str, object] = {"verifier": SPELLING, "corrector": MENDS, "ask": ask, **options}
    return Treefinement(DRAFTS, n, **given)  # type: ignore[arg-type]


def written(
    drafts: list[str], revisions: dict[str, list[str]], scores: dict[str, float], **options: object
) -> Treefinement:
    """A search in which everything is said beforehand: the prompt of a revision is the candidate."""
    generator = FunctionGenerator(lambda p, s, i: drafts[i], name="drafts", count=len, max_tokens=9)
    corrector = FunctionGenerator(
        lambda p, s, i: revisions[p.prompt.text or ""][i], name="revisions", count=len, max_tokens=9
    )
    given: dict[str, object] = {"corrector": corrector, "accept": 0.95, **options}
    return Treefinement(
        generator, len(drafts), verifier=FunctionVerifier(lambda s: scores[s.text]),
        ask=lambda task, candidate, feedback: replace(task, text=candidate), **given,  # type: ignore[arg-type]
    )  # fmt: skip


def test_by_hand_revisions_are_shared_by_the_rule_of_rebase() -> None:
    scores = {"a": 0.1, "b": 0.4, "c": 0.5, "d": 0.6, "e": 0.7, "f": 0.2, "g": 0.3}
    search = written(["a", "b", "c"], {"b": ["d", "e"], "c": ["f", "g"]}, scores, rounds=1)
    assert allocate([0.1, 0.4, 0.5], 3) == [0, 1, 2]
    tree = search.tree(PROMPT)
    texts = {node.name: node.sequence.text for node in tree}
    assert texts == {"0": "", "0.0": "a", "0.1": "b", "0.2": "c", "0.1.0": "d", "0.2.0": "f", "0.2.1": "g"}
    assert tree.chosen is not None and tree.chosen.text == "d" and not tree.chosen.exhausted
    assert tree.chosen.scores["function"].value == 0.6


def test_by_hand_best_first_goes_back_to_what_was_left() -> None:
    scores = {"a": 0.5, "b": 0.4, "c": 0.1, "d": 0.2, "e": 0.6, "f": 0.3}
    revisions = {"a": ["c", "d"], "b": ["e", "f"], "e": ["a", "b"]}
    search = written(["a", "b"], revisions, scores, rounds=3, select="best-first", m=2)
    result = search.solve(PROMPT)
    paths = [row.path for row in result.trace.rows if row.kind == "generate"]
    assert list(dict.fromkeys(paths)) == ["0/node/0", "0/node/0.0", "0/node/0.1", "0/node/0.1.0"]
    assert result.text == "e"


def test_it_ends_with_the_round_in_which_something_is_accepted() -> None:
    scores = {"a": 0.1, "b": 0.95, "c": 1.0}
    result = written(["a", "b"], {}, scores, rounds=5).solve(PROMPT)
    assert result.text == "b" and result.usage.calls == 4
    # What is cut has no say, however good it looks.
    generator = FunctionGenerator(lambda p, s, i: Drawn("c", None, 1, finish="length") if not i else "a")
    verifier = FunctionVerifier(lambda s: scores[s.text])
    cut = Treefinement(generator, 2, verifier=verifier, rounds=1).solve(PROMPT)
    assert cut.text == "a" and any(row.path != "0/node/0" for row in cut.trace.rows if row.kind == "generate")


def test_what_was_there_before_is_neither_scored_nor_revised_again() -> None:
    """A copy, a text of another branch, and equal siblings."""
    scores = {"a": 0.5, "b": 0.5, "c": 0.6, "d": 0.2}
    revisions = {"a": ["a", "c"], "b": ["c", "c"], "c": ["d", "d", "a", "a"]}
    search = written(["a", "b", "a", "b"], revisions, scores, rounds=2)
    tree, result = search.tree(PROMPT), search.solve(PROMPT)
    states = {node.name: (node.sequence.text, node.state, node.multiplicity) for node in tree if node.parent}
    assert states == {
        "0.0": ("a", "expanded", 2), "0.1": ("b", "expanded", 2),
        "0.0.0": ("a", "pruned", 1), "0.0.1": ("c", "expanded", 1), "0.1.0": ("c", "pruned", 2),
        "0.0.1.0": ("d", "open", 2), "0.0.1.2": ("a", "pruned", 2),
    }  # fmt: skip
    scored = Counter(row.content for row in result.trace.rows if row.kind == "score")
    # Branches of one round are scored side by side: only there can a text come twice.
    assert sorted(scored.values()) == [1, 1, 1, 2]
    assert [c.sequence.text for c in result.candidates] == ["a", "b", "c", "d"]


def test_where_a_round_brings_nothing_new_it_is_tried_again() -> None:
    scores = {"a": 0.5, "b": 0.7}
    search = written(["a"], {"a": ["a", "a", "b"]}, scores, rounds=3)
    tree = search.tree(PROMPT)
    assert tree.chosen is not None and tree.chosen.text == "b"
    assert {n: c.sequence.text for n, c in tree["0.0"].draws.items()} == {0: "a", 1: "a", 2: "b"}


def test_what_is_tried_again_is_what_was_to_be_revised_and_not_the_best_of_all() -> None:
    scores = {"a": 0.5, "b": 0.3, "c": 0.2}
    tree = written(["a"], {"a": ["b", "c"], "b": ["b", "c"]}, scores, rounds=3).tree(PROMPT)
    assert {node.name: node.sequence.text for node in tree if node.parent} == {
        "0.0": "a", "0.0.0": "b", "0.0.0.0": "b", "0.0.0.1": "c",
    }  # fmt: skip


def test_what_was_drawn_more_often_is_revised_more_often() -> None:
    scores = {"a": 0.5, "b": 0.5, "c": 0.1, "d": 0.1, "e": 0.1}
    search = written(["a", "b", "a", "a"], {"a": ["c", "d", "e"], "b": ["c"]}, scores, rounds=1)
    tree = search.tree(PROMPT)
    assert (tree["0.0"].asked, tree["0.1"].asked) == (3, 1)


def test_what_its_feedback_holds_to_be_done_is_left_alone() -> None:
    class Content(Feedback):
        fingerprint = "content"

        async def on(self, candidate: Sequence, score: Score | None, scope: Scope) -> Remark:
            return Remark(done=candidate.text == "a")

    scores = {"a": 0.5, "b": 0.5, "c": 0.1}
    tree = written(["a", "b"], {"a": ["c"], "b": ["c"]}, scores, rounds=1, feedback=Content()).tree(PROMPT)
    assert (tree["0.0"].state, tree["0.1"].state) == ("pruned", "expanded")


def test_a_revision_of_nothing_is_a_node_and_no_more() -> None:
    search = written(["a", "a"], {"a": ["", " "]}, {"a": 0.5}, rounds=1)
    tree = search.tree(PROMPT)
    assert tree.chosen is not None and tree.chosen.text == "a"
    assert [node.state for node in tree["0.0"].children] == ["pruned", "pruned"]


def test_words_make_revisions_better() -> None:
    """Mean over seeds of how much is spelt, with the wrong places named and without."""

    def mean(search: Treefinement) -> float:
        return sum(told(search.solve(PROMPT, seed=s).sequence).value or 0.0 for s in range(25)) / 25

    with_words, without = mean(make(rounds=2)), mean(make(rounds=2, feedback=Silence()))
    drafts_only = mean(make(12, rounds=0))
    assert with_words > without + 0.1
    assert with_words > drafts_only + 0.1, "at the same number of programs"


def test_every_candidate_is_told_its_own_words_once() -> None:
    heard: list[str] = []

    def listen(prefix: Sequence, seed: int, index: int) -> str:
        heard.append(prefix.prompt.text or "")
        return mend(prefix, seed, index)

    corrector = FunctionGenerator(listen, name="listens", count=len, max_tokens=9)
    result = make(corrector=corrector, rounds=2).solve(PROMPT)
    for text in heard:
        candidate, _, words = text.partition(":")
        assert told(Sequence(PROMPT, candidate)).feedback == words
    remarks = [r for r in result.trace.rows if "feedback" in r.path]
    assert not remarks, "the verifier's own words cost nothing"


def test_one_program_a_round_is_a_chain_of_revisions() -> None:
    """What is revised is always the one before, as in `Refinement`."""
    scores = {"a": 0.2, "b": 0.1, "c": 0.4, "d": 0.3}
    chain = {"a": ["b"], "b": ["c"], "c": ["d"], "d": ["d"]}
    search = written(["a"], chain, scores, rounds=3)
    refinement = Refinement(
        search.generator, search.corrector, verifier=search.verifier, rounds=3, accept=0.95, ask=search.ask
    )
    one, other = search.solve(PROMPT), refinement.solve(PROMPT)
    assert one.text == other.text == "c"
    assert [c.sequence.text for c in one.candidates] == [c.sequence.text for c in other.candidates]


def test_what_does_not_fit_into_a_prompt_is_left_alone() -> None:
    def short(prefix: Sequence, seed: int, index: int) -> str:
        if "long" in (prefix.prompt.text or ""):
            raise PromptError("too long")
        return "better"

    generator = FunctionGenerator(lambda p, s, i: ("long", "b")[i], name="two")
    verifier = FunctionVerifier(lambda s: {"long": 0.6, "b": 0.5, "better": 0.7}[s.text])
    search = Treefinement(
        generator,
        2,
        verifier=verifier,
        corrector=FunctionGenerator(short, name="short"),
        rounds=2,
        temperature=5.0,
    )
    tree = search.tree(PROMPT)
    assert tree.chosen is not None and tree.chosen.text == "better"
    assert tree["0.0"].state == "pruned"


def test_results_begin_with_the_prefix_and_are_its_completions() -> None:
    def go_on(prefix: Sequence, seed: int, index: int) -> str:
        return f" then {seed % 97}"

    generator = FunctionGenerator(go_on, name="goes on", count=len, max_tokens=9)
    verifier = FunctionVerifier(lambda s: int(s.text.split()[-1]) / 97)
    strategy = BestOfN(Treefinement(generator, 2, verifier=verifier, rounds=2), 2, verifier=verifier)
    inner = strategy.generator
    begun = Sequence(PROMPT, "first")
    drawn, _ = run(lambda scope: inner.generate(begun, n=2, scope=scope.child("sample")))
    assert all(s.extends(begun) and s.text.startswith("first then") for s in drawn)


def test_under_every_number_of_calls_the_best_so_far_stands() -> None:
    for search in (make(rounds=2), make(rounds=2, select="best-first", m=2)):
        results = survives_every_budget(search)
        for result in results:
            values = [c.value for c in result.candidates if c.value is not None]
            if values:
                assert told(result.sequence).value == max(values)


def test_tokens_that_run_out_leave_the_best_so_far() -> None:
    for tokens in range(0, 80, 7):
        result = make(rounds=3, accept=1.0).solve(PROMPT, budget=tokens)
        assert (result.usage.generated or 0) <= tokens
        assert result.text or tokens < len(WORD)


def test_it_resumes_in_the_middle() -> None:
    resumes(make(rounds=2))
    resumes(make(rounds=2, select="best-first", m=2))


def test_a_verifier_that_fails_in_the_middle_loses_nothing_that_was_paid_for() -> None:
    def build(verifier: Verifier) -> Strategy:
        return make(2, verifier=verifier, rounds=2, feedback=Silence())

    survives_a_failing_verifier(build, lambda s: told(s).value or 0.0)


def test_a_verdict_in_place_of_a_value_comes_last_and_may_be_mended() -> None:
    verifier = FunctionVerifier(lambda s: Score(None, verdict="timeout") if s.text == "a" else 0.5)
    generator = FunctionGenerator(lambda p, s, i: "a" if "?" in (p.prompt.text or "") else "b", name="ab")
    told_: list[str | None] = []

    def note(task: Prompt, candidate: str, feedback: str | None) -> Prompt:
        told_.append(feedback)
        return replace(task, text="!")

    result = Treefinement(generator, 2, verifier=verifier, rounds=1, ask=note).solve(PROMPT)
    assert result.text == "b" and told_ == ["Verdict: timeout."]


def test_it_is_cancelled_cleanly() -> None:
    never = FunctionVerifier(lambda s: 0.5, name="never")
    is_cancelled_cleanly(make(verifier=never, corrector=slow(MENDS), rounds=50, feedback=Silence()))


def test_it_nests_in_best_of_n() -> None:
    result = BestOfN(make(2, rounds=1), 3, verifier=SPELLING).solve(PROMPT)
    assert len(result.candidates) == 3
    assert {row.path.split("/")[2] for row in result.trace.rows if row.kind == "generate"} == {"0", "1", "2"}


def test_the_tree_can_be_drawn() -> None:
    graph = make(rounds=1).tree(PROMPT).graph()
    assert graph.nodes["0.0"]["step"] == graph.nodes["0.0"]["text"] and len(graph.nodes["0.0"]["text"]) == 6
    assert sum(data["chosen"] for _, data in graph.nodes(data=True)) >= 2
    assert all(graph.nodes[n]["generated"] == 24 for n in ("0",))


def test_what_cannot_work_is_refused_when_it_is_built() -> None:
    for options, message in (
        ({"n": 0}, "n=0; expected an integer ≥ 1"),
        ({"m": 0}, "m=0"),
        ({"n": 4, "m": 3, "select": "best-first"}, "n=4 revisions cannot be made m=3 at a time"),
        ({"rounds": -1}, "rounds=-1; expected an integer ≥ 0"),
        ({"accept": 1.5}, "accept=1.5; expected a number in"),
        ({"temperature": 0.0}, "temperature=0.0"),
        ({"m": 2}, "m=2 is of select='best-first'; give that"),
        ({"select": "best-first", "temperature": 0.7}, "temperature=0.7 is of select='rebase'; leave it out"),
        ({"silent": True, "feedback": Silence()}, "silent=True: nothing is said, and feedback="),
        ({"select": "worst"}, "select='worst'; expected one of rebase, best-first"),
    ):
        with pytest.raises(InputError, match=message):
            make(**options)  # type: ignore[arg-type]
    beams = numbers()
    beams.independent = False
    with pytest.raises(UnsupportedError, match="draws jointly"):
        Treefinement(numbers(), 2, verifier=SPELLING, corrector=beams)
    with pytest.raises(UnsupportedError, match="relative to each other"):
        make(verifier=Relative(lambda s: 0.5))


def test_fingerprints_tell_configurations_apart() -> None:
    found = [
        make(), make(2), make(m=2, select="best-first"), make(rounds=1), make(accept=0.5), make(temperature=1.0),
        make(select="best-first"), make(feedback=Silence()), make(corrector=DRAFTS), make(verifier=first_word),
        make(answer=last_word), Treefinement(DRAFTS, 4, verifier=SPELLING, corrector=MENDS),
    ]  # fmt: skip
    assert len({s.fingerprint for s in found}) == len(found)


def again(task: Prompt, candidate: str, feedback: str | None) -> Prompt:
    return task


def test_on_the_embedded_models() -> None:
    """The models know no prompt for revisions: they are drawn anew, which is what there is to be tested here."""
    task = ArithmeticTask("validation", levels=(3,), per_level=1)
    (problem,) = task.problems()
    with TorchEngine("tiny-0.5m", threads=1) as model, TorchEngine("tiny-prm", threads=1) as judge:
        generator, verifier = model.generator(max_tokens=160), ProcessRewardModel(judge)
        search = Treefinement(
            generator, 3, verifier=verifier, feedback=Silence(), ask=again, rounds=2, answer=task.answer
        )
        result = search.solve(problem.prompt)
        assert result.sequence.finish == "eos" and result.answer is not None and result.answer.key
        values = [c.value for c in result.candidates if c.value is not None]
        assert result.sequence.scores["prm"].value == max(values)


class TestLaws(StrategyLaws):
    def make(self) -> Strategy:
        return Treefinement(numbers(), 3, verifier=first_word, rounds=2, answer=last_word)
