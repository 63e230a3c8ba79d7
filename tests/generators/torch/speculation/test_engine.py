"""Engines with drafts: the target's exact distribution, greedy texts, and whatever else a request asks for."""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from metagen.errors import InputError, UnsupportedError
from metagen.generators.decoding.adapters import Mirostat
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest, Sample, SamplingParams
from metagen.generators.models.recipes import Table
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.history import History
from metagen.generators.torch.parameters import RowParams
from metagen.generators.torch.sampling import distribution
from metagen.sequence import Sequence, Step
from metagen.tasks.arithmetic.task import ArithmeticTask
from tests.generators.torch.scored_models import make_mlp

TOKENS = ("a", "b", "c", ".")
LENGTH = 4
HEAD = (0, 1, 2, 1, 0, 2, 0, 0, 1, 1, 2, 2, 3, 100)
Rows = Callable[[str, tuple[str, ...]], np.ndarray[tuple[int], np.dtype[np.float64]]]


def table(seed: int, sharpness: float = 1.2) -> Table:
    """Another distribution behind every completion."""

    @cache
    def row(prompt: str, done: tuple[str, ...]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        made = np.random.default_rng([seed, *(TOKENS.index(token) for token in done), 7])
        weights = np.exp(sharpness * made.normal(size=len(TOKENS)))
        return weights / weights.sum()

    return Table(TOKENS, row, name=f"test {seed} {sharpness}")


TARGET, AMATEUR = table(1), table(2)
#: Has what may be looked up; the completion begins behind the last character that is no token.
PROMPT = "abcbacaabbcc.x"


def exact(recipe: Table, params: SamplingParams) -> dict[str, float]:
    """The distribution of completions of at most LENGTH tokens, behind the adapters."""
    adapted = RowParams.of([params])
    found: dict[str, float] = {}
    stack: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while stack:
        done, mass = stack.pop()
        if len(done) == LENGTH or (done and done[-1] == 3):
            text = "".join(TOKENS[i] for i in done if i < 3) + ("." if 3 in done else "")
            found[text] = found.get(text, 0.0) + mass
            continue
        rows = recipe.table
        assert callable(rows)
        p = np.asarray(rows(PROMPT, tuple(TOKENS[i] for i in done)), np.float64)
        logits = torch.from_numpy(np.log(p)).float()[None]
        history = History.of(
            [HEAD], [len(HEAD)], np.array([[*done, 0]], np.int64), np.array([len(done)], np.int64)
        )
        for i, chance in enumerate(distribution(logits, adapted, history)[0].double().tolist()):
            if chance:
                stack.append(((*done, i), mass * chance))
    return found


def texts(answers: list[Sample]) -> list[str]:
    return [sample.text + ("." if sample.finish == "eos" else "") for sample in answers]


def ask(
    engine: TorchEngine,
    prompt: Any,
    params: SamplingParams,
    seeds: range,
    length: int = LENGTH,
    until: Any = None,
) -> list[Sample]:
    request = GenerateRequest(Sequence.of(prompt), tuple(seeds), params, length, until)
    return list(asyncio.run(engine.generate(request)).samples)


DRAFTS = {
    "token": Draft(AMATEUR, 3, "token"),
    "block": Draft(AMATEUR, 3, "block"),
    "adapt": Draft(AMATEUR, 2, "block", adapt=True),
    "several": Draft(AMATEUR, 2, drafts=3),
    "lookup": Draft.lookup(3, ngram=2),
}
PARAMS = {
    "plain": SamplingParams(),
    "cut": SamplingParams(temperature=0.8, top_p=0.9),
    "penalised": SamplingParams(repetition_penalty=1.3, frequency_penalty=0.4, no_repeat_ngram=3),
}


@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS.keys())
@pytest.mark.parametrize("name", PARAMS)
def test_sampled_texts_have_the_targets_distribution(draft: Draft, name: str) -> None:
    """Chi-square over all texts, a false alarm in 10⁶; the seeds are fixed, so a pass is a pass for good."""
    n = 4_000
    expected = exact(TARGET, PARAMS[name])
    assert sum(expected.values()) == pytest.approx(1)
    with TorchEngine(TARGET, max_batch=1024, threads=1, draft=draft) as engine:
        seen = Counter(texts(ask(engine, PROMPT, PARAMS[name], range(n))))
        counted = dict(engine.stats.extra)
    assert not seen.keys() - expected.keys()
    common = [text for text, chance in expected.items() if n * chance >= 5]
    rare = [n - sum(seen[t] for t in common), n * (1 - sum(expected[t] for t in common))]
    observed = np.array([*(seen[t] for t in common), rare[0]], float)
    hoped = np.array([*(n * expected[t] for t in common), rare[1]])
    assert stats.chisquare(observed[hoped > 0], hoped[hoped > 0], sum_check=False).pvalue > 1e-6
    assert 0 < counted["accepted"] < counted["drafted"]
    if draft.rule == "token" and draft.drafts == 1:
        spread = (counted["tested"] / 4) ** 0.5
        assert abs(counted["accepted"] - counted["overlap"]) < 5 * spread, "E Σ min(p, q)"


def test_texts_do_not_depend_on_the_batch() -> None:
    draft = Draft(AMATEUR, 3, "block", adapt=True)
    with TorchEngine(TARGET, max_batch=8, threads=1, draft=draft) as engine:
        together = texts(ask(engine, "x", SamplingParams(), range(20), 12))
        alone = [texts(ask(engine, "x", SamplingParams(), range(i, i + 1), 12))[0] for i in range(20)]
    assert together == alone


# -- the embedded models -------------------------------------------------------------------------

PROMPTS = [p.prompt for p in ArithmeticTask("validation", per_level=1, limit=5).problems()]


def solve(
    params: SamplingParams, draft: Draft | None, model: str = "tiny-0.5m"
) -> tuple[list[Sample], TorchEngine]:
    with TorchEngine(model, threads=1, max_batch=16, draft=draft) as engine:

        async def all_of_them() -> list[Generated]:
            requests = [
                GenerateRequest(Sequence.of(p), (2 * i, 2 * i + 1), params, 120)
                for i, p in enumerate(PROMPTS)
            ]
            return list(await asyncio.gather(*map(engine.generate, requests)))

        return [sample for answer in asyncio.run(all_of_them()) for sample in answer.samples], engine


@cache
def without_a_draft(params: SamplingParams) -> tuple[list[Sample], TorchEngine]:
    return solve(params, None)


EMBEDDED = {
    "block": Draft("tiny-0.1m"),
    "token": Draft("tiny-0.1m", 3, "token", adapt=True),
    "several": Draft("tiny-0.1m", 3, drafts=2),
    "lookup": Draft.lookup(ngram=2),
}


@pytest.mark.parametrize("draft", EMBEDDED.values(), ids=EMBEDDED.keys())
@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.0, stop=("\n",), logprobs=True),
        SamplingParams(temperature=0.0, repetition_penalty=1.1, no_repeat_ngram=6),
        SamplingParams(temperature=0.0, grammar=Grammar.regex(r"S:\n(\w=[\d+*/()-]+\n)+"), top_logprobs=3),
    ],
    ids=["plain", "stop", "penalised", "grammar"],
)
def test_greedy_texts_are_those_without_a_draft(draft: Draft, params: SamplingParams) -> None:
    expected, _ = without_a_draft(params)
    found, engine = solve(params, draft)
    extra = engine.stats.extra
    assert extra["near_edge"] == 0, "no choice here is so close that rounding may decide"
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.text, ours.ids, ours.finish) == (theirs.text, theirs.ids, theirs.finish)
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4, rel=1e-6)
        if params.logprobs:
            assert ours.token_logprobs == pytest.approx(theirs.token_logprobs, abs=1e-4)
        if params.top_logprobs:
            assert ours.token_confidences == pytest.approx(theirs.token_confidences, abs=1e-4)
    assert 0 < extra["accepted"] <= extra["drafted"]


@pytest.mark.parametrize(
    "draft", [Draft("tiny-0.1m", 3), Draft("tiny-0.1m", 2, drafts=2)], ids=["one", "two"]
)
def test_sampled_texts_of_a_grammar_are_distributed_as_without_a_draft(draft: Draft) -> None:
    """Two samples of n texts each; chi-square of their being alike, a false alarm in 10⁶."""
    n = 800
    params = SamplingParams(temperature=2.0, grammar=Grammar.regex("[1-3]{1,3}(\\+|-)[45]"))
    counts = []
    for one in (None, draft):
        with TorchEngine("tiny-0.1m", threads=1, max_batch=64, draft=one) as engine:
            counts.append(Counter(sample.text for sample in ask(engine, PROMPTS[0], params, range(n), 12)))
    kinds = sorted(counts[0].keys() | counts[1].keys())
    common = [kind for kind in kinds if counts[0][kind] + counts[1][kind] >= 20]
    table = np.array([[count[kind] for kind in common] for count in counts])
    assert table.sum() > n
    assert stats.chi2_contingency(table).pvalue > 1e-6


def test_passes_are_saved() -> None:
    _, before = without_a_draft(SamplingParams(temperature=0.0))
    samples, after = solve(SamplingParams(temperature=0.0), Draft("tiny-0.1m", 6))
    assert after.stats.extra["steps"] < 0.5 * before.stats.extra["steps"]
    assert after.stats.generated == sum(sample.computed or 0 for sample in samples)


def test_a_draft_nearly_as_long_as_a_tail(steps: str) -> None:
    prompt, params = "Q: " + "12 + 7 = ? " * 9, SamplingParams(temperature=0.0, stop=("\n",))
    found = []
    for draft in (None, Draft("tiny-0.1m", 200)):
        with TorchEngine("tiny-2m", threads=1, max_batch=4, draft=draft) as engine:
            found.append(texts(ask(engine, prompt, params, range(1), 300)))
    assert found[0] == found[1]


def test_log_probabilities_are_the_targets() -> None:
    params = SamplingParams(logprobs=True, temperature=0.9, top_p=0.95)
    with TorchEngine("tiny-0.5m", threads=1, max_batch=16, draft=Draft("tiny-0.1m")) as engine:
        (sample,) = ask(engine, PROMPTS[0], params, range(1), 60)
        head = engine.render(Sequence.of(PROMPTS[0]))
        assert sample.ids is not None and sample.token_logprobs is not None
        at = tuple(range(len(head) - 1, len(head) + len(sample.ids) - 1))
        (read,) = asyncio.run(engine.evaluate([EvaluateRequest(head + sample.ids, at)]))
    assert [v for (v,) in read.values] == pytest.approx(sample.token_logprobs[: len(at)], abs=1e-4)


def test_a_completion_goes_on_where_it_was_left() -> None:
    """By steps, each a request of its own whose prefix the tree holds, in both models."""
    params = SamplingParams(temperature=0.0)
    with TorchEngine("tiny-0.5m", threads=1, max_batch=16, draft=Draft("tiny-0.1m")) as engine:
        whole = ask(engine, PROMPTS[1], params, range(1), 100)[0]
        scope: Sequence = Sequence.of(PROMPTS[1])
        text = ""
        for _ in range(12):
            request = GenerateRequest(scope, (0,), params, 100, Step("\n"))
            answer = asyncio.run(engine.generate(request))
            sample = answer.samples[0]
            text += sample.text
            assert sample.ids is not None
            if sample.finish is not None:
                break
            scope = scope.extend(sample.text)
        assert text == whole.text


@pytest.mark.parametrize("drafts", [1, 2])
def test_rows_and_memory_come_back(drafts: int, held: Callable[[], int]) -> None:
    """After samples that end at all lengths nothing is held but what the tree keeps; the same seeds, the same texts."""
    with TorchEngine(
        "tiny-0.5m", threads=1, max_batch=3, draft=Draft("tiny-0.1m", 3, drafts=drafts)
    ) as engine:
        first = ask(engine, PROMPTS[2], SamplingParams(stop=("=",)), range(9), 40)
        again = ask(engine, PROMPTS[2], SamplingParams(stop=("=",)), range(9), 40)
        assert [s.text for s in first] == [s.text for s in again]
        tree, model = engine._tree, engine._model
        assert held() == tree.tokens * model.token_bytes
        assert tree.reserved == 0


# -- refusals ------------------------------------------------------------------------------------


def test_what_drafts_cannot_be() -> None:
    for wrong, said in (
        (lambda: Draft("tiny-0.1m", 0), "tokens=0"),
        (lambda: Draft("tiny-0.1m", verify="all"), "verify='all'"),  # type: ignore[arg-type]
        (lambda: Draft("tiny-0.1m", drafts=2, verify="block"), "leave verify out"),
        (lambda: Draft("tiny-0.1m", drafts=65), "from 1 to 64"),
        (lambda: Draft("tiny-0.1m", ngram=2), "Draft.lookup"),
        (lambda: Draft.lookup(ngram=0), "ngram=0"),
    ):
        with pytest.raises(InputError, match=said):
            wrong()


def test_one_vocabulary_for_both(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="different vocabularies"):
        TorchEngine("tiny-0.5m", draft=Draft("tiny-bpe"), max_batch=2)
    make_mlp(tmp_path, 1)
    for draft in (Draft(tmp_path), Draft.lookup()):
        with pytest.raises(UnsupportedError, match="that score"):
            TorchEngine(tmp_path, draft=draft, max_batch=2)


def test_mirostat_has_no_drafts() -> None:
    engine = TorchEngine("tiny-0.5m", draft=Draft.lookup(), max_batch=2)
    with pytest.raises(UnsupportedError, match=r"has no mirostat.*; leave out draft"):
        engine.generator(mirostat=Mirostat(3.0))


def test_a_larger_draft_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level("WARNING", logger="metagen"),
        pytest.warns(UserWarning, match="larger than its target.*'tiny-0.5m' drafts for 'tiny-0.1m'"),
    ):
        TorchEngine("tiny-0.1m", draft=Draft("tiny-0.5m"), max_batch=2)
    assert "larger than its target" in caplog.text


def test_a_draft_is_given_as_one() -> None:
    with pytest.raises(InputError, match=r"draft='tiny-0.1m'; expected a Draft or None"):
        TorchEngine("tiny-0.5m", draft="tiny-0.1m", max_batch=2)  # type: ignore[arg-type]  # what is refused


def test_fingerprints_name_the_draft() -> None:
    drafts = [
        None,
        Draft("tiny-0.1m"),
        Draft("tiny-0.1m", 5),
        Draft("tiny-0.1m", verify="token"),
        Draft.lookup(),
    ]
    names = [TorchEngine("tiny-0.5m", max_batch=2, draft=draft).fingerprint for draft in drafts]
    assert len(set(names)) == len(names)
    assert TorchEngine("tiny-0.5m", max_batch=2, draft=Draft("tiny-0.1m")).fingerprint == names[1]


def test_every_text_is_counted_once() -> None:
    assert len(exact(TARGET, SamplingParams())) == sum(
        1 for n in range(LENGTH + 1) for _ in product("abc", repeat=n)
    )
