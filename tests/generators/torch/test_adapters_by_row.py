"""Rows of several adapters in one batch: each is computed as by an engine of its adapter alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from metagen.errors import EngineError, InputError, NumericsError, UnsupportedError
from metagen.generators.base import Generator
from metagen.generators.compiled.build import extension
from metagen.generators.decoding.draft import Draft
from metagen.generators.engine import (
    Engine,
    EvaluateRequest,
    Generated,
    GenerateRequest,
    Sample,
    SamplingParams,
)
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.adapted import AdaptedEngine
from metagen.generators.torch.models import loading
from metagen.generators.torch.models.by_row import ByRow
from metagen.generators.torch.models.llama import LlamaModel
from metagen.scope import Scope
from metagen.sequence import Prompt, Sequence
from metagen.testing import EngineLaws, GeneratorLaws
from metagen.verifiers.layouts import SeparatorSteps
from metagen.verifiers.reward import ProcessRewardModel
from tests.generators.torch.lora_adapters import make_adapter

BASE = "tiny-0.1m"
PROMPTS = (
    "Q:a=81/9;b=a+7;c=b-2;c?\nS:\na=81/9=",
    "Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=",
    "Q:a=5",
    "Q:",
)
#: A reward model that is read at the end of each line.
LAYOUT = SeparatorSteps("\n", "\n")
#: Samples of a mixed batch that rounding may change.
FLIPS = 0.02


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    extension()  # compiled steps are looked for in another cache
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METAGEN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of all matrices; of some, from the second layer on, with another rank; and one that changes a lot."""
    folder = tmp_path_factory.mktemp("adapters")
    return [
        make_adapter(folder / "all", BASE, 1),
        make_adapter(folder / "some", BASE, 2, matrices=("q_proj", "up_proj"), layers=[1], rank=2, size=0.2),
        make_adapter(folder / "strong", BASE, 3, size=0.2),
    ]


def requests(n: int = 6, first: int = 0, most: int = 24, **params: Any) -> list[GenerateRequest]:
    asked = SamplingParams(logprobs=True, **params)
    return [GenerateRequest(Sequence.of(p), tuple(range(first, first + n)), asked, most) for p in PROMPTS]


def ask(*asked: tuple[Engine, list[GenerateRequest]]) -> list[list[Generated]]:
    """All at once; the answers of each engine."""

    async def gather() -> list[list[Generated]]:
        calls = [asyncio.gather(*(engine.generate(request) for request in some)) for engine, some in asked]
        return [list(answers) for answers in await asyncio.gather(*calls)]

    return asyncio.run(gather())


def samples(answers: list[Generated]) -> list[Sample]:
    return [sample for answer in answers for sample in answer.samples]


def ints(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, np.int64)


# -- the model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("steps")
@torch.inference_mode()
def test_rows_keep_their_adapters_after_any_operations(adapters: list[Path], seed: int) -> None:
    place = loading.Place(torch.float32, torch.device("cpu"), 12, 1 << 25)

    def load(path: str | Path) -> Any:
        return loading.load(path, place).model

    model, alone = load(BASE), [load(path) for path in (BASE, *adapters)]
    directories = [one.directory for one in (loading.load(path, place).tokenizer for path in adapters)]
    assert [model.adopt(directory) for directory in directories] == [1, 2, 3]
    rng = random.Random(seed)
    held: dict[int, tuple[int, list[int]]] = {}
    segments: list[tuple[int, list[int], list[Any]]] = []

    def grow(rows: list[int]) -> None:
        counts = [rng.choice((1, 2, 40)) if rng.random() < 0.4 else 1 for _ in rows]
        new = [[rng.randrange(0, 40) for _ in range(n)] for n in counts]
        given = None if set(counts) == {1} else ints(*counts)
        found = model.extend(ints(*rows), np.concatenate(new), given)
        for row, tokens, logits in zip(rows, new, found, strict=True):
            adapter, text = held[row]
            text += tokens
            own = alone[adapter]
            own.open(ints(0), [])
            (expected,) = own.extend(ints(0), np.array(text), ints(len(text)))
            own.close(ints(0))
            torch.testing.assert_close(logits, expected, atol=2e-4, rtol=1e-4)

    for _ in range(60):
        free = [row for row in range(model.rows) if row not in held]
        verb = rng.choice(("open", "open", "fork", "move", "close", "save", "grow", "grow"))
        if verb == "open" and free:
            row = rng.choice(free)
            fresh = (rng.randrange(4), [], [])
            adapter, text, chain = rng.choice(segments) if segments and rng.random() < 0.5 else fresh
            model.open(ints(row), chain)
            model.assign(ints(row), adapter)
            held[row] = adapter, list(text)
            grow([row])
        elif verb in ("fork", "move") and free and held:
            source, target = rng.choice(list(held)), rng.choice(free)
            getattr(model, verb)(ints(source), ints(target))
            held[target] = held[source][0], list(held[source][1])
            if verb == "move":
                del held[source]
        elif verb == "close" and len(held) > 2:
            model.close(ints(row := rng.choice(list(held))))
            del held[row]
        elif verb == "save" and held:
            adapter, text = held[row := rng.choice(list(held))]
            segments.append((adapter, list(text), [model.save(row, 0, len(text))]))
        elif held:
            long = [row for row in held if len(held[row][1]) < 150]
            if long:
                grow(rng.sample(long, rng.randint(1, len(long))))


@pytest.mark.usefixtures("steps")
def test_an_adapter_whose_numbers_overflow_harms_no_other_row(adapters: list[Path], tmp_path: Path) -> None:
    with TorchEngine(BASE, dtype="float32") as engine:
        one, broken = (
            engine.adapted(adapters[0]),
            engine.adapted(make_adapter(tmp_path / "b", BASE, 4, size=1e30)),
        )
        alone = ask((engine, requests()), (one, requests()))

        async def both() -> list[Any]:
            calls = [e.generate(r) for e in (engine, broken, one) for r in requests()]
            return await asyncio.gather(*calls, return_exceptions=True)

        answers = asyncio.run(both())
    n = len(PROMPTS)
    assert all(isinstance(answer, NumericsError) for answer in answers[n : 2 * n])
    found = [s.ids for answer in (*answers[:n], *answers[2 * n :]) for s in answer.samples]
    assert found == [s.ids for answers in alone for s in samples(answers)]


# -- heads -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("steps")
def test_an_adapter_with_a_head_scores_beside_rows_that_write(adapters: list[Path], tmp_path: Path) -> None:
    heads = [make_adapter(tmp_path / f"head-{n}", BASE, 10 + n, outputs=n) for n in (1, 2)]
    drawn = requests(16)
    solutions = [Sequence.of(p).extend(text) for p in PROMPTS for text in ("a=1\nb=2\n", "a=1\nb=3\nc=9\n")]
    with TorchEngine(BASE, dtype="float32") as engine, ExitStack() as stack:
        judges = [engine.adapted(path) for path in heads]
        apart = [stack.enter_context(TorchEngine(path, dtype="float32")) for path in heads]
        ids = [engine.encode(text)[:n] for text in PROMPTS for n in (2, 40)]
        asked = [EvaluateRequest(one, tuple(range(len(one))), outputs=True) for one in ids]

        async def gather() -> list[Any]:
            writes = [one.generate(r) for one in (engine, engine.adapted(adapters[0])) for r in drawn]
            score = ProcessRewardModel(judges[1], layout=LAYOUT).score(solutions, scope=Scope.root("p"))
            return await asyncio.gather(asyncio.gather(*writes), score, *(j.evaluate(asked) for j in judges))

        written, scores, *read = asyncio.run(gather())
        for found, other in zip(read, apart, strict=True):
            for one, expected in zip(found, asyncio.run(other.evaluate(asked)), strict=True):
                np.testing.assert_allclose(one.values, expected.values, atol=1e-3)
        assert [len(found[0].values[0]) for found in read] == [1, 2]
        alone = ProcessRewardModel(apart[1], layout=LAYOUT).score(solutions, scope=Scope.root("p"))
        for score, own in zip(scores, asyncio.run(alone), strict=True):
            assert score.steps == pytest.approx(own.steps, abs=1e-4)
            assert len(score.steps) > 1
        again = ask((engine, drawn), (engine.adapted(adapters[0]), drawn))
        pairs = zip(samples(written), [s for answers in again for s in samples(answers)], strict=True)
        assert sum(a.ids != b.ids for a, b in pairs) <= FLIPS * len(drawn) * 32
        model: Any = engine._model
        assert all(one._model._base is model._base for one in apart)  # type: ignore[attr-defined]
        with pytest.raises(UnsupportedError, match="does not generate"):
            ask((judges[0], drawn))
        with pytest.raises(UnsupportedError, match="is a language model"):
            asyncio.run(engine.evaluate(asked))
        with pytest.raises(UnsupportedError, match="has no log-probabilities"):
            asyncio.run(judges[0].evaluate([EvaluateRequest(ids[0], (0,), (3,))]))


# -- the engine --------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["ready", "off"])
def engines(
    adapters: list[Path], request: pytest.FixtureRequest
) -> Iterator[tuple[list[Engine], list[Engine]]]:
    """One engine for the base and all adapters; and one for each of them. By compiled steps, and by torch."""
    with pytest.MonkeyPatch.context() as patch, _opened(adapters, request.param, patch) as found:
        yield found


@contextmanager
def _opened(
    adapters: list[Path], setting: str, patch: pytest.MonkeyPatch
) -> Iterator[tuple[list[Engine], list[Engine]]]:
    patch.setenv("METAGEN_COMPILED", setting)
    with TorchEngine(BASE, dtype="float32", threads=1) as engine:
        apart = [TorchEngine(path, dtype="float32", threads=1) for path in (BASE, *adapters)]
        try:
            for one in apart:
                one.__enter__()
            yield [engine, *map(engine.adapted, adapters)], list(apart)
        finally:
            for one in apart:
                one.close()


def test_greedy_samples_of_a_mixed_batch_are_those_of_engines_apart(
    engines: tuple[list[Engine], list[Engine]],
) -> None:
    together, apart = engines
    asked = requests(1, temperature=0.0)
    found = ask(*((one, asked) for one in together))
    expected = [ask((one, asked))[0] for one in apart]
    assert len({s.ids for s in samples([answers[1] for answers in expected])}) > 1, (
        "adapters make a difference"
    )
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(samples(ours), samples(theirs), strict=True):
            assert one.ids == other.ids
            assert one.token_logprobs == pytest.approx(other.token_logprobs, abs=1e-3)


@pytest.mark.parametrize("params", [{}, {"temperature": 0.7, "top_k": 5, "repetition_penalty": 1.2}])
def test_samples_of_a_mixed_batch_are_those_of_engines_apart(
    engines: tuple[list[Engine], list[Engine]], params: dict[str, Any]
) -> None:
    together, apart = engines
    found = [s for answers in ask(*((one, requests(**params)) for one in together)) for s in samples(answers)]
    expected = [s for one in apart for s in samples(ask((one, requests(**params)))[0])]
    same = [one.ids == other.ids for one, other in zip(found, expected, strict=True)]
    assert same.count(False) <= FLIPS * len(same)
    for one, other, alike in zip(found, expected, same, strict=True):
        if alike:
            assert one.logprob == pytest.approx(other.logprob, abs=1e-2)


def test_readings_of_a_mixed_batch_are_those_of_engines_apart(
    engines: tuple[list[Engine], list[Engine]],
) -> None:
    together, apart = engines
    texts = [engines[0][0].encode(text) for text in PROMPTS]
    asked = [EvaluateRequest(ids, tuple(range(len(ids))), (3, 5, 7), entropies=True) for ids in texts]

    async def gather() -> list[Any]:
        drawn = [one.generate(request) for one in together for request in requests()]
        _, *read = await asyncio.gather(asyncio.gather(*drawn), *(one.evaluate(asked) for one in together))
        return read

    for ours, one in zip(asyncio.run(gather()), apart, strict=True):
        for found, expected in zip(ours, asyncio.run(one.evaluate(asked)), strict=True):
            np.testing.assert_allclose(found.values, expected.values, atol=1e-3)
            assert found.entropies == pytest.approx(expected.entropies, abs=1e-3)


def test_prefixes_are_kept_for_each_adapter_apart(adapters: list[Path]) -> None:
    with TorchEngine(BASE, dtype="float32") as engine:
        models = [engine, *map(engine.adapted, adapters)]
        ids = engine.encode(PROMPTS[0])
        asked = [EvaluateRequest(ids, (len(ids) - 1,), (3,))]
        first = [asyncio.run(one.evaluate(asked))[0] for one in models]
        again = [asyncio.run(one.evaluate(asked))[0] for one in models]
    assert [(read.prefilled, read.cached) for read in first] == [(len(ids), 0)] * 4
    assert [(read.prefilled, read.cached) for read in again] == [(1, len(ids) - 1)] * 4
    assert [read.values for read in again] == [tuple(map(pytest.approx, read.values)) for read in first]
    assert len({read.values for read in first}) == 4


def test_prefixes_of_all_adapters_share_the_memory(adapters: list[Path]) -> None:
    """What one leaves behind is evicted for another."""
    with TorchEngine(BASE, dtype="float32", max_batch=2, kv_memory_bytes=1 << 20) as engine:
        models = [engine, *map(engine.adapted, adapters)]
        rng = random.Random(0)
        for _ in range(120):
            ids = tuple(rng.randrange(40) for _ in range(100))
            asyncio.run(rng.choice(models).evaluate([EvaluateRequest(ids, (99,), (3,))]))
        tree = engine._tree
        assert tree.evicted > 0
        assert tree.tokens <= tree.capacity
        assert len([root for root in tree._roots.values() if root.children]) > 1


def test_the_weights_and_the_room_of_rows_are_in_memory_once(adapters: list[Path]) -> None:
    with TorchEngine(BASE, dtype="float32") as engine, TorchEngine(adapters[0], dtype="float32") as apart:
        model: Any = engine._model
        assert isinstance(model, LlamaModel)
        views = [engine.adapted(path) for path in adapters]
        assert all(view._model is model for view in views)
        base = model._base
        for i, layer in enumerate(model._layers):
            for name in ("qkv", "out", "up", "down"):
                held = getattr(layer, name)
                assert isinstance(held, ByRow)
                assert held.base is getattr(base.layers[i], name)
                assert all(low.base is held.base for low in held.adapters.values())
        own = sum(
            low.down.numel() + low.up.numel()
            for layer in model._layers
            for name in ("qkv", "out", "up", "down")
            for low in getattr(layer, name).adapters.values()
        )
        whole = sum(layer.up.base.weight.numel() for layer in model._layers)
        assert own < 3 * whole
        assert apart._model._base is base  # type: ignore[attr-defined]


def test_it_is_the_engine_that_the_adapter_would_have(adapters: list[Path]) -> None:
    """So a run goes on with the records of another one, whichever of the two made them."""
    engine, apart = TorchEngine(BASE, dtype="float32"), TorchEngine(adapters[0], dtype="float32")
    view = engine.adapted(adapters[0])
    for name in (
        "fingerprint", "tokenizer_fingerprint", "shape", "directory", "max_context", "supports", "chat", "name",
    ):  # fmt: skip
        assert getattr(view, name) == getattr(apart, name), name
    assert view.fingerprint != engine.fingerprint
    assert engine.adapted(adapters[0])._adapter == view._adapter, "it is loaded once"
    assert engine.adapted(adapters[1])._adapter == 2
    assert repr(view) == f"AdaptedEngine({engine!r}, {str(adapters[0])!r})"


def test_an_adapter_may_come_while_the_engine_runs(adapters: list[Path]) -> None:
    with TorchEngine(BASE, dtype="float32") as engine:

        async def meanwhile() -> tuple[list[Generated], list[Generated]]:
            calls = asyncio.gather(*(engine.generate(request) for request in requests(32)))
            await asyncio.sleep(0.01)
            view = await asyncio.to_thread(engine.adapted, adapters[2])
            own = await asyncio.gather(*(view.generate(request) for request in requests()))
            return list(await calls), list(own)

        before, own = asyncio.run(meanwhile())
        again = ask((engine, requests(32)), (engine.adapted(adapters[2]), requests()))
    for found, expected in zip((before, own), again, strict=True):
        pairs = [(a.ids, b.ids) for a, b in zip(samples(found), samples(expected), strict=True)]
        assert sum(a != b for a, b in pairs) <= FLIPS * len(pairs)


def test_whoever_opens_the_engine_closes_it(adapters: list[Path]) -> None:
    view = TorchEngine(BASE).adapted(adapters[0])
    with pytest.raises(EngineError, match="is not open"):
        ask((view, requests()))
    with view:
        ask((view, requests()))
    with pytest.raises(EngineError, match="closed"):
        ask((view, requests()))
    with TorchEngine(BASE) as engine:
        with engine.adapted(adapters[0]) as other:
            ask((other, requests()))
        ask((other, requests()), (engine, requests()))


@pytest.mark.parametrize(
    "draft", [Draft.lookup(), Draft(BASE), Draft(BASE, drafts=3)], ids=["lookup", "base", "3"]
)
def test_drafts_serve_rows_of_every_adapter(adapters: list[Path], draft: Draft) -> None:
    asked = requests(2, temperature=0.0)
    with (
        TorchEngine(BASE, dtype="float32", draft=draft) as engine,
        TorchEngine(BASE, dtype="float32") as plain,
    ):
        found = ask(*((e, asked) for e in (engine, engine.adapted(adapters[0]), engine.adapted(adapters[2]))))
        expected = ask(*((e, asked) for e in (plain, plain.adapted(adapters[0]), plain.adapted(adapters[2]))))
        assert engine.stats.extra["accepted"] > 0
    assert [s.ids for a in found for s in samples(a)] == [s.ids for a in expected for s in samples(a)]


# -- refusals ----------------------------------------------------------------------------------------


def test_what_is_no_adapter_of_the_base_is_refused(adapters: list[Path], tmp_path: Path) -> None:
    other = make_adapter(tmp_path / "other", "tiny-0.5m", 0)
    engine = TorchEngine(BASE)
    with pytest.raises(InputError, match=r"was trained on .*tiny-0.5m.*the engine runs"):
        engine.adapted(other)
    with pytest.raises(InputError, match="is a whole model"):
        engine.adapted("tiny-0.5m")
    with pytest.raises(UnsupportedError, match="takes no adapters by row"):
        TorchEngine(adapters[1]).adapted(adapters[0])
    with pytest.raises(UnsupportedError, match="takes no adapters by row"):
        AdaptedEngine(EnumerableEngine(("a", "$"), lambda *_: [0.5, 0.5], name="table"), adapters[0])


# -- the laws ----------------------------------------------------------------------------------------


class TestAdapterOnAnEngine(EngineLaws):
    prompts = PROMPTS
    flips = FLIPS
    most = 40
    many = 400
    adapters: ClassVar[list[Path]]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def given(cls, adapters: list[Path]) -> None:
        cls.adapters = adapters

    def make(self) -> Engine:
        return TorchEngine(BASE, threads=1).adapted(self.adapters[0])


class TestAdapterWithoutCompiledSteps(TestAdapterOnAnEngine):
    @pytest.fixture(autouse=True)
    def by_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("METAGEN_COMPILED", "off")


class TestEngineWithAdapters(TestAdapterOnAnEngine):
    """The base's own rows, beside adapters that are there and idle."""

    def make(self) -> Engine:
        engine = TorchEngine(BASE, threads=1)
        for path in self.adapters:
            engine.adapted(path)
        return engine


class TestGeneratorOfAnAdapter(GeneratorLaws):
    """Steps, blocks, seeds, budgets and records."""

    prompt = Prompt("law", text=PROMPTS[1])
    begun = "57"
    adapters: ClassVar[list[Path]]

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def given(cls, adapters: list[Path]) -> None:
        cls.adapters = adapters

    def make(self) -> AbstractContextManager[Generator]:
        @contextmanager
        def opened() -> Iterator[Generator]:
            with TorchEngine(BASE, threads=1).adapted(self.adapters[0]) as engine:
                yield engine.generator(max_tokens=40)

        return opened()
