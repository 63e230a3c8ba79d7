"""What others give the engine's thread and what fails there: the request that it belongs to fails, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from metagen.errors import InputError, NumericsError, PluginError
from metagen.generators.decoding.adapters import Adapter
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.search import BeamSearch, SearchSpec
from metagen.generators.engine import EvaluateRequest, Generated, GenerateRequest, SamplingParams
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.models.recipes import Table
from metagen.generators.torch import TorchEngine
from metagen.parts import part
from metagen.sequence import Sequence

MODEL = "tiny-0.1m"
GOOD, BAD = "Q:a=12+7;b=a*3;b?\nS:\n", "Q:a=12+7;b=a*3;c=b-2;c?\nS:\n"
#: Text that a lookup finds drafts in.
AGAIN = "a=12+7=19\nb=19*3=57\n" * 2

SAYS = {
    "raises": r"Fails\.adapt \(.*\) raised ValueError: no such row",
    "shape": r"(?s)Fails\.adapt .*expected a tensor of the shape of logits",
    "array": r"(?s)Fails\.adapt .*expected a tensor of the shape of logits",
    "nan": r"(?s)Fails\.adapt .*holds NaN or \+inf",
    "inf": r"(?s)Fails\.adapt .*holds NaN or \+inf",
}


@part
class Fails(Adapter):
    """Fails for completions of `after` tokens and more behind the longer prompt."""

    how: str
    longest: int
    after: int = 0

    def adapt(self, logits: torch.Tensor, ids: torch.Tensor, start: torch.Tensor) -> Any:
        bad = (start >= self.longest) & ((ids >= 0).sum(1) - start >= self.after)
        if not bad.any():
            return logits
        if self.how == "raises":
            raise ValueError("no such row")
        if self.how in ("nan", "inf"):
            return logits.masked_fill(bad[:, None], float(self.how))
        return logits[:, :2] if self.how == "shape" else logits.numpy()


def asked(text: str, params: SamplingParams, n: int = 2, **told: Any) -> GenerateRequest:
    ranks = tuple(range(n)) if params.search is not None else ()
    return GenerateRequest(Sequence.of(text), tuple(range(n)), params, 12, ranks=ranks, **told)


def ask(engine: TorchEngine, *requests: GenerateRequest) -> list[Any]:
    """Answers and errors, all at once."""

    async def together() -> list[Any]:
        return await asyncio.gather(*map(engine.generate, requests), return_exceptions=True)

    return asyncio.run(together())


def texts(answer: Generated) -> list[str]:
    return [sample.text for sample in answer.samples]


@pytest.mark.parametrize(
    ("draft", "search", "params"),
    [
        (None, None, {"top_p": 0.9, "temperature": 1.0}),
        (None, BeamSearch(3), {"top_p": 0.9999, "temperature": 1.0}),
        (None, BeamSearch(3), {}),
        (Draft.lookup(4, ngram=2), None, {}),
        (Draft(MODEL, 3), None, {"temperature": 1.0}),
        (Draft(MODEL, 3, drafts=2), None, {}),
    ],
)
def test_an_adapter_that_fails_takes_its_own_request_alone(
    draft: Draft | None, search: SearchSpec | None, params: dict[str, Any]
) -> None:
    given: dict[str, Any] = {"temperature": 0.0, "search": search, **params}
    free = asked(GOOD + AGAIN, SamplingParams(**given))
    with TorchEngine(MODEL, threads=1, max_batch=16, draft=draft) as engine:
        longest = len(engine.render(Sequence.of(BAD + AGAIN)) or ())
        (alone,) = ask(engine, free)
        for how, after in product(SAYS, (0, 3)):
            own = SamplingParams(adapters=(Fails(how=how, longest=longest, after=after),), **given)
            good, plain, bad = ask(engine, asked(GOOD + AGAIN, own), free, asked(BAD + AGAIN, own))
            assert texts(good) == texts(plain) == texts(alone)
            with pytest.raises(PluginError, match=SAYS[how]):
                raise bad


def test_an_adapter_is_not_blamed_for_a_model_that_gives_no_numbers() -> None:
    """The adapter raises where it sees no numbers, in the same batch in which it works for another request."""

    class Strict(Adapter):
        def adapt(self, logits: torch.Tensor, ids: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
            if logits.isnan().any():
                raise ValueError("no numbers")
            return logits

    def row(prompt: str, done: tuple[str, ...]) -> Any:
        return np.full(3, np.nan) if prompt == "y" and done else np.array([0.5, 0.5, 0.0])

    own = SamplingParams(adapters=(Strict(),))
    with TorchEngine(Table(("a", "b", "."), row, name="half numbers"), threads=1) as engine:
        good, bad = ask(engine, asked("x", own), asked("y", own))
        assert len(good.samples) == 2 and isinstance(bad, NumericsError)


def test_what_reads_a_distribution_behind_an_adapter_fails_alone_too() -> None:
    with TorchEngine(MODEL, threads=1) as engine:
        good, bad = (engine.render(Sequence.of(text)) or () for text in (GOOD, BAD))

        def read(ids: tuple[int, ...], how: Any) -> EvaluateRequest:
            params = SamplingParams(adapters=(Fails(how=how, longest=len(bad)),))
            return EvaluateRequest(ids, (len(ids) - 1,), (5,), params=params, start=len(ids))

        async def together(how: str) -> list[Any]:
            asked_for = [engine.evaluate([read(ids, how)]) for ids in (good, bad)]
            return await asyncio.gather(*asked_for, return_exceptions=True)

        for how, says in SAYS.items():
            well, failed = asyncio.run(together(how))
            assert len(well) == 1
            with pytest.raises(PluginError, match=says):
                raise failed


def test_an_enumerable_engine_names_the_adapter() -> None:
    with EnumerableEngine(("a", "<end>"), {(): (0.5, 0.5)}, name="two") as engine:
        params = SamplingParams(adapters=(Fails(how="nan", longest=0),))
        request = GenerateRequest(Sequence.of("?"), (0,), params, 1)
        with pytest.raises(PluginError, match=SAYS["nan"]):
            asyncio.run(engine.generate(request))


def raising(*_: Any) -> None:
    raise ValueError("nobody listens")


def test_on_a_table_a_listener_that_raises_is_named() -> None:
    with EnumerableEngine(("a", "<end>"), lambda prompt, done: (0.9, 0.1), name="two") as engine:
        request = GenerateRequest(
            Sequence.of("?"), (0,), SamplingParams(ignore_eos=True), 50, written=raising
        )
        with pytest.raises(PluginError, match=r"'raising' .* raised ValueError: nobody listens"):
            asyncio.run(engine.generate(request))


def test_where_nothing_is_left_an_adapter_is_not_blamed() -> None:
    class Normal(Adapter):
        def adapt(self, logits: torch.Tensor, ids: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
            return logits - logits.logsumexp(-1, keepdim=True)

    params = SamplingParams(adapters=(Normal(),), banned=((0,), (1,)))
    request = GenerateRequest(Sequence.of("?"), (0,), params, 1)
    engine = EnumerableEngine(("a", "<end>"), {(): (0.5, 0.5)}, name="two")
    with engine, pytest.raises(InputError, match="no token is left"):
        asyncio.run(engine.generate(request))


@pytest.mark.parametrize("told", ["heard", "written"])
def test_a_listener_that_raises_takes_its_own_request_alone(told: str) -> None:
    listener: dict[str, Callable[..., None]] = {told: raising}
    with TorchEngine(MODEL, threads=1) as engine:
        plain = SamplingParams(temperature=0.0)
        good, bad = ask(engine, asked(GOOD, plain), asked(BAD, plain, 3, **listener))
        assert len(texts(good)) == 2
        with pytest.raises(PluginError, match=r"'raising' .* raised ValueError: nobody listens"):
            raise bad
        (again,) = ask(engine, asked(GOOD, plain))
        assert texts(again) == texts(good)
