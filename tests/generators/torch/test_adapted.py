"""Adapters through the torch engine: beside rows that have none, step by step, and greedily as transformers decodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from metagen.errors import InputError
from metagen.generators.decoding.adapters import Mirostat
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import Generated, GenerateRequest, SamplingParams
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.sequence import Sequence, Tokens

MODEL = "tiny-0.1m"
PROMPT = "Q:a=12+7;b=a*3;c=b-8;c?\nS:\n"


@pytest.fixture(scope="module")
def engine() -> Iterator[TorchEngine]:
    with TorchEngine(MODEL, threads=1) as engine:
        yield engine


def request(n: int = 1, most: int = 40, prefix: Sequence | None = None, **params: Any) -> GenerateRequest:
    start = prefix or Sequence.of(PROMPT)
    return GenerateRequest(start, tuple(range(n)), SamplingParams(max_tokens=most, **params), most)


def ask(engine: TorchEngine, *requests: GenerateRequest) -> list[Generated]:
    async def all_of_them() -> list[Generated]:
        return await asyncio.gather(*map(engine.generate, requests))

    return asyncio.run(all_of_them())


MANY: list[dict[str, Any]] = [
    {"repetition_penalty": 1.6}, {"no_repeat_ngram": 2}, {"banned": ((13,),)}, {"presence_penalty": 2.0},
    {"frequency_penalty": 1.0}, {"mirostat": Mirostat(2.0)}, {"min_tokens": 35, "ignore_eos": False}, {"top_h": 0.4},
    {"typical_p": 0.5}, {"forced": "A:"}, {"logit_bias": {5: 3.0}}, {"eta_cutoff": 0.1, "temperature": 1.5}, {},
]  # fmt: skip


def test_rows_are_as_if_they_were_alone(engine: TorchEngine) -> None:
    requests = [request(4, **{"ignore_eos": True, **one}) for one in MANY]
    together = ask(engine, *requests)
    for one, mixed in zip(requests, together, strict=True):
        (alone,) = ask(engine, one)
        assert [s.ids for s in mixed.samples] == [s.ids for s in alone.samples], one.params


def test_greedy_decoding_is_that_of_transformers(engine: TorchEngine) -> None:
    model = AutoModelForCausalLM.from_pretrained(resolve(MODEL), dtype=torch.float32)
    ids = torch.tensor([engine.render(Sequence.of(PROMPT))])
    banned = ids[0, 5:7].tolist()
    (newline,) = engine.encode("\n")
    for mine, theirs in (
        ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
        ({"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
        ({"banned": ((newline,), tuple(banned))}, {"bad_words_ids": [[newline], banned]}),
        ({"min_tokens": 30}, {"min_new_tokens": 30}),
        (
            {"repetition_penalty": 1.1, "no_repeat_ngram": 4, "min_tokens": 20},
            {"repetition_penalty": 1.1, "no_repeat_ngram_size": 4, "min_new_tokens": 20},
        ),
    ):
        (answer,) = ask(engine, request(temperature=0, **mine))
        out = model.generate(ids, max_new_tokens=40, do_sample=False, pad_token_id=0, **theirs)
        expected = out[0, ids.shape[1] :].tolist()
        found = list(answer.samples[0].ids or ())
        assert expected[: len(found)] == found and len(expected) - len(found) <= 1, mine


@pytest.mark.parametrize("name", ["no_repeat_ngram", "presence_penalty", "min_tokens", "banned", "forced"])
def test_a_sample_that_goes_on_step_by_step_is_that_of_one_go(engine: TorchEngine, name: str) -> None:
    one = {"ignore_eos": True, **next(one for one in MANY if name in one)}
    (whole,) = ask(engine, request(1, **one))
    prefix, ids = Sequence.of(PROMPT), list[int]()
    while len(ids) < len(whole.samples[0].ids or ()):
        asked = GenerateRequest(prefix, (0,), SamplingParams(max_tokens=40, **one), 40 - len(ids), Tokens(7))
        (part,) = ask(engine, asked)
        (sample,) = part.samples
        ids += sample.ids or ()
        tokens = engine._tokenizer.token_ids(sample.ids or ())
        prefix = prefix.extend(sample.text, tokens=tokens, logprob=None, finish=None)
    assert tuple(ids) == whole.samples[0].ids


def test_what_they_promise(engine: TorchEngine) -> None:
    (a,) = ask(engine, request(8, no_repeat_ngram=3, ignore_eos=True, temperature=0.5))
    head = list(engine.render(Sequence.of(PROMPT)))
    for sample in a.samples:
        ids = [*head, *(sample.ids or ())]
        new = [tuple(ids[i - 2 : i + 1]) for i in range(len(head), len(ids))]
        old = {tuple(ids[i : i + 3]) for i in range(len(head) - 2)}
        assert len(set(new)) == len(new) and not old & set(new)
    (b,) = ask(engine, request(8, min_tokens=25, banned=("A:",), temperature=1.0))
    assert all(len(s.ids or ()) >= 25 and "A:" not in s.text for s in b.samples)
    (c,) = ask(engine, request(4, forced="S: x="))
    assert all(s.text.startswith("S: x=") for s in c.samples)
    assert len({s.text for s in c.samples}) > 1


def test_what_leaves_no_token_is_an_error_with_problem_and_cause_and_harms_nobody(
    engine: TorchEngine,
) -> None:
    every = tuple((i,) for i in range(engine._tokenizer.vocab_size))
    refused, fine = request(2, banned=every), request(2)

    async def both() -> list[Any]:
        return await asyncio.gather(engine.generate(refused), engine.generate(fine), return_exceptions=True)

    error, answer = asyncio.run(both())
    assert isinstance(error, InputError)
    assert "after 0 tokens" in str(error) and "banned=" in str(error)
    assert "problem" in str(error) and "allow more" in str(error)
    assert [s.ids for s in answer.samples] == [s.ids for s in ask(engine, fine)[0].samples]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"banned": ((99999,),)}, "banned: 99999 is no id"), ({"logit_bias": {-1: 1.0}}, "pairs .id ≥ 0 or text"),
        ({"logit_bias": {"A: x": 1.0}}, "give texts of one token, or ids"), ({"forced": (99999,)}, "forced: 99999"),
    ],
)  # fmt: skip
def test_what_the_vocabulary_does_not_have_is_refused(
    engine: TorchEngine, params: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        ask(engine, request(**params))


def test_a_prefix_that_begins_otherwise_than_it_is_forced_to_is_refused(engine: TorchEngine) -> None:
    with pytest.raises(InputError, match="forced="):
        ask(engine, request(prefix=Sequence.of(PROMPT).extend("b="), forced="a="))


def test_what_is_banned_is_not_written_where_a_grammar_forces_it(engine: TorchEngine) -> None:
    forced = Grammar.regex("a=12\\+[0-9]\n")
    with pytest.raises(InputError, match=r"after 1 tokens .* banned=\('=',\)"):
        ask(engine, request(banned=("=",), grammar=forced))
    (answer,) = ask(engine, request(banned=("7",), grammar=forced))
    assert answer.samples[0].text[:5] == "a=12+" and "7" not in answer.samples[0].text
