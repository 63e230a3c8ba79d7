"""What every utility promises, whatever it measures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from metagen.errors import InputError
from metagen.verifiers.function import FunctionRule
from metagen.verifiers.utility.base import Utility
from metagen.verifiers.utility.bleu import BLEU
from metagen.verifiers.utility.chrf import ChrF
from metagen.verifiers.utility.edit import EditSimilarity
from metagen.verifiers.utility.embedding import EmbeddingCosine, FunctionEmbedder
from metagen.verifiers.utility.exact import ExactAnswer
from metagen.verifiers.utility.execution import ExecutionAgreement
from metagen.verifiers.utility.pairs import FunctionUtility
from metagen.verifiers.utility.pruning import ConfidencePruning
from metagen.verifiers.utility.rouge import RougeL
from metagen.verifiers.utility.token_f1 import TokenF1

TEXTS = [
    "the cat sat on the mat, and 4 is the answer",
    "the cat sat on a mat so the answer is 4",
    "a dog! no cats? 3",
    "the cat sat on the mat, and 4 is the answer",
    "eight 3",
    "Müller aß 3 Äpfel …",
]
LAST_WORD = FunctionRule(lambda text: text.split()[-1] if text.split() else None, name="last word")
OUTPUTS = {text: [text.split()[0], text[-1], str(len(text))] for text in TEXTS}


def letters(texts: list[str]) -> np.ndarray:
    return np.array([[text.count(c) for c in "abcdefghijklmnopqrstuvwxyz "] for text in texts])


MAKERS: dict[str, Callable[[], Utility]] = {
    "exact": lambda: ExactAnswer(LAST_WORD),
    "token f1": TokenF1,
    "token f1 of answers": lambda: TokenF1(answer=LAST_WORD),
    "rouge": RougeL,
    "rouge of any words": lambda: RougeL(token=r"\w+"),
    "bleu": BLEU,
    "bleu, aggregate": lambda: BLEU(aggregate=True),
    "bleu, whole order": lambda: BLEU(effective_order=False),
    "chrf": ChrF,
    "chrf, aggregate": lambda: ChrF(aggregate=True),
    "chrf1": lambda: ChrF(beta=1),
    "chrf++": lambda: ChrF(word_order=2),
    "edit": EditSimilarity,
    "embedding": lambda: EmbeddingCosine(FunctionEmbedder(letters, name="letters")),
    "execution": lambda: ExecutionAgreement(OUTPUTS),
    "execution of all": lambda: ExecutionAgreement(OUTPUTS, agreement="all"),
    "function": lambda: FunctionUtility(
        lambda y, z: 1 - abs(len(y.text) - len(z.text)) / 99, name="length", symmetric=True
    ),
    "one-sided function": lambda: FunctionUtility(
        lambda y, z: len(set(y.text) & set(z.text)) / len(set(z.text))
    ),
    "pruning that prunes nothing": lambda: ConfidencePruning(ChrF(), alpha=1),
}
WHOLE_ORDER = BLEU(effective_order=False).fingerprint
each_utility = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@each_utility
def test_nothing_is_better_than_the_reference_itself(make: Callable[[], Utility], ask) -> None:
    matrix = ask.matrix(make(), TEXTS)
    assert matrix.shape == (6, 6) and matrix.dtype == np.float64
    own = np.diag(matrix)
    # Without effective order, BLEU has nothing to say of texts of less than four words.
    short = np.array([own[i] == 0 and len(text.split()) < 4 for i, text in enumerate(TEXTS)])
    assert np.allclose(own[~short], 1) and (short.any() == (make().fingerprint == WHOLE_ORDER))
    assert (matrix <= 1 + 1e-12).all() and (matrix >= -1).all()


@each_utility
def test_own_references_are_references(make: Callable[[], Utility], ask) -> None:
    utility = make()
    alone = ask.matrix(utility, TEXTS)
    assert (alone == ask.matrix(utility, TEXTS, TEXTS)).all()
    if utility.symmetric:
        assert (alone == alone.T).all()
    else:
        assert (alone != alone.T).any(), "then it should say that it is symmetric"


@each_utility
def test_the_order_of_candidates_changes_nothing(make: Callable[[], Utility], ask) -> None:
    order = np.array([3, 0, 5, 1, 4, 2])
    shuffled = [TEXTS[i] for i in order]
    weights = [0.1, 0.7, 0.2, None, 0.3, 1e-9]
    moved = [weights[i] for i in order]
    utility = make()
    assert (ask.matrix(utility, TEXTS)[np.ix_(order, order)] == ask.matrix(utility, shuffled)).all()
    assert (ask.expected(utility, TEXTS)[order] == ask.expected(utility, shuffled)).all()
    plain, other = (
        ask.expected(utility, TEXTS, weights=weights),
        ask.expected(utility, shuffled, weights=moved),
    )
    assert (plain[order] == other).all()


@each_utility
def test_the_rows_of_the_matrix_do_not_know_each_other(make: Callable[[], Utility], ask) -> None:
    utility = make()
    whole = ask.matrix(utility, TEXTS)
    assert np.allclose(ask.matrix(utility, TEXTS[1:3], TEXTS[2:]), whole[1:3, 2:], rtol=0, atol=1e-12)


@each_utility
def test_with_one_reference_the_expectation_is_the_pair(make: Callable[[], Utility], ask) -> None:
    utility = make()
    pairs = ask.matrix(utility, TEXTS, TEXTS[1:2])[:, 0]
    assert np.allclose(ask.expected(utility, TEXTS, TEXTS[1:2]), pairs, rtol=0, atol=1e-12)
    assert np.allclose(ask.expected(utility, TEXTS, TEXTS[1:2], [0.3]), pairs, rtol=0, atol=1e-12)
    alone = ask.expected(utility, TEXTS, TEXTS[:3], [0.0, 2.0, None])
    assert np.allclose(alone, pairs, rtol=0, atol=1e-12)


@each_utility
def test_a_weight_is_a_number_of_equal_references(make: Callable[[], Utility], ask) -> None:
    utility = make()
    weighted = ask.expected(utility, TEXTS, TEXTS[1:3], [3, 1])
    repeated = ask.expected(utility, TEXTS, [TEXTS[1]] * 3 + [TEXTS[2]])
    assert np.allclose(weighted, repeated, rtol=0, atol=1e-12)


@each_utility
def test_what_cannot_be_averaged_is_an_error(make: Callable[[], Utility], ask) -> None:
    utility = make()
    with pytest.raises(InputError, match="0 candidates"):
        ask.expected(utility, [])
    with pytest.raises(InputError, match="2 candidates and 0 references"):
        ask.expected(utility, TEXTS[:2], [])
    with pytest.raises(InputError, match="1 weights for 2 references; expected one each"):
        ask.expected(utility, TEXTS[:2], weights=[1.0])
    with pytest.raises(InputError, match=r"weight -1.0; expected a number ≥ 0"):
        ask.expected(utility, TEXTS[:2], weights=[1.0, -1.0])
    assert (ask.expected(utility, TEXTS[:2], weights=[0.0, None]) == 0).all()
    assert ask.matrix(utility, []).shape == (0, 0)


def test_fingerprints_tell_utilities_and_their_options_apart() -> None:
    more = [ChrF(char_order=4), ChrF(lowercase=True), ChrF(whitespace=True), ChrF(answer=LAST_WORD),
            BLEU(max_order=2), BLEU(lowercase=True), BLEU(tokenize="char"), BLEU(answer=LAST_WORD),
            ConfidencePruning(ChrF(), alpha=0.9), ConfidencePruning(BLEU(), alpha=0.9)]  # fmt: skip
    names = [make().fingerprint for make in MAKERS.values()] + [utility.fingerprint for utility in more]
    assert len(set(names)) == len(names)
    assert names[: len(MAKERS)] == [make().fingerprint for make in MAKERS.values()]


@pytest.mark.parametrize("missing", ["sacrebleu", "rapidfuzz.process", "rapidfuzz.distance"])
def test_a_library_that_is_missing_is_named_when_the_utility_is_made(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, missing, None)
    with pytest.raises(InputError, match=rf"needs '{missing}'.*pip install -e '.\[text\]'"):
        BLEU() if missing == "sacrebleu" else RougeL()
