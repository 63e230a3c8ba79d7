"""Beam search against greedy decoding, against enumeration, and against transformers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from metagen.errors import NumericsError
from metagen.generators.decoding.search import BeamSearch, EarlyStopping
from metagen.generators.models.sources import resolve
from metagen.generators.torch.search.beam import Beam
from metagen.generators.torch.search.step import Step, best
from tests.generators.torch.search.driver import Ids, every, ids, run, table

STOPS: tuple[EarlyStopping, ...] = ("filled", "estimate", "bound")


@pytest.mark.parametrize("seed", range(5))
def test_one_beam_is_greedy(seed: int) -> None:
    model, eos, limit = table(6, seed), 5, 8
    greedy: list[int] = []
    while len(greedy) < limit:
        token = int(model([tuple(greedy)]).argmax())
        if token == eos:
            break
        greedy.append(token)
    found = run(Beam(BeamSearch(1), limit), model, limit, eos=eos)
    assert ids(found) == [tuple(greedy)]


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.5])
def test_enough_beams_find_the_best_of_all_texts(alpha: float) -> None:
    """Width V^depth with the rule that is exact: what is returned is what an enumeration finds, scores too."""
    size, limit, eos = 4, 3, 3
    model = table(size, seed=11)
    scored = {
        text: total / (len(text[0]) + text[1]) ** alpha
        for text, total in every(model, limit, eos, size).items()
    }
    wanted = sorted(scored.items(), key=lambda item: -item[1])
    search = Beam(BeamSearch(size**limit, alpha, "bound"), limit)
    found = run(search, model, limit, eos=eos)
    assert [(s.ids, s.finish == "eos") for s, _ in found] == [text for text, _ in wanted]
    assert [score for _, score in found] == pytest.approx([score for _, score in wanted])


def test_a_rule_that_looks_longer_finds_no_worse_texts() -> None:
    for seed in range(20):
        model, scores, steps = table(7, seed, sharpness=1.0), [], []
        for rule in STOPS:
            widths: list[int] = []
            found = run(Beam(BeamSearch(3, 1.0, rule), 12), model, 12, eos=6, widths=widths)
            scores.append([score for _, score in found])
            steps.append(len(widths))
            assert scores[-1] == sorted(scores[-1], reverse=True)
        assert steps == sorted(steps)
        assert all(a >= b - 1e-9 for a, b in zip(scores[2], scores[0], strict=True))


def test_a_text_that_ends_leaves_its_beam_to_the_next_best() -> None:
    """Two beams: the end token is the best candidate of the first step, and two beams go on beside it."""
    first = torch.log(torch.tensor([0.2, 0.3, 0.1, 0.4]))
    later = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1]))
    widths: list[int] = []
    found = run(
        Beam(BeamSearch(2, 0.0, "bound"), 2),
        lambda rows: torch.stack([later if row else first for row in rows]),
        2,
        eos=3,
        widths=widths,
    )
    assert widths == [2]
    assert [(s.ids, s.finish) for s, _ in found] == [((), "eos"), ((1, 0), "length")]


def test_ties_go_to_the_earlier_beam_and_the_lower_id() -> None:
    found = run(Beam(BeamSearch(3, 1.0), 2), lambda rows: torch.zeros(len(rows), 5), 2)
    assert ids(found) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("size", [9, 200])
def test_the_best_of_each_row_are_those_of_a_stable_sort(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    values = torch.randint(0, 4, (6, size), generator=generator).float()
    values[1] = -torch.inf
    values[2, 3:] = -torch.inf
    for count in (1, 5, 8):
        found, places = best(values, count)
        for row in range(len(values)):
            expected = sorted(range(size), key=lambda i: (-float(values[row, i]), i))[:count]
            real = found[row] > -np.inf
            assert places[row][real].tolist() == np.array(expected)[real].tolist()
            assert found[row].tolist() == [float(values[row, i]) for i in expected]


# -- what cannot go on -------------------------------------------------------------------------------


def test_masks_bind_every_beam() -> None:
    def odd(prefix: Ids) -> Sequence[int]:
        return (1, 3) if len(prefix) % 2 else (0, 2, 4)

    found = run(Beam(BeamSearch(4), 4), table(6, 3), 4, allowed=odd)
    assert len(found) == 4
    assert all(token in odd(text[:i]) for text in ids(found) for i, token in enumerate(text))


def test_beams_without_a_token_are_dropped_and_the_others_go_on() -> None:
    found = run(Beam(BeamSearch(3), 3), table(4, 1), 3, allowed=lambda p: () if p[:1] == (0,) else range(4))
    assert len(found) == 3 and all(text[0] != 0 for text in ids(found))


def test_a_grammar_that_leaves_no_beam_a_token_leaves_no_result() -> None:
    assert not run(Beam(BeamSearch(3), 5), table(4, 1), 5, allowed=lambda p: () if len(p) == 2 else range(4))


def test_logits_that_are_no_numbers_are_an_error() -> None:
    nan = torch.full((1, 4), torch.nan)
    with pytest.raises(NumericsError, match="NaN"):
        Beam(BeamSearch(2), 4).select(Step(nan, nan, lambda row, token: None))


def test_the_score_is_of_the_adapted_distribution_or_of_the_model() -> None:
    """A mask that removes half of the mass changes one, and not the other."""
    logits = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.4]))
    scores = {}
    for score in ("adapted", "model"):
        search = Beam(BeamSearch(1, 0.0, score=score), 2)
        ((_, scores[score]),) = run(
            search, lambda rows: logits.expand(len(rows), -1).clone(), 2, allowed=lambda p: (1, 2)
        )
    assert scores["adapted"] == pytest.approx(2 * np.log(0.6))
    assert scores["model"] == pytest.approx(2 * np.log(0.3))


# -- transformers --------------------------------------------------------------------------------------

LIMIT = 12
PROMPTS = ["Q:a=12+7;b=a*3;c=b-8;c?\nS:\n", "Q:a=5*4;a?\nS:\n"]


@pytest.fixture(scope="module")
def theirs() -> tuple[Any, Any]:
    where = resolve("tiny-0.1m")
    model = AutoModelForCausalLM.from_pretrained(where, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(where)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize(
    ("width", "alpha", "rule", "ngram"),
    [
        (2, 1.0, "estimate", 0),
        (4, 0.0, "estimate", 0),
        (4, 2.0, "bound", 0),
        (5, 1.0, "filled", 0),
        (4, 1.0, "estimate", 2),
    ],
)
def test_sequences_and_scores_are_those_of_transformers(
    theirs: tuple[Any, Any], prompt: str, width: int, alpha: float, rule: EarlyStopping, ngram: int
) -> None:
    model, tokenizer = theirs
    given = tokenizer(prompt, return_tensors="pt")["input_ids"]
    eos = tokenizer.eos_token_id
    with torch.inference_mode():
        made = model.generate(
            given,
            num_beams=width,
            num_return_sequences=width,
            length_penalty=alpha,
            early_stopping={"filled": True, "estimate": False, "bound": "never"}[rule],
            no_repeat_ngram_size=ngram,
            max_new_tokens=LIMIT,
            do_sample=False,
            pad_token_id=eos,
            output_scores=True,
            return_dict_in_generate=True,
        )
        start = given[0].tolist()

        def logits(rows: Sequence[Ids]) -> torch.Tensor:
            out: torch.Tensor = model(torch.tensor([[*start, *row] for row in rows])).logits[:, -1]
            return out.float()

        def fresh(prefix: Ids) -> Sequence[int]:
            text = [*start, *prefix]
            seen = {tuple(text[i : i + ngram]) for i in range(len(text) - ngram + 1)}
            last = tuple(text[len(text) - ngram + 1 :])
            return [v for v in range(model.config.vocab_size) if (*last, v) not in seen]

        search = Beam(BeamSearch(width, alpha, rule, "model"), LIMIT)
        found = run(search, logits, LIMIT, eos=eos, allowed=fresh if ngram else None)
    # Sums of float32, of logits that transformers computes with a cache and this without: 4e-5 on some processors.
    assert [score for _, score in found] == pytest.approx(made.sequences_scores.tolist(), abs=2e-4)
    for (sample, _), sequence in zip(found, made.sequences[:, len(start) :].tolist(), strict=True):
        text = list(sample.ids or ()) + [eos] * (sample.finish == "eos")
        assert sequence[: len(text)] == text and set(sequence[len(text) :]) <= {eos}
