"""Utilities of texts against the libraries that define them, and against published test values."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu import metrics

from metagen.errors import InputError
from metagen.scope import Scope
from metagen.verifiers.function import FunctionRule
from metagen.verifiers.utility.base import TextUtility
from metagen.verifiers.utility.bleu import BLEU
from metagen.verifiers.utility.chrf import ChrF
from metagen.verifiers.utility.edit import EditSimilarity
from metagen.verifiers.utility.ngrams import ngrams, words
from metagen.verifiers.utility.rouge import RougeL
from metagen.verifiers.utility.token_f1 import TokenF1

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "mbrs.json").read_text("utf-8"))
WORDS = [
    "the",
    "cat",
    "sat.",
    "on,",
    "a",
    "'mat'",
    "Ähre",
    "3.5%",
    "(or)",
    "don't",
    "x\xa0y",
    "—",
    "日本",
    "\t",
    "\n",
    "!",
    "a.b",
]
TEXTS = ["", " ", "a", "a.", "(b)", "!!", "hello, world.", "the an a", "日本語", "\U0001f600 ok", "a\u2003b"]
TEXTS += [" ".join(random.Random(i).choices(WORDS, k=i)) for i in range(1, 30)]
texts = st.lists(st.one_of(st.text(max_size=12), st.lists(st.sampled_from(WORDS)).map(" ".join)), min_size=1)


def percent(values: object) -> np.ndarray:
    return 100 * np.asarray(values)


@pytest.mark.parametrize(
    "options",
    [{}, {"word_order": 2}, {"lowercase": True}, {"whitespace": True}, {"beta": 1}, {"char_order": 2}],
    ids=str,
)
def test_chrf_is_that_of_sacrebleu(options: dict[str, Any], ask) -> None:
    theirs = metrics.CHRF(**options)
    expected = [[theirs.sentence_score(y, [z]).score for z in TEXTS] for y in TEXTS]
    assert np.allclose(percent(ask.matrix(ChrF(**options), TEXTS)), expected, rtol=0, atol=1e-10)


@given(texts, texts)
def test_chrf_of_any_texts(ours: list[str], theirs: list[str]) -> None:
    metric = metrics.CHRF(word_order=2)
    expected = [[metric.sentence_score(y, [z]).score for z in theirs] for y in ours]
    assert np.allclose(percent(ChrF(word_order=2).compare(ours, theirs)), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "options", [{}, {"lowercase": True}, {"tokenize": "char"}, {"max_order": 2}], ids=str
)
@pytest.mark.parametrize("effective", [True, False])
def test_bleu_is_that_of_sacrebleu(options: dict[str, Any], effective: bool, ask) -> None:
    named = {"max_ngram_order" if k == "max_order" else k: v for k, v in options.items()}
    theirs = metrics.BLEU(**named, effective_order=effective)
    expected = [[theirs.sentence_score(y, [z]).score for z in TEXTS] for y in TEXTS]
    ours = ask.matrix(BLEU(**options, effective_order=effective), TEXTS)
    assert np.allclose(percent(ours), expected, rtol=0, atol=1e-10)


@given(texts, texts)
def test_bleu_of_any_texts(ours: list[str], theirs: list[str]) -> None:
    metric = metrics.BLEU(effective_order=True)
    expected = [[metric.sentence_score(y, [z]).score for z in theirs] for y in ours]
    assert np.allclose(percent(BLEU().compare(ours, theirs)), expected, rtol=0, atol=1e-10)


def test_published_chrf(ask) -> None:
    given = VECTORS["chrf"]
    ours, theirs = given["HYPOTHESES"], given["REFERENCES"]
    assert np.allclose(percent(ask.matrix(ChrF(), ours, theirs)), given["SCORES"], rtol=0, atol=5e-4)
    aggregated = percent(ask.expected(ChrF(aggregate=True), ours, theirs))
    assert np.allclose(aggregated, given["EXPECTED_SCORES_AGGREGATED"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("effective", [True, False])
def test_published_bleu(effective: bool, ask) -> None:
    given, name = VECTORS["bleu"], str(effective).lower()
    ours, theirs = given["HYPOTHESES"], given["REFERENCES"]
    matrix = percent(ask.matrix(BLEU(effective_order=effective), ours, theirs))
    assert np.allclose(matrix, given["SCORES_EFFECTIVE_ORDER"][name], rtol=0, atol=5e-4)
    aggregated = percent(ask.expected(BLEU(aggregate=True, effective_order=effective), ours, theirs))
    assert np.allclose(aggregated, given["EXPECTED_SCORES_AGGREGATED"][name], rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", range(4))
def test_published_choices(case: int, ask) -> None:
    plain, aggregate = VECTORS["decoders"], VECTORS["aggregate"]
    for case_of, utility, best, score in (
        (plain, BLEU(), plain["BEST_INDICES"], plain["SCORES"]["bleu"]),
        (aggregate, ChrF(aggregate=True), aggregate["BEST_INDICES_CHRF"], aggregate["SCORES_CHRF"]),
        (aggregate, BLEU(aggregate=True), aggregate["BEST_INDICES_BLEU"], aggregate["SCORES_BLEU"]["true"]),
    ):
        ours, theirs = case_of["HYPOTHESES"][case], case_of["REFERENCES"][case]
        expected = percent(ask.expected(utility, ours, theirs))
        assert expected.argmax() == best[case]
        assert expected.max() == pytest.approx(score[case], abs=5e-4)


def test_aggregation_is_a_mean_of_counts_not_of_scores(ask) -> None:
    candidate, references, letters = ["ab"], ["aa", "bb"], {"char_order": 1}
    assert ask.expected(ChrF(**letters), candidate, references) == pytest.approx([0.5])
    # One a and one b on average: just what the candidate has.
    assert ask.expected(ChrF(**letters, aggregate=True), candidate, references) == pytest.approx([1.0])
    # Three times the weight on aa: the mean bag has 1.5 a and .5 b, so that P = 1 and R = 1/2.
    weighted = ask.expected(ChrF(**letters, aggregate=True), ["a"], references, [3, 1])
    assert weighted == pytest.approx([5 * 1 * 0.5 / (4 * 1 + 0.5)])


def test_rouge_l_is_that_of_rouge_score(ask) -> None:
    ours = ["police killed the gunman", "police kill the gunman", "the gunman kill police", "",
            "Don't stop: 3.5 km!", "Übung macht"]  # fmt: skip
    theirs = ["police killed the gunman", "the gunman police killed", "don t stop 3 5", "macht Übung"]
    # fmeasure of rouge-score 0.1.2, without stemming.
    expected = [
        [1, 0.5, 0, 0],
        [0.75, 0.5, 0, 0],
        [0.5, 0.75, 0, 0],
        [0] * 4,
        [0, 0, 10 / 11, 0],
        [0, 0, 0, 0.5],
    ]
    assert np.allclose(ask.matrix(RougeL(), ours, theirs), expected, rtol=0, atol=1e-12)
    assert ask.matrix(RougeL(token=r"\w+"), ["Übung macht"], ["macht Übung"]) == pytest.approx(0.5)
    with pytest.raises(InputError, match=r"token='\(' is not a regular expression"):
        RougeL(token="(")


def test_token_f1_is_that_of_squad(ask) -> None:
    ours = ["The Eiffel Tower", "eiffel tower, Paris", "a", "", "no no yes", "tower"]
    theirs = ["Eiffel-Tower", "the eiffel tower", "", "no yes yes"]
    expected = [[0, 1, 0, 0], [0, 0.8, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 2 / 3], [0, 2 / 3, 0, 0]]
    assert np.allclose(ask.matrix(TokenF1(), ours, theirs), expected)


def test_edit_similarity(ask) -> None:
    matrix = ask.matrix(EditSimilarity(), ["kitten", ""], ["sitting", "kitten", ""])
    assert np.allclose(matrix, [[1 - 3 / 7, 1, 0], [0, 0, 1]])


def test_what_the_rule_reads_is_compared(ask) -> None:
    rule = FunctionRule(lambda text: text.partition("A:")[2].strip() or None)
    ours = ["long talk A: red car", "A:red car", "red car"]
    assert np.allclose(ask.matrix(TokenF1(answer=rule), ours), [[1, 1, 0], [1, 1, 0], [0, 0, 1]])


def test_equal_texts_are_compared_once(ask) -> None:
    class Counting(TextUtility):
        symmetric = True

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[list[str], list[str] | None]] = []

        def compare(self, candidates: list[str], references: list[str] | None) -> np.ndarray:
            self.seen.append((candidates, references))
            return np.ones((len(candidates), len(candidates if references is None else references)))

    utility = Counting()
    assert ask.matrix(utility, ["b", "a", "b", "b"]).shape == (4, 4)
    ask.expected(utility, ["b", "a"], ["a", "a"])
    assert utility.seen == [(["a", "b"], None), (["a", "b"], ["a"])]


def test_clipped_matches_by_hand() -> None:
    one, two = ngrams(words([["a", "b", "a", "a"], ["a", "a", "c"], []]), 2)
    assert one.sizes.tolist() == [4, 3, 0] and two.sizes.tolist() == [3, 2, 0]
    assert one.matches().tolist() == [[4, 2, 0], [2, 3, 0], [0, 0, 0]]
    assert two.matches(1).tolist() == [[1, 0]]


@pytest.mark.parametrize(("common", "block", "table"), [(0, 7, 0), (1, 7, 10**7), (0.1, 1, 0), (0.1, 64, 30)])
def test_every_way_to_multiply_gives_the_same(
    common: float, block: int, table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = words([random.Random(i).choices("abcdefg", k=i) for i in range(40)])
    usual = [(bags.matches(), bags.matches(15), bags.grams) for bags in ngrams(documents, 3)]
    for name, value in {"COMMON": common, "BLOCK": block, "TABLE": table}.items():
        monkeypatch.setattr(f"metagen.verifiers.utility.ngrams.{name}", value)
    for bags, (whole, part, grams) in zip(ngrams(documents, 3), usual, strict=True):
        assert (bags.matches() == whole).all() and (whole == whole.T).all() and bags.grams == grams
        assert (bags.matches(15) == part).all() and (whole[:15, 15:] == part).all()
    counts = [Counter(zip(d.tolist(), d.tolist()[1:], d.tolist()[2:], strict=False)) for d in documents]
    assert whole[30, 39] == (counts[30] & counts[39]).total()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ChrF(char_order=0), "char_order=0"),
        (lambda: ChrF(beta=0), "beta=0"),
        (lambda: BLEU(tokenize="13b"), "tokenize='13b': expected one of .*13a"),
        (lambda: BLEU(max_order=0), "max_order=0"),
    ],
)
def test_options_are_checked(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_utilities_can_be_asked_side_by_side(ask) -> None:
    async def all_at_once(scope: Scope) -> list[np.ndarray]:
        many = [ask.sequences([f"{i} a b", f"b {i} c", "d"]) for i in range(20)]
        return await scope.gather(*(ChrF().matrix(some, scope=scope) for some in many))

    for i, matrix in enumerate(ask.run(all_at_once)):
        assert (matrix == ask.matrix(ChrF(), [f"{i} a b", f"b {i} c", "d"])).all()
