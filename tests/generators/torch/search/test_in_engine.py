"""Searches on the embedded models, through the engine: many requests at once, with adapters, grammars and limits."""

import asyncio
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from metagen.errors import InputError, UnsupportedError
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.search import (
    BeamSearch,
    ConstrainedBeamSearch,
    ContrastiveSearch,
    DiverseBeamSearch,
    SearchSpec,
    StochasticBeamSearch,
)
from metagen.generators.engine import Generated, GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.models.recipes import Contrastive, Table
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt, Sequence, Tokens, Until
from metagen.tasks.arithmetic.task import ArithmeticTask

MODEL, LIMIT = "tiny-0.1m", 40
PROMPTS = [p.prompt.text or "" for p in ArithmeticTask("validation", per_level=2, limit=8).problems()]
#: Two orders of summation in float32 differ by less, over so many tokens.
ROUNDING = 1e-4


@pytest.fixture(scope="module")
def engine() -> Iterator[TorchEngine]:
    with TorchEngine(MODEL, threads=1, max_batch=32) as opened:
        yield opened


def ask(
    engine: TorchEngine,
    prompts: list[str],
    search: SearchSpec | None,
    n: int,
    *,
    seed: int = 0,
    until: Until = None,
    **params: Any,
) -> list[Generated]:
    given = SamplingParams(search=search, **{"max_tokens": LIMIT, **params})

    async def work() -> list[Generated]:
        return await asyncio.gather(
            *(
                engine.generate(
                    GenerateRequest(
                        Sequence.of(p),
                        (seed,) * n,
                        given,
                        given.max_tokens,
                        until,
                        tuple(range(n)) if search else (),
                    )
                )
                for p in prompts
            )
        )

    return asyncio.run(work())


def texts(answer: Generated) -> list[str]:
    return [sample.text for sample in answer.samples]


def test_one_beam_is_greedy(engine: TorchEngine) -> None:
    for searched, greedy in zip(
        ask(engine, PROMPTS, BeamSearch(1), 1), ask(engine, PROMPTS, None, 1, temperature=0.0), strict=True
    ):
        assert texts(searched) == texts(greedy)
        assert searched.samples[0].finish == greedy.samples[0].finish
        assert searched.samples[0].logprob == pytest.approx(greedy.samples[0].logprob, abs=ROUNDING)


@pytest.mark.parametrize(("alpha", "ngram"), [(1.0, 0), (0.0, 0), (1.0, 3)])
def test_many_searches_at_once_find_what_transformers_finds_one_by_one(
    engine: TorchEngine, alpha: float, ngram: int
) -> None:
    width, model = 4, AutoModelForCausalLM.from_pretrained(resolve(MODEL), dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(resolve(MODEL))
    answers = ask(
        engine, PROMPTS, BeamSearch(width, alpha, score="model"), width, no_repeat_ngram=ngram, logprobs=True
    )
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        given = tokenizer(prompt, return_tensors="pt")["input_ids"]
        assert given[0].tolist() == list(answer.prefix_ids or ())
        with torch.inference_mode():
            made = model.generate(
                given,
                num_beams=width,
                num_return_sequences=width,
                length_penalty=alpha,
                no_repeat_ngram_size=ngram,
                max_new_tokens=LIMIT,
                do_sample=False,
                pad_token_id=tokenizer.eos_token_id,
                output_scores=True,
                return_dict_in_generate=True,
            )
        theirs = made.sequences_scores.tolist()
        assert [s.score for s in answer.samples] == pytest.approx(theirs, abs=ROUNDING)
        gaps = [abs(a - b) for a, b in pairwise(theirs)]
        if min(gaps) > ROUNDING:
            new = [row[given.shape[1] :] for row in made.sequences]
            assert texts(answer) == [tokenizer.decode(row, skip_special_tokens=True) for row in new]
        for sample in answer.samples:
            length = len(sample.token_logprobs or ())
            assert sample.score == pytest.approx((sample.logprob or 0.0) / length**alpha, abs=ROUNDING)


def test_beams_are_held_to_a_grammar(engine: TorchEngine) -> None:
    (answer,) = ask(engine, PROMPTS[:1], BeamSearch(6), 6, grammar=Grammar.regex(r"a=[0-9]{2}\n(b=[0-9]\n)?"))
    assert len(set(texts(answer))) == 6
    assert all(re.fullmatch(r"a=[0-9]{2}\n(b=[0-9]\n)?", text) for text in texts(answer))


def test_no_beam_repeats_an_ngram(engine: TorchEngine) -> None:
    for answer in ask(engine, PROMPTS, BeamSearch(3), 3, no_repeat_ngram=2):
        for sample in answer.samples:
            ids = (*(answer.prefix_ids or ()), *(sample.ids or ()))
            start = len(answer.prefix_ids or ())
            pairs = list(pairwise(ids))
            assert all(pairs[i] not in pairs[:i] for i in range(start - 1, len(pairs)))


def test_phrases_occur_in_every_text(engine: TorchEngine) -> None:
    search = ConstrainedBeamSearch(4, phrases=("=7", "*3"))
    for answer in ask(engine, PROMPTS[:3], search, 4):
        assert all("=7" in text and "*3" in text for text in texts(answer))


def test_groups_differ_more_than_beams(engine: TorchEngine) -> None:
    """Of texts that begin in the same way, beam search returns many; groups part at the first token."""

    def beginnings(search: SearchSpec) -> int:
        return sum(len({t[:1] for t in texts(a)}) for a in ask(engine, PROMPTS, search, 4))

    assert beginnings(DiverseBeamSearch(4, diversity=50.0)) > beginnings(BeamSearch(4))


def test_stochastic_beams_do_not_depend_on_their_company(engine: TorchEngine) -> None:
    """Alone, among others, wider: the same texts, all of them different."""
    together = ask(engine, PROMPTS, StochasticBeamSearch(4), 4, seed=7)
    for prompt, answer in zip(PROMPTS[:3], together, strict=False):
        assert len(set(texts(answer))) == 4
        (alone,) = ask(engine, [prompt], StochasticBeamSearch(4), 4, seed=7)
        (wide,) = ask(engine, [prompt], StochasticBeamSearch(8), 4, seed=7)
        assert texts(answer) == texts(alone) == texts(wide)
    assert texts(ask(engine, PROMPTS[:1], StochasticBeamSearch(4), 4, seed=8)[0]) != texts(together[0])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_enough_beams_find_all_texts_of_an_enumerable_model(alpha: float) -> None:
    """Every text with its exact score, in their order; the vocabulary is large enough for as many beams."""
    tokens, limit = [*(f"{i} " for i in range(39)), "$"], 3

    def following(prompt: str, done: tuple[str, ...]) -> list[float]:
        weights = {token: 1.0 + (7 * len(done) + 3 * int(token) + sum(map(int, done))) % 5 for token in "012"}
        total = sum(weights.values()) + 2.5
        return [weights.get(token.strip(), 0.0) / total for token in tokens[:-1]] + [2.5 / total]

    exact = {
        text: math.log(p) / len(text) ** alpha
        for text, p in EnumerableEngine(tokens, following, name="few").sequences(max_tokens=limit).items()
    }
    search = BeamSearch(len(tokens), alpha, "bound")
    with TorchEngine(Table(tuple(tokens), following, name="few"), threads=1, max_batch=64) as engine:
        (answer,) = ask(engine, ["?"], search, len(exact), max_tokens=limit)
    assert len(exact) == 40
    scores = [sample.score for sample in answer.samples]
    assert scores == pytest.approx(sorted(exact.values(), reverse=True), abs=1e-5)
    for sample in answer.samples:
        text = tuple(f"{i} " for i in sample.text.split()) + ("$",) * (sample.finish == "eos")
        assert sample.score == pytest.approx(exact[text], abs=1e-5)


def test_beams_search_models_made_of_models() -> None:
    """Contrastive decoding, as it was published with beams: the texts are those of its own distribution."""
    with TorchEngine(Contrastive("tiny-0.5m", "tiny-0.1m"), threads=1, max_batch=16) as engine:
        (answer,) = ask(engine, PROMPTS[:1], BeamSearch(4), 2, logprobs=True)
        (greedy,) = ask(engine, PROMPTS[:1], None, 1, temperature=0.0)
        (one,) = ask(engine, PROMPTS[:1], BeamSearch(1), 1)
        assert texts(one) == texts(greedy)
        for sample in answer.samples:
            assert sample.score == pytest.approx(
                (sample.logprob or 0.0) / len(sample.token_logprobs or ()), abs=ROUNDING
            )
        assert ask(engine, PROMPTS[:1], ContrastiveSearch(), 1)[0].samples[0].text, (
            "by the first one's states"
        )


def test_a_model_without_hidden_states_is_refused_at_once() -> None:
    table = Table(("a", "b", "$"), lambda prompt, done: [0.4, 0.3, 0.3], name="blind")
    with (
        TorchEngine(table, threads=1, max_batch=4) as engine,
        pytest.raises(UnsupportedError, match="hidden states"),
    ):
        ask(engine, ["?"], ContrastiveSearch(2), 1)


@pytest.mark.parametrize("search", [BeamSearch(3), DiverseBeamSearch(3), StochasticBeamSearch(3)])
def test_a_search_without_a_way_on_fails_alone(engine: TorchEngine, search: SearchSpec) -> None:
    def request(**params: Any) -> GenerateRequest:
        given = SamplingParams(search=search, max_tokens=LIMIT, **params)
        prefix = Sequence.of(Prompt("p7", text=PROMPTS[0]))
        return GenerateRequest(prefix, (0,), given, LIMIT, ranks=(0,))

    async def work() -> list[Generated | BaseException]:
        lost = request(grammar=Grammar.regex("A:7"), banned=(":",))
        return await asyncio.gather(engine.generate(lost), engine.generate(request()), return_exceptions=True)

    failed, fine = asyncio.run(work())
    assert isinstance(failed, InputError)
    assert "problem 'p7': after 1 tokens" in str(failed)
    assert "Grammar" in str(failed) and "banned=(':',)" in str(failed)
    assert isinstance(fine, Generated) and fine.samples[0].text


def test_fewer_texts_than_are_asked_for_are_an_error_that_names_the_problem(engine: TorchEngine) -> None:
    params = SamplingParams(search=BeamSearch(3), max_tokens=4, grammar=Grammar.regex("7|8", canonical=False))
    prefix = Sequence.of(Prompt("p7", text=PROMPTS[0]))
    asked = engine.generate(GenerateRequest(prefix, (0,), params, 4, ranks=(2,)))
    with pytest.raises(InputError, match=r"'p7'.* has found 2 sequences, and number 3 .*ask for fewer"):
        asyncio.run(asked)


@pytest.mark.parametrize("alpha", [0.0, 0.4, 0.8])
def test_contrastive_search_is_its_formula_over_the_states_of_transformers(
    engine: TorchEngine, alpha: float
) -> None:
    k, limit = 4, 16
    model = AutoModelForCausalLM.from_pretrained(resolve(MODEL), dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(resolve(MODEL))

    def plain(text: list[int]) -> list[int]:
        start = len(text)
        while len(text) < start + limit and text[-1] != tokenizer.eos_token_id:
            with torch.inference_mode():
                seen = model(torch.tensor([text]), output_hidden_states=True)
                p = torch.softmax(seen.logits[0, -1], -1)
                tokens = torch.topk(p, k).indices
                ahead = model(
                    torch.tensor([[*text, v] for v in tokens.tolist()]), output_hidden_states=True
                ).hidden_states[-1][:, -1]
            before = seen.hidden_states[-1][0]
            likeness = torch.cosine_similarity(ahead[:, None], before[None], dim=-1).amax(1)
            text = [*text, int(tokens[torch.argmax((1 - alpha) * p[tokens] - alpha * likeness)])]
        return text[start:]

    for answer in ask(engine, PROMPTS[:4], ContrastiveSearch(k, alpha), 1, max_tokens=limit) + ask(
        engine, PROMPTS[:1], ContrastiveSearch(k, alpha), 1, max_tokens=limit
    ):
        wanted = plain(list(answer.prefix_ids or ()))
        assert texts(answer) == [tokenizer.decode(wanted, skip_special_tokens=True)]


def test_a_search_may_stop_for_a_while(engine: TorchEngine) -> None:
    (answer,) = ask(engine, PROMPTS[:1], BeamSearch(4), 4, until=Tokens(3))
    assert all(len(s.ids or ()) == 3 and s.finish is None for s in answer.samples)


@pytest.mark.parametrize(
    ("search", "n", "message"),
    [
        (BeamSearch(33), 1, "takes 33 rows, and the engine has max_batch=32"),
        (BeamSearch(4000), 1, "width=4000 is above the vocabulary"),
        (BeamSearch(2), 3, "n=3: a beam search with width=2 returns 2 samples at most; give width ≥ 3"),
        (ConstrainedBeamSearch(2, phrases=("=7" * 25,)), 1, "need 50 tokens, and 40 are left of max_tokens"),
    ],
)
def test_what_cannot_be_searched(engine: TorchEngine, search: SearchSpec, n: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ask(engine, PROMPTS[:1], search, n)


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (BeamSearch(33), "takes 33 rows, and the engine has max_batch=32"),
        (BeamSearch(4000), "width=4000 is above the vocabulary"),
        (ContrastiveSearch(4000), "k=4000 is above the vocabulary"),
        (ConstrainedBeamSearch(2, phrases=("=7" * 25,)), "need 50 tokens, and 40 are left of max_tokens"),
        (ConstrainedBeamSearch(2, phrases=("é",)), "the tokens cannot write the phrase 'é'"),
    ],
)
def test_what_cannot_be_searched_makes_no_generator(
    engine: TorchEngine, search: SearchSpec, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        engine.generator(search=search, max_tokens=LIMIT)


def test_phrases_that_overlap_fit_where_one_by_one_they_would_not(engine: TorchEngine) -> None:
    assert engine.generator(search=ConstrainedBeamSearch(2, phrases=("=7=", "7=7")), max_tokens=4)


def test_nothing_is_left_behind(engine: TorchEngine) -> None:
    for search in (BeamSearch(4), DiverseBeamSearch(4, diversity=5.0), StochasticBeamSearch(4)):
        ask(engine, PROMPTS, search, 2)
    ask(engine, PROMPTS, ContrastiveSearch(), 1)
    assert engine._rows.count == 0
    assert len(set(texts(ask(engine, PROMPTS[:1], None, 2, temperature=0.0)[0]))) == 1
