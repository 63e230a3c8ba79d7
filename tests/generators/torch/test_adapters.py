"""Adapters with other parameters in each row at once, against transformers' processors row by row, and their laws."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from metagen.generators.decoding.adapters import Mirostat
from metagen.generators.decoding.parameters import ADAPTERS
from metagen.generators.decoding.words import Words
from metagen.generators.engine import SamplingParams
from metagen.generators.torch.adapters import LARGE, _find_in_all, _find_in_head, _nucleus, top_p
from metagen.generators.torch.history import History
from metagen.generators.torch.parameters import Parameters, RowParams
from metagen.generators.torch.sampling import adapt, distribution, draw

SIZE, EOS, PROMPT = 211, 7, 5


def theirs(params: SamplingParams) -> LogitsProcessorList:
    """The same parameters, as transformers orders its processors."""
    p = params
    made: list[Any] = []
    if p.biases:
        made.append(SequenceBiasLogitsProcessor({(i,): float(v) for i, v in p.biases}))  # type: ignore[dict-item]
    if p.sequence_bias:
        made.append(SequenceBiasLogitsProcessor(dict(p.sequence_bias)))  # type: ignore[misc]
    if p.repetition_penalty != 1:
        made.append(RepetitionPenaltyLogitsProcessor(p.repetition_penalty))
    if p.no_repeat_ngram:
        made.append(NoRepeatNGramLogitsProcessor(p.no_repeat_ngram))
    if p.banned:
        made.append(NoBadWordsLogitsProcessor([list(one) for one in p.banned], eos_token_id=None))
    if p.min_tokens:
        made.append(MinNewTokensLengthLogitsProcessor(PROMPT, p.min_tokens, EOS))
    made += shaping(p)
    return LogitsProcessorList(made)


def shaping(p: SamplingParams) -> Iterator[Any]:
    kept = p.min_tokens_to_keep
    if p.temperature != 1:
        yield TemperatureLogitsWarper(float(p.temperature))
    if p.top_h < 1:
        yield TopHLogitsWarper(p.top_h)
    if p.top_k:
        yield TopKLogitsWarper(p.top_k, min_tokens_to_keep=kept)
    if p.top_p < 1:
        yield TopPLogitsWarper(p.top_p, min_tokens_to_keep=kept)
    if p.min_p:
        yield MinPLogitsWarper(p.min_p, min_tokens_to_keep=kept)
    if p.typical_p < 1:
        yield TypicalLogitsWarper(p.typical_p, min_tokens_to_keep=kept)
    if p.epsilon_cutoff:
        yield EpsilonLogitsWarper(p.epsilon_cutoff, min_tokens_to_keep=kept)
    if p.eta_cutoff:
        yield EtaLogitsWarper(p.eta_cutoff, min_tokens_to_keep=kept)


def words(params: SamplingParams) -> Words:
    return Words.of(params, lambda text: [int(text)], lambda ids: str(*ids), SIZE, [EOS])


def rows_of(many: list[SamplingParams]) -> RowParams:
    return RowParams.of(many, [words(one) for one in many])


def histories(n: int, seed: int) -> tuple[History, list[Tensor]]:
    """Prompts of PROMPT tokens and completions of other lengths, of few tokens, so that all repeat themselves."""
    draw = np.random.default_rng(seed)
    ids = [draw.integers(0, 12, PROMPT + length) for length in draw.integers(0, 40, n)]
    return History.of([i.tolist() for i in ids], [PROMPT] * n), [torch.from_numpy(i)[None] for i in ids]


ALONE = [
    {"top_h": 0.4}, {"top_h": 0.9}, {"min_p": 0.05}, {"min_p": 0.3}, {"min_p": 1.0}, {"typical_p": 0.2},
    {"typical_p": 0.95}, {"epsilon_cutoff": 3e-3}, {"epsilon_cutoff": 0.9}, {"eta_cutoff": 2e-2}, {"eta_cutoff": 0.9},
    {"top_k": 3}, {"top_p": 0.4}, {"temperature": 0.3}, {"repetition_penalty": 1.7}, {"repetition_penalty": 0.6},
    {"no_repeat_ngram": 1}, {"no_repeat_ngram": 2}, {"no_repeat_ngram": 3}, {"min_tokens": 20}, {},
    {"banned": ((3,), (1, 2), (4, 5, 6), (2, 2))}, {"logit_bias": {3: 2.5, 4: -7.0}},
    {"sequence_bias": {(3,): 1.5, (1, 2): -4.0, (4, 5): 3.0, (2, 2): 2.0, (0, 1, 2): -1.0}},
    {"top_k": 2, "min_tokens_to_keep": 5}, {"top_p": 0.1, "min_tokens_to_keep": 4},
    {"min_p": 0.9, "min_tokens_to_keep": 3},
    {"typical_p": 0.05, "min_tokens_to_keep": 4}, {"epsilon_cutoff": 0.9, "min_tokens_to_keep": 6},
    {"eta_cutoff": 0.9, "min_tokens_to_keep": 2, "temperature": 1.7},
]  # fmt: skip
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0.2, 3), "top_h": st.floats(0.05, 0.95), "top_k": st.integers(1, 300),
        "top_p": st.floats(0.05, 0.99), "min_p": st.floats(0.001, 0.9), "typical_p": st.floats(0.05, 0.99),
        "epsilon_cutoff": st.floats(1e-5, 0.3), "eta_cutoff": st.floats(1e-5, 0.3),
        "repetition_penalty": st.floats(0.5, 2), "no_repeat_ngram": st.integers(1, 4),
        "min_tokens": st.integers(0, 40),
        "banned": st.lists(st.lists(st.integers(0, 11), min_size=1, max_size=3).map(tuple), max_size=4).map(tuple),
        "logit_bias": st.dictionaries(st.integers(0, 11), st.floats(-5, 5), max_size=3),
        "sequence_bias": st.dictionaries(
            st.lists(st.integers(0, 11), min_size=1, max_size=3).map(tuple), st.floats(-5, 5), max_size=3
        ),
    },
)  # fmt: skip


def check_parity(many: list[SamplingParams], logits: Tensor, seed: int) -> None:
    history, ids = histories(len(many), seed)
    together = adapt(logits, rows_of(many), history)
    for row, params in enumerate(many):
        alone = theirs(params)(ids[row], logits[row : row + 1])[0]
        assert torch.equal(together[row].isneginf(), alone.isneginf()), params
        torch.testing.assert_close(together[row], alone)


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_each_adapter_is_that_of_transformers_whatever_the_other_rows_do(scale: float) -> None:
    logits = torch.randn(len(ALONE), SIZE, generator=torch.Generator().manual_seed(5)) * scale
    check_parity([SamplingParams(**one) for one in ALONE], logits, 1)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(PARAMS, min_size=1, max_size=6), st.integers(0, 999), st.sampled_from([0.5, 2.0, 6.0]))
def test_all_of_them_together_are_those_of_transformers(
    many: list[dict[str, Any]], seed: int, scale: float
) -> None:
    logits = torch.randn(len(many), SIZE, generator=torch.Generator().manual_seed(seed)) * scale
    check_parity([SamplingParams(**one) for one in many], logits, seed)


TIES = [
    {"min_p": 0.3}, {"epsilon_cutoff": 0.02}, {"eta_cutoff": 0.05}, {"top_k": 5}, {"typical_p": 0.4},
    {"repetition_penalty": 1.7},
]  # fmt: skip


def test_ties_of_rounded_logits_are_treated_alike_but_by_top_p_and_top_h() -> None:
    """A model in bfloat16 makes ties. Adapters compute in float32 of what was rounded."""
    rounded = (torch.randn(200, SIZE, generator=torch.Generator().manual_seed(6)) * 2).bfloat16().float()
    rounded = (rounded * 4).round() / 4
    for one in TIES:
        many = [SamplingParams(**one)] * len(rounded)
        check_parity(many, rounded, 2)
    for one in ({"top_p": 0.6}, {"top_h": 0.5}):
        params = SamplingParams(**one)
        mine = adapt(rounded, rows_of([params] * len(rounded)))
        for row, alone in zip(mine, theirs(params)(None, rounded), strict=True):  # type: ignore[arg-type]
            kept = row[~row.isneginf()]
            assert torch.equal(kept.sort().values, alone[~alone.isneginf()].sort().values)
            edge = (row.isneginf().logical_not()).nonzero()[:, 0]
            last = kept.min()
            equal = (rounded[(mine == row).all(-1)][0] == last).nonzero()[:, 0]
            inside = [i for i in equal.tolist() if i in edge.tolist()]
            assert inside == equal.tolist()[: len(inside)], "of equal tokens the lower ids are kept"


@pytest.mark.parametrize("size", [LARGE, 32_000, 49_157])
@pytest.mark.parametrize("scale", [0.3, 3.0, 8.0])
@pytest.mark.parametrize("rounded", [False, True])
def test_the_nucleus_of_a_large_vocabulary_is_that_of_a_sort_of_all(
    size: int, scale: float, rounded: bool
) -> None:
    """Flat and peaked, with ties and without, where tokens are ruled out and where only one is left."""
    shares = (1e-7, 0.05, 0.5, 0.9, 0.97, 0.999)
    logits = torch.randn(len(shares), size, generator=torch.Generator().manual_seed(size)) * scale
    if rounded:
        logits = (logits * 4).round() / 4
    logits[1::2, ::3] = -torch.inf
    logits[5, 1:] = -torch.inf
    params = rows_of([SamplingParams(top_p=share) for share in shares])
    drop = params.column("drop", logits)
    kept = top_p(logits, params)
    assert torch.equal(kept, _nucleus(logits, drop))
    for row, mine, share in zip(logits, kept, shares, strict=True):
        alone = TopPLogitsWarper(share)(None, row[None])[0]  # type: ignore[arg-type]
        assert torch.equal(mine[~mine.isneginf()].sort().values, alone[~alone.isneginf()].sort().values)


def test_a_head_is_looked_at_first_and_a_sort_decides_what_is_close() -> None:
    """Both ways are taken by the rows above."""
    z = torch.randn(2, 32_000, generator=torch.Generator().manual_seed(9)) * torch.tensor([[0.3], [8.0]])
    flat, peaked = (
        _find_in_head(row.numpy(), torch.softmax(row, -1).numpy(), float(np.float32(0.1))) for row in z
    )
    assert flat is None
    assert peaked == _find_in_all(z[1].numpy(), float(np.float32(0.1)))
    p = torch.tensor([0.25, 0.25, 0.25, 0.25, *[1e-12] * (LARGE - 4)])
    assert _find_in_head(p.log().numpy(), p.numpy(), 0.25) is None, "the edge is where the threshold is"
    assert _find_in_head(p.log().numpy(), p.numpy(), 0.3) is not None


@pytest.mark.parametrize("compiled", ["auto", "off"])
def test_a_row_that_is_no_distribution_stays_one_in_a_large_vocabulary(
    compiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METAGEN_COMPILED", compiled)
    logits = torch.randn(3, LARGE, generator=torch.Generator().manual_seed(10)) * 8
    logits[0, 5] = torch.nan
    drawn = draw(logits, np.full(3, 0.5), rows_of([SamplingParams(top_p=0.9)] * 3))
    assert drawn.bad.tolist() == [True, False, False]


@pytest.mark.parametrize("rows", [1, 7])
def test_typical_tokens_of_a_large_vocabulary_are_those_of_transformers(rows: int) -> None:
    logits = torch.randn(rows, 32_000, generator=torch.Generator().manual_seed(rows)) * 3
    check_parity([SamplingParams(typical_p=0.1 + 0.1 * i) for i in range(rows)], logits, 3)


CUTS = ("top_h", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "top_p", "top_k", "mirostat")


@settings(max_examples=30, deadline=None, derandomize=True)
@given(PARAMS, st.integers(0, 999))
def test_the_best_token_is_kept_and_what_is_kept_is_in_proportion(one: dict[str, Any], seed: int) -> None:
    one = {k: v for k, v in one.items() if k in CUTS and k != "typical_p"}
    params = SamplingParams(**one, mirostat=Mirostat(0.01, 0.5))
    logits = torch.randn(3, SIZE, generator=torch.Generator().manual_seed(seed)) * 4
    z = adapt(logits, rows_of([params] * 3))
    assert torch.equal(z.argmax(-1), logits.argmax(-1))
    kept = ~z.isneginf()
    assert torch.equal(z[kept], logits[kept])


def test_typical_keeps_the_most_typical_token() -> None:
    p = torch.tensor([[0.5, 0.2, 0.15, 0.15]])
    kept = ~adapt(p.log(), rows_of([SamplingParams(typical_p=0.01)]))[0].isneginf()
    entropy = -(p * p.log()).sum()
    assert kept.tolist() == [False, True, False, False]
    assert int((-p.log() - entropy).abs().argmin()) == 1


def test_presence_and_frequency_are_of_the_completion_alone() -> None:
    """z − frequency·count − presence·[count > 0], the prompt left out."""
    many = [
        SamplingParams(presence_penalty=0.7, frequency_penalty=0.25),
        SamplingParams(frequency_penalty=-1),
    ]
    history = History.of([[1, 1, 2, 3, 3, 2], [9, 4, 4, 4]], [2, 1])
    logits = torch.randn(2, SIZE)
    z = adapt(logits, rows_of(many), history)
    want = logits.clone()
    want[0, [2, 3]] -= 0.7 + 2 * 0.25
    want[1, 4] += 3
    torch.testing.assert_close(z, want)


def test_what_a_completion_is_forced_to_begin_with() -> None:
    many = [SamplingParams(forced=(5, 9, 5)), SamplingParams(), SamplingParams(forced=(8,))]
    for done, only in (([], (5, 8)), ([5], (9, None)), ([5, 9], (5, None)), ([5, 9, 5], (None, None))):
        history = History.of([[1, 2, *done], [1, 2], [1, 2, *([8] if done else [])]], [2, 2, 2])
        p = distribution(torch.randn(3, SIZE), rows_of(many), history)
        for row, token in zip((0, 2), only, strict=True):
            assert (p[row] > 0).sum() == (1 if token is not None else SIZE)
            if token is not None:
                assert p[row, token] == 1
        assert (p[1] > 0).all()


def test_what_came_before_may_lie_outside_of_the_vocabulary() -> None:
    many = [SamplingParams(repetition_penalty=2, no_repeat_ngram=1, presence_penalty=1, frequency_penalty=1)]
    logits = torch.randn(1, 4)
    outside = adapt(logits, RowParams.of(many), History.of([[4, 99, 300]], [1]))
    assert torch.equal(outside, logits)
    assert torch.equal(adapt(logits, RowParams.of(many), History.of([[]], [0])), logits)


def test_a_greedy_row_takes_the_best_of_what_is_penalised_and_allowed() -> None:
    cuts = {"typical_p": 0.01, "top_k": 1, "mirostat": Mirostat(0.1)}
    many = [
        SamplingParams(temperature=0, **cuts), SamplingParams(temperature=0, banned=((0,),), **cuts),
        SamplingParams(temperature=0, repetition_penalty=5.0, **cuts), SamplingParams(temperature=0, **cuts),
    ]  # fmt: skip
    logits = torch.tensor([[3.0, 2.0, 2.0, 1.0]]).expand(4, -1).contiguous()
    history = History.of([[0]] * 4, [1] * 4)
    allowed = torch.tensor([3]), torch.tensor([[False, False, True, True]])
    u = np.full(4, 0.999)
    params = RowParams.of(many, [Words(banned=one.banned) for one in many])  # type: ignore[arg-type]
    assert draw(logits, u, params, allowed, history).tokens.tolist() == [0, 1, 1, 2]
    p = distribution(logits, params, history, allowed)
    assert p.argmax(-1).tolist() == [0, 1, 1, 2]
    assert p.max(-1).values.tolist() == [1, 1, 1, 1]


def test_a_row_without_any_token_is_told_and_none_other() -> None:
    ban = tuple((i,) for i in range(6))
    many = [SamplingParams(banned=ban), SamplingParams(), SamplingParams(min_tokens=3), SamplingParams()]
    params = RowParams.of(many, [Words(banned=ban), Words(), Words(ends=(2,)), Words()])
    allowed = torch.tensor([2]), torch.tensor([[False, False, True, False, False, False]])
    logits = torch.zeros(4, 6)
    logits[3, 1] = torch.nan
    drawn = draw(logits, np.full(4, 0.5), params, allowed, History.of([[0]] * 4, [1] * 4))
    assert drawn.none.tolist() == [True, False, True, False]
    assert drawn.bad.tolist() == [True, False, True, True]
    logits[0, 1] = torch.nan
    again = draw(logits, np.full(4, 0.5), params, allowed, History.of([[0]] * 4, [1] * 4))
    assert again.none.tolist() == [False, False, True, False], "what is no number is the model's fault"


def test_draws_follow_the_distribution_with_a_history() -> None:
    """The inverse CDF over an even grid gives each token its share, to a grid's width."""
    n = 4000
    one = SamplingParams(
        repetition_penalty=1.5, min_p=0.05, typical_p=0.9, no_repeat_ngram=2, temperature=1.4
    )
    history = History.of([[1, 2, 3, 1]] * n, [1] * n)
    logits = torch.randn(1, 24, generator=torch.Generator().manual_seed(7)).expand(n, -1).contiguous()
    params = RowParams.of([one]).take([0] * n)
    seen = np.bincount(draw(logits, (np.arange(n) + 0.5) / n, params, None, history).tokens, minlength=24) / n
    p = distribution(logits[:1], params.take([0]), History.of([[1, 2, 3, 1]], [1]))[0].numpy()
    assert p[2] == 0, "1 2 has been there"
    np.testing.assert_allclose(seen, p, atol=1 / n)


def test_rows_that_are_taken_are_as_if_they_had_been_there() -> None:
    many = [SamplingParams(**one) for one in ALONE]
    params, (history, _) = rows_of(many), histories(len(ALONE), 3)
    index = [4, 4, 21, 0, 22, 16]
    logits = torch.randn(len(index), SIZE)
    part = History(history.ids[index], history.start[index])
    taken = adapt(logits, params.take(index), part)
    assert torch.equal(taken, adapt(logits, rows_of([many[i] for i in index]), part))


def test_rows_come_and_go() -> None:
    """The table gives what the parameters of the rows in use give at once, however they came there."""
    many = [SamplingParams(**one) for one in ALONE]
    table, there = Parameters(4, torch.device("cpu")), list[SamplingParams]()
    order = np.random.default_rng(8)
    for step in range(200):
        if there and (len(there) == 4 or order.random() < 0.5):
            hole, left = int(order.integers(len(there))), len(there) - 1
            mover = [] if hole == left else [left]
            table.remove(np.array([hole] if mover else [], np.int64), np.array(mover, np.int64), left)
            there[hole] = there[left]
            there.pop()
        else:
            one = many[int(order.integers(len(many)))].replace(min_tokens=step % 50)
            table.add(np.array([len(there)]), one, words(one))
            there.append(one)
        if there:
            assert np.array_equal(table.rows.table[:, :-1], rows_of(there).table[:, :-1])
            assert {(w, tuple(r)) for w, r in table.rows.words.items()} == {
                (w, tuple(r)) for w, r in rows_of(there).words.items()
            }


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1e-38}, {"temperature": 1e-300}, {"repetition_penalty": 1e-9, "frequency_penalty": -1e9},
        {"logit_bias": {5: 1e9, 6: -1e9}, "temperature": 1e-9, "repetition_penalty": 1e9}, {"presence_penalty": 1e9},
    ],
    ids=str,
)  # fmt: skip
def test_whatever_is_allowed_leaves_a_distribution(params: dict[str, Any]) -> None:
    """Beside a row at another temperature, which it does not change."""
    logits = torch.randn(2, SIZE, generator=torch.Generator().manual_seed(3)) * 30
    history, _ = histories(2, 4)
    rows = [SamplingParams(**params), SamplingParams(temperature=0.7)]
    p = distribution(logits, rows_of(rows), history)
    assert p.sum(-1).tolist() == pytest.approx([1, 1], abs=1e-5)
    if set(params) == {"temperature"}:
        assert p[0, logits[0].argmax()] == 1
    assert torch.equal(p[1], torch.softmax(logits[1] / torch.tensor(0.7), -1))


def test_adapters_that_are_off_leave_logits_as_they_are() -> None:
    logits = torch.randn(3, SIZE)
    params = rows_of([SamplingParams(**dict(ADAPTERS)), SamplingParams(), SamplingParams(top_logprobs=3)])
    assert torch.equal(adapt(logits, params), logits)
    assert not params.remembers
    assert (
        draw(logits, np.full(3, 0.5), params).tokens.tolist()
        == draw(logits, np.full(3, 0.5), RowParams.of([SamplingParams()] * 3)).tokens.tolist()
    )
