"""What masks leave is kept with a sample: exact on tables, for grammars and for healing, whatever runs the model."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from metagen.errors import InputError, UnsupportedError
from metagen.generators.decoding.constraint import Held
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.grammar import Grammar
from metagen.generators.decoding.healing import Boundaries, ForcedBytes
from metagen.generators.decoding.search import BeamSearch
from metagen.generators.decoding.words import Words
from metagen.generators.engine import GenerateRequest, Sample, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.models.recipes import Table
from metagen.generators.primitive import EngineGenerator
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.history import History
from metagen.generators.torch.parameters import RowParams
from metagen.generators.torch.sampling import distribution
from metagen.scope import Scope
from metagen.sequence import Sequence, Tokens
from metagen.verifiers.mass import GrammarMass

TOKENS = ("a", "b", "ab", "abc", "c", "$")
MOST = 4
#: The grammar begins behind the bytes that healing forces.
GRAMMAR = Grammar.regex("(a|b)(b|c)c?|abcc", canonical=False)
#: Behind "b" comes what the tokenizer writes for "cba", and nothing else.
NARROW = Grammar.regex("a|bcba(b|c)?")


def table(seed: int) -> Table:
    @cache
    def row(prompt: str, done: tuple[str, ...]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        made = np.random.default_rng([seed, *(TOKENS.index(token) for token in done), 7])
        weights = np.exp(made.normal(size=len(TOKENS)))
        return weights / weights.sum()

    return Table(TOKENS, row, name=f"masses {seed}")


TARGET = table(1)


class Path(NamedTuple):
    """Tokens to the end or to MOST of them, their probability without masks (p) and with them (q)."""

    text: str
    finish: str
    p: float
    q: float


def paths(engine: TorchEngine, prompt: str, params: SamplingParams) -> dict[tuple[int, ...], Path]:
    """All that masks allow, behind a prompt whose end is healed if the parameters say so."""
    ids = engine.render(Sequence.of(prompt)) or ()
    dropped: tuple[int, ...] = ()
    if params.healing:
        ids, dropped = Boundaries([t.encode() for t in TOKENS[:-1]] + [b""] * 300).heal(ids)
    start = engine._matcher(params.grammar, (), MOST - len(dropped)) if params.grammar is not None else None
    if dropped:
        boundaries = engine._boundaries()
        start = ForcedBytes(boundaries, b"".join(boundaries.texts[i] for i in dropped), start)
    skip = sum(len(TOKENS[i]) for i in dropped)
    begun = prompt[: len(prompt) - skip].rpartition("?")[2]
    assert begun == "" and start is not None
    tokens = engine._tokenizer
    words = Words.of(params, tokens.encode, tokens.decode, tokens.vocab_size, tokens.eos)
    rows, adapted = TARGET.table, RowParams.of([params], [words])
    assert callable(rows)
    found: dict[tuple[int, ...], Path] = {}
    stack: list[tuple[tuple[int, ...], Held, float, float]] = [((), start, 1.0, 1.0)]
    while stack:
        done, at, p, q = stack.pop()
        if len(done) == MOST or (done and done[-1] == 5):
            text = "".join(TOKENS[i] for i in done if i < 5)[skip:]
            found[done] = Path(text, "eos" if done[-1] == 5 else "length", p, q)
            continue
        made = np.full(engine.vocabulary, -np.inf)
        made[: len(TOKENS)] = np.log(np.asarray(rows("?", tuple(TOKENS[i] for i in done)), np.float64))
        logits = torch.from_numpy(made).float()[None]
        history = History.of(
            [ids], [len(ids)], np.array([[*done, 0]], np.int64), np.array([len(done)], np.int64)
        )
        free = distribution(logits, adapted, history)[0].double().numpy()
        mask = at.allowed_tokens(MOST - len(done))
        mass = float(free[mask].sum())
        for i in np.flatnonzero(mask & (free > 0)).tolist():
            then = at.copy()
            then.consume([i])
            stack.append(((*done, i), then, p * float(free[i]), q * float(free[i]) / mass))
    return found


def draws(engine: TorchEngine, prompt: str, n: int, **params: Any) -> tuple[Sample, ...]:
    given = SamplingParams(max_tokens=MOST, logprobs=True, **params)
    request = GenerateRequest(Sequence.of(prompt), tuple(range(n)), given, max_tokens=MOST)
    return asyncio.run(engine.generate(request)).samples


CASES: list[tuple[str, dict[str, Any]]] = [
    ("?ab", {"healing": True}),
    ("?ab", {"healing": True, "grammar": Grammar.regex("(b|c)*a?", canonical=False)}),
    ("?", {"grammar": GRAMMAR}),
    ("?", {"grammar": NARROW}),
    ("?", {"grammar": Grammar.regex("(a|b)(bc|c)*a", canonical=False, close=True)}),
]
ADAPTED: list[dict[str, Any]] = [{}, {"temperature": 1.7, "repetition_penalty": 1.4, "logit_bias": {1: 0.5}}]
DRAFTS = {
    "plain": None,
    "lookup": Draft.lookup(),
    "token": Draft(table(2), tokens=3, verify="token"),
    "block": Draft(table(2), tokens=3),
    "several": Draft(table(2), tokens=2, drafts=2),
}


@pytest.mark.parametrize("draft", DRAFTS)
def test_it_is_the_ratio_of_the_model_without_masks_and_with_them(draft: str) -> None:
    """log_mass = log p/q of the very tokens; q is what is drawn, so Σ q f w/Σ p is the mean of f, given the masks."""
    n = 600
    with TorchEngine(TARGET, threads=1, draft=DRAFTS[draft]) as engine:
        for prompt, held in CASES:
            for more in ADAPTED:
                known = paths(engine, prompt, SamplingParams(**held, **more))
                exact = {(o.text, o.finish, round(math.log(o.p / o.q), 3)) for o in known.values()}
                samples = draws(engine, prompt, n, log_mass=True, **held, **more)
                for sample in samples:
                    assert sample.log_mass is not None
                    near = {
                        (sample.text, sample.finish, round(sample.log_mass + e, 3))
                        for e in (-1e-5, 0.0, 1e-5)
                    }
                    assert near & exact, (prompt, held, more, sample)
                total = sum(o.p for o in known.values())
                weights = np.exp([s.log_mass for s in samples])
                spread = math.sqrt(sum(o.p**2 / o.q for o in known.values()) - total**2)
                assert abs(weights.mean() - total) < 5 * spread / math.sqrt(n) + 1e-6
                if held.get("grammar") is NARROW and draft == "plain":
                    assert any(sample.forced for sample in samples), "forced tokens have a mass, too"


def test_weights_take_the_bias_of_healing_out() -> None:
    """Of 4,000 samples over fixed seeds; 5/8 of them begin with the token a, and 5/17 of what the model writes."""
    p = (0.25, 0.2, 0.1, 0.05, 0.05, 0.35)
    tokens = ("a", "b", "ab", "abc", "bc", "$")
    with TorchEngine(Table(tokens, lambda _, done: p, name="independent"), threads=1) as engine:
        samples = draws(engine, "?ab", 4000, healing=True, log_mass=True)
    weights = np.exp([sample.log_mass for sample in samples])
    by_a = np.isclose(weights, 0.1)
    assert (by_a | np.isclose(weights, 0.4)).all()
    local, weighed = by_a.mean(), weights[by_a].sum() / weights.sum()
    print(
        f"total variation to p(· | bytes): {abs(local - 5 / 17):.3f} local, {abs(weighed - 5 / 17):.3f} weighed"
    )
    assert local == pytest.approx(5 / 8, abs=0.03) and weighed == pytest.approx(5 / 17, abs=0.03)
    assert weights.mean() == pytest.approx(0.2125, abs=0.01)


def test_keeping_it_changes_nothing_that_is_drawn() -> None:
    with TorchEngine(TARGET, threads=1) as engine:
        for prompt, held in CASES:
            kept = draws(engine, prompt, 40, log_mass=True, **held)
            assert [replace(s, log_mass=None) for s in kept] == list(draws(engine, prompt, 40, **held))
        (greedy,) = draws(engine, "?", 1, log_mass=True, temperature=0.0, grammar=GRAMMAR)
        assert greedy.log_mass is None, "it is no draw"


@pytest.mark.parametrize(
    "make", [TorchEngine, lambda recipe, **_: EnumerableEngine(TOKENS, recipe.table, name="same")]
)
def test_steps_add_up_to_what_is_read_again(make: Any) -> None:
    """A token at a time, or at once: the sum is that of GrammarMass, which reads the model anew."""
    params = {"grammar": GRAMMAR, "temperature": 1.3, "repetition_penalty": 1.5}
    with make(TARGET, threads=1) as engine:
        generator = engine.generator(log_mass=True, max_tokens=MOST, **params)
        mass = GrammarMass(engine.generator(max_tokens=MOST, **params))

        async def ask() -> tuple[list[Sequence], list[float | None]]:
            scope = Scope.root("p")
            drawn = await generator.generate(Sequence.of("?"), n=30, scope=scope.child("whole"))
            for i in range(30):
                one = Sequence.of("?")
                while one.finish is None:
                    place = scope.child(f"{i}/{len(one.text)}")
                    (one,) = await generator.generate(one, until=Tokens(1), scope=place)
                drawn.append(one)
            scores = await mass.score(drawn, scope=scope.child("weigh"))
            return drawn, [score.raw for score in scores]

        drawn, read = asyncio.run(ask())
    assert len({s.log_mass for s in drawn}) > 3
    assert [s.log_mass for s in drawn] == pytest.approx(read, abs=2e-5)


def test_what_has_no_weight_is_refused() -> None:
    for cut in ({"top_k": 2}, {"top_p": 0.9}, {"min_p": 0.1}):
        with pytest.raises(
            InputError, match=rf"{next(iter(cut))}=.* cuts by what masks leave.*leave one out"
        ):
            SamplingParams(log_mass=True, **cut)  # type: ignore[arg-type]  # some of its fields
    with pytest.raises(InputError, match="log_mass=True: a search draws nothing"):
        SamplingParams(log_mass=True, search=BeamSearch(2))
    with pytest.raises(InputError, match="log_mass='yes': expected true or false"):
        SamplingParams(log_mass="yes")  # type: ignore[arg-type]  # what is refused
    plain = type("Plain", (EnumerableEngine,), {"supports": frozenset({"grammar", "closing"})})(
        TOKENS, {}, name="x"
    )
    with pytest.raises(UnsupportedError, match="does not see what its masks leave"):
        EngineGenerator(plain, SamplingParams(grammar=GRAMMAR, log_mass=True))
    assert SamplingParams(log_mass=False).fingerprint == SamplingParams().fingerprint
