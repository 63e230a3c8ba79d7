"""Prefixes are rendered in the driver as the replicas' engine renders them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from metagen.errors import EngineError, InputError, ModelError, PromptError, UnsupportedError
from metagen.generators.enumerable import EnumerableEngine
from metagen.generators.likelihood import likelihoods
from metagen.generators.openai import OpenAIEngine
from metagen.generators.ray import Placement, Policy, RayPool
from metagen.generators.ray.codec import local_codec
from metagen.generators.ray.messages import Facts, Fault
from metagen.generators.torch import TorchEngine
from metagen.sequence import Prompt, Sequence


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return TorchEngine("tiny-bpe", threads=1)


def test_the_driver_renders_as_the_engine_does(engine: TorchEngine) -> None:
    codec = local_codec(Facts.of(engine))
    for prefix in (Sequence.of("Q: 1+1="), Sequence.of(Prompt("p", text="Q: 2*3=")).extend("6, for 2*3=")):
        assert codec.render(prefix) == engine.render(prefix)
    assert codec.encode("so 6") == engine.encode("so 6")


def facts_of(engine: Any, **options: Any) -> RayPool:
    """A pool that knows its engines' facts, and has no replica."""
    pool = RayPool(type(engine), **options)
    pool._facts = Facts.of(engine)
    return pool


def test_a_pool_tells_what_its_engine_tells_of_tokens(engine: TorchEngine) -> None:
    pool, ids = facts_of(engine), engine.encode("so 6")
    assert (pool.ends, pool.vocabulary) == (engine.ends, engine.vocabulary)
    assert pool.ends and pool.decode(ids) == engine.decode(ids)
    assert pool.takes_tools is engine.takes_tools is False


def test_a_pool_refuses_the_likelihood_of_what_its_tokens_cannot_write() -> None:
    pool = facts_of(TorchEngine("tiny-0.1m", threads=1))
    with pytest.raises(PromptError, match="the tokens cannot write the completion 'ß'"):
        likelihoods(pool, [Sequence.of("Q: 1+1=").extend("ß")])


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_a_pool_of_engines_without_a_tokenizer_has_no_decode(api: Any) -> None:
    engine = OpenAIEngine("m", base_url="http://127.0.0.1:9/v1", api=api)
    pool = facts_of(engine)
    assert not hasattr(pool, "decode") and pool.vocabulary is None and pool.ends == ()
    assert pool.takes_tools is (api == "chat")


class Unread(EnumerableEngine):
    """Has a chat template that cannot be read."""

    @property
    def takes_tools(self) -> bool:
        raise ValueError("the template is of another library")


def test_a_template_that_cannot_be_read_takes_no_tools_and_a_codec_need_not_decode() -> None:
    engine = Unread("ab$", {(): (0.4, 0.4, 0.2)})

    class Bare:
        render, encode = staticmethod(engine.render), staticmethod(engine.encode)

    assert not facts_of(engine, codec=engine).takes_tools
    assert not hasattr(facts_of(engine, codec=Bare()), "decode")
    assert facts_of(engine, codec=engine).decode((0, 1)) == "ab"


def test_another_tokenizer_or_none_is_an_error(engine: TorchEngine, tmp_path: Path) -> None:
    facts = Facts.of(engine)
    with pytest.raises(EngineError, match="is not the one of the replicas"):
        local_codec(replace(facts, tokenizer_fingerprint="other"))
    for directory in (None, tmp_path):
        with pytest.raises(EngineError, match=r"is not on this machine .*or give the pool a codec"):
            local_codec(replace(facts, directory=directory))


class Strange(ModelError):
    """Of a package that the driver does not have."""


@pytest.mark.parametrize(
    ("error", "kind", "asked"),
    [
        (PromptError("too long"), PromptError, True),
        (Strange("bad"), ModelError, True),
        (MemoryError("none left"), EngineError, False),
        (EngineError("failed"), EngineError, False),
    ],
)
def test_errors_keep_the_nearest_class_that_there_is(
    error: Exception, kind: type[Exception], asked: bool
) -> None:
    fault = Fault.of(error)
    assert type(fault.error()) is kind
    assert str(error) in str(fault.error())
    assert fault.asked is asked


def test_bad_options_are_refused() -> None:
    with pytest.raises(InputError, match="deadline=-1: expected a number"):
        Policy(deadline=-1)
    with pytest.raises(InputError, match="attempts=0"):
        Policy(attempts=0)
    with pytest.raises(InputError, match="num_gpus=-1"):
        Placement(num_gpus=-1)
    with pytest.raises(InputError, match="Ray takes no CPU and no GPU here; give num_cpus and num_gpus"):
        Placement(resources={"GPU": 1, "CPU": 8, "sandbox": 1})
    with pytest.raises(InputError, match="Ray takes no memory here; give"):
        Placement(resources={"memory": 1})
    with pytest.raises(InputError, match="CPU=-1: expected a number"):
        Placement(bundles=({"CPU": -1}, {"CPU": 1}))
    with pytest.raises(InputError, match="one is empty"):
        Placement(bundles=({},))
    with pytest.raises(InputError, match="leave num_cpus, num_gpus and resources out"):
        Placement(num_cpus=1, bundles=({"CPU": 1},))


def test_without_ray_a_pool_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(UnsupportedError, match=r"install it by pip install -e '.\[ray\]'"),
        RayPool(TorchEngine),
    ):
        pass
