"""Quantised weights: what they are, that the engine runs on them, what it calls itself then, and what is refused."""

import asyncio
import sys
from typing import Any

import pytest
import torch

import metagen as mg
from metagen.cost import Hardware, ModelShape, roofline_seconds
from metagen.errors import InputError, ModelError, UnsupportedError
from metagen.generators.decoding.draft import Draft
from metagen.generators.engine import EvaluateRequest
from metagen.generators.models.describe import fingerprint_of
from metagen.generators.models.quantization import GROUP, QUANTIZATIONS, number_format
from metagen.generators.models.recipes import Ensemble, Table
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.models.compression import FEW, Int8, Linear, linear
from metagen.runs.declare.schema import load
from metagen.runs.work import build
from metagen.runs.work.offline import with_stand_ins

MODEL = "tiny-0.5m"
KINDS = ("int8", "int4")


def matrix(rows: int = 48, columns: int = 64, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, columns, generator=generator).to(dtype)


def weights_of(product: Linear, columns: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """The matrix that a map multiplies with."""
    return product(torch.eye(columns, dtype=dtype)).T.float()


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_is_within_half_a_step_of_each_row(dtype: torch.dtype) -> None:
    w = matrix(dtype=dtype)
    found = weights_of(linear("w", w, None, "int8"), 64, dtype)
    step = w.float().abs().amax(1, keepdim=True) / 127.5
    slack = 0.01 * w.float().abs() if dtype == torch.bfloat16 else 1e-5  # a scale and a product in bfloat16
    assert ((found - w.float()).abs() <= step / 2 * 1.02 + slack).all()
    assert not torch.equal(found, w.float())


@torch.inference_mode()
def test_int4_is_within_half_a_step_of_each_group() -> None:
    w = matrix()
    found = weights_of(linear("w", w, None, "int4"), 64)
    groups = w.float().view(48, -1, GROUP)
    step = ((groups.amax(2) - groups.amin(2)) / 15).repeat_interleave(GROUP, 1)
    assert ((found - w.float()).abs() <= step / 2 + 0.02 * w.float().abs().amax()).all()
    assert all(len(group.unique()) <= 16 for row in found.view(48, -1, GROUP) for group in row)


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_few_and_many_rows_and_a_bias_give_one_product(kind: str) -> None:
    bias = torch.linspace(-1, 1, 48).bfloat16()
    product = linear("w", matrix(), bias, kind)
    x = matrix(3 * FEW)
    whole = product(x)
    parts = torch.cat([product(x[i : i + 1]) for i in range(len(x))])
    assert whole.dtype == torch.bfloat16 and whole.shape == (3 * FEW, 48)
    expected = x.float() @ weights_of(linear("w", matrix(), None, kind), 64).T + bias.float()
    for found in (whole, parts):
        torch.testing.assert_close(found.float(), expected, atol=0.25, rtol=0.02)


@torch.inference_mode()
def test_bytes_are_those_that_the_shape_reckons() -> None:
    eight: Any = linear("w", matrix(), None, "int8")
    assert isinstance(eight, Int8)
    assert eight.weight.qdata.nbytes == QUANTIZATIONS["int8"] * 48 * 64
    four: Any = linear("w", matrix(), None, "int4")
    held = four.weight.qdata.nbytes + four.weight.scale_and_zero.nbytes
    assert held == QUANTIZATIONS["int4"] * 48 * 64


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_solves_problems_on_quantised_weights(kind: str) -> None:
    """All problems of level 1, as dense weights do; and log-likelihoods near theirs, but others."""
    task = mg.ArithmeticTask("validation", levels=(1,), per_level=8, seed=5)
    problems = list(task.problems())
    values = []
    for quantization in (None, kind):
        with TorchEngine(
            MODEL, threads=1, device="cpu", dtype="bfloat16", quantization=quantization
        ) as engine:
            ids = engine.encode("Q:a=12+7;b=a*3;b?\nS:\na=12+7=19\nb=19*3=57\n")
            (read,) = asyncio.run(
                engine.evaluate([EvaluateRequest(ids, tuple(range(len(ids) // 2, len(ids) - 1)))])
            )
            values.append(sum(value for (value,) in read.values))
            solve = mg.Sample(engine.generator(max_tokens=100, temperature=0), answer=task.answer)
            answers = [solve.solve(problem.prompt).answer for problem in problems]
        right = [a is not None and a.key == p.reference for a, p in zip(answers, problems, strict=True)]
        assert sum(right) >= 7
    assert values[0] != values[1]
    assert abs(values[0] - values[1]) < 0.5


def test_names_and_bytes_of_a_quantised_engine() -> None:
    dense = TorchEngine(MODEL, device="cpu", dtype="bfloat16")
    found = {kind: TorchEngine(MODEL, device="cpu", quantization=kind) for kind in KINDS}
    assert len({dense.fingerprint, *(engine.fingerprint for engine in found.values())}) == 3
    for kind, engine in found.items():
        assert engine.dtype == torch.bfloat16 and kind in repr(engine)
        assert engine.fingerprint == fingerprint_of(MODEL, number_format("torch.bfloat16", kind))
        shape, plain = engine.shape, dense.shape
        assert shape is not None and plain is not None
        assert shape.weight_bytes == QUANTIZATIONS[kind]
        assert plain.bytes_total == 2 * plain.parameters_total
        assert plain.bytes_total - shape.bytes_total == (2 - QUANTIZATIONS[kind]) * plain.parameters
        assert shape.kv_bytes_per_token == plain.kv_bytes_per_token
        # One row reads more bytes than it does arithmetic; the FLOPs are the same.
        machine = Hardware("bytes alone", peak=1e30, bandwidth=1.0)
        seconds = [roofline_seconds(one, machine, 0, 2, 0) for one in (plain, shape)]
        assert seconds[0] - seconds[1] == pytest.approx(plain.bytes_total - shape.bytes_total)


def test_parts_of_a_recipe_are_quantised_too() -> None:
    engine = TorchEngine(Ensemble((MODEL, "tiny-0.1m")), device="cpu", quantization="int8")
    assert engine.shape is not None
    assert [engine.shape.weight_bytes, engine.shape.beside[0].shape.weight_bytes] == [1.0, 1.0]


def test_a_draft_is_quantised_with_its_target() -> None:
    draft = Draft("tiny-0.1m", tokens=3)
    with TorchEngine(MODEL, device="cpu", quantization="int8", draft=draft, threads=1) as engine:
        assert engine.shape is not None and engine.shape.beside[0].shape.weight_bytes == 1.0
        text = (
            mg.Sample(engine.generator(temperature=0, max_tokens=100)).solve("Q:a=12+7;b=a-9;b?\nS:\n").text
        )
        assert text.endswith("A:10\n")
        assert engine.stats.extra["accepted"] > 0
    plain = TorchEngine(MODEL, device="cpu", dtype="bfloat16", draft=draft)
    assert plain.fingerprint != engine.fingerprint


def test_an_experiment_names_the_kind_and_knows_its_fingerprint(tmp_path: Any) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(f"""\
name: small
task: {{kind: arithmetic, levels: [1], per_level: 1}}
engines:
  mid: {{kind: torch, model: {MODEL}, device: cpu, quantization: int8}}
generators:
  mid: {{engine: mid, max_tokens: 50}}
strategies:
  greedy: {{kind: greedy}}
grid: {{generators: [mid]}}
""")
    names = []
    for experiment in (load(path), with_stand_ins(load(path), fingerprints=True)):
        with build.open_setup(experiment) as setup:
            names.append(setup.engines["mid"].fingerprint)
    assert names[0] == names[1] == TorchEngine(MODEL, device="cpu", quantization="int8").fingerprint


def test_bad_input_is_named(model_dir: Any) -> None:
    with pytest.raises(InputError, match=r"quantization='int5'.*int8, int4, nf4"):
        TorchEngine(MODEL, device="cpu", quantization="int5")
    with pytest.raises(UnsupportedError, match=r"'nf4' on 'cpu'.*CUDA only; give 'int4' or 'int8'"):
        TorchEngine(MODEL, device="cpu", quantization="nf4")
    with pytest.raises(UnsupportedError, match=r"'int4' with dtype='float32'.*leave dtype out"):
        TorchEngine(MODEL, device="cpu", dtype="float32", quantization="int4")
    with pytest.raises(
        UnsupportedError, match=r"layers\.0\.self_attn.*rows of 48 weights.*give quantization='int8'"
    ):
        TorchEngine(model_dir("llama"), device="cpu", quantization="int4")
    with pytest.raises(ModelError, match=r"weight_bytes=0\.0, expected a number > 0"):
        ModelShape(1, 8, 1, 1, 8, 8, 8).compress(0.0)
    table = Table(("a", "b", "<end>"), {(): (0.5, 0.25, 0.25)}, name="t")
    with pytest.raises(InputError, match="has no weight matrices; leave quantization out"):
        TorchEngine(table, device="cpu", quantization="int8")


@pytest.mark.parametrize(
    ("kind", "module", "wanted"),
    [("int8", "torchao.quantization", r"-e '\.\[compression\]"), ("nf4", "bitsandbytes", "'bitsandbytes")],
)
def test_a_missing_library_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: str, module: str, wanted: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UnsupportedError, match=f"{module}, which cannot be imported.*pip install {wanted}"):
        linear("w", matrix(), None, kind)
