"""Contrastive search against the plainest program of its formula, and where it is greedy."""

from collections.abc import Sequence

import pytest
import torch

from metagen.errors import UnsupportedError
from metagen.generators.decoding.search import BeamSearch, ContrastiveSearch
from metagen.generators.torch.search.beam import Beam
from metagen.generators.torch.search.contrastive import Contrastive
from tests.generators.torch.search.driver import Ids, Model, run, table

SIZE, EOS, LIMIT = 7, 6, 8
PROMPT = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
#: A state for each prefix, of five numbers.
STATES = table(5, 99)


def hidden(rows: Sequence[Ids]) -> torch.Tensor:
    return PROMPT if list(rows) == [()] else STATES(rows)


def plain(model: Model, k: int, alpha: float) -> Ids:
    """With the end token, if there is one."""
    text: Ids = ()
    before = list(PROMPT)
    while len(text) < LIMIT and EOS not in text:
        p = torch.softmax(model([text])[0], -1)
        scores = {}
        for v in torch.topk(p, k).indices.tolist():
            state = STATES([(*text, v)])[0]
            likeness = max(float(torch.cosine_similarity(state, h, dim=0)) for h in before)
            scores[v] = (1 - alpha) * float(p[v]) - alpha * likeness
        text = (*text, max(scores, key=lambda v: scores[v]))
        before.append(STATES([text])[0])
    return text


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.6, 1.0])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_token_chosen_is_that_of_the_formula(k: int, alpha: float) -> None:
    for seed in range(5):
        model = table(SIZE, seed)
        ((sample, score),) = run(
            Contrastive(ContrastiveSearch(k, alpha)), model, LIMIT, eos=EOS, hidden=hidden
        )
        text = (sample.ids or ()) + (EOS,) * (sample.finish == "eos")
        assert text == plain(model, k, alpha)
        total = sum(float(torch.log_softmax(model([text[:i]])[0], -1)[v]) for i, v in enumerate(text))
        assert score == pytest.approx(total, abs=1e-5)


def test_without_a_penalty_it_is_greedy() -> None:
    for seed in range(5):
        model = table(SIZE, seed)
        search = Contrastive(ContrastiveSearch(4, 0.0))
        ((mine, _),) = run(search, model, LIMIT, eos=EOS, hidden=hidden)
        ((greedy, _),) = run(Beam(BeamSearch(1), LIMIT), model, LIMIT, eos=EOS)
        assert mine == greedy


def test_the_candidates_are_those_that_a_grammar_leaves() -> None:
    search = Contrastive(ContrastiveSearch(5, 0.9))
    ((sample, _),) = run(search, table(SIZE, 0), LIMIT, hidden=hidden, allowed=lambda p: (0, 3))
    assert set(sample.ids or ()) <= {0, 3}


def test_a_model_without_hidden_states_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="hidden states"):
        run(Contrastive(ContrastiveSearch()), table(SIZE, 0), LIMIT)
