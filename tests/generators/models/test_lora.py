"""LoRA adapters against peft, which saves them; and the shapes in which they go wrong."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner

from metagen.cli import app
from metagen.cost import flops_2n
from metagen.errors import ModelError, UnsupportedError
from metagen.generators import tiny
from metagen.generators.engine import GenerateRequest, SamplingParams
from metagen.generators.models import describe, lora, sources
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.models import llama, loading
from metagen.generators.torch.models.checkpoint import architecture_of
from metagen.sequence import Prompt, Sequence
from metagen.verifiers.published import layout_of
from metagen.verifiers.utility.pooling import MeanPooling

PLACE = loading.Place(torch.float32, torch.device("cpu"), 4, 1 << 24)
MATRICES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
IDS = np.array([3, 17, 5, 40, 22, 9, 31])
Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAGEN_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Makes an adapter that changes a model a lot, as peft saves it. changes: of its configuration afterwards."""

    def make(
        base: Path | str = "tiny-0.1m", seed: int = 0, changes: dict[str, Any] | None = None, **options: Any
    ) -> Path:
        torch.manual_seed(seed)
        model = transformers.AutoModelForCausalLM.from_pretrained(sources.resolve(base), dtype=torch.float32)
        config = peft.LoraConfig(
            **{"r": 4, "lora_alpha": 12, "target_modules": MATRICES, "init_lora_weights": False} | options
        )
        directory = tmp_path / f"adapter-{seed}"
        peft.get_peft_model(model, config).save_pretrained(directory)
        path = directory / lora.CONFIG
        said = json.loads(path.read_text()) | {"base_model_name_or_path": str(base)} | (changes or {})
        path.write_text(json.dumps(said))
        return directory

    return make


@torch.inference_mode()
def logits(model: str | Path) -> Tensor:
    """[positions, vocab] of the torch engine's model."""
    loaded = loading.load(str(model), PLACE).model
    loaded.open(np.array([0]), [])
    return loaded.extend(np.array([0]), IDS, np.array([len(IDS)]), np.arange(len(IDS)))


@torch.inference_mode()
def expected(adapter: Path, base: Path | str = "tiny-0.1m") -> Tensor:
    model = transformers.AutoModelForCausalLM.from_pretrained(sources.resolve(base), dtype=torch.float32)
    found: Tensor = peft.PeftModel.from_pretrained(model, adapter)(torch.tensor(IDS)[None]).logits[0]
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_rslora": True},
        {"target_modules": ["q_proj"]},
        {"target_modules": ["k_proj", "up_proj"], "layers_to_transform": [1]},
        {"target_modules": ["v_proj", "gate_proj", "down_proj"], "r": 1},
    ],
    ids=["all", "rslora", "q", "one layer", "rank 1"],
)
def test_logits_are_those_of_peft(made: Make, options: dict[str, Any]) -> None:
    adapter = made(**options)
    wanted = expected(adapter)
    assert (wanted - logits("tiny-0.1m")).abs().max() > 0.1
    torch.testing.assert_close(logits(adapter), wanted, atol=2e-4, rtol=1e-4)


def test_grouped_queries_and_biases(made: Make, tmp_path: Path) -> None:
    config = transformers.Qwen2Config(
        vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(5)
    transformers.Qwen2ForCausalLM(config).save_pretrained(tmp_path / "qwen")
    shutil.copy(tiny.HERE / "tiny-0.1m" / "tokenizer.json", tmp_path / "qwen")
    adapter = made(tmp_path / "qwen")
    torch.testing.assert_close(logits(adapter), expected(adapter, tmp_path / "qwen"), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(("task", "outputs"), [("TOKEN_CLS", 2), ("SEQ_CLS", 1)])
def test_a_head_that_an_adapter_brings_is_read_as_peft_reads_it(
    made: Make, task: str, outputs: int, tmp_path: Path
) -> None:
    """peft names the head's modules itself."""
    kind = {"TOKEN_CLS": "TokenClassification", "SEQ_CLS": "SequenceClassification"}[task]
    auto: Any = getattr(transformers, f"AutoModelFor{kind}")
    base = sources.resolve("tiny-0.1m")
    torch.manual_seed(0)
    model = auto.from_pretrained(base, num_labels=outputs, dtype=torch.float32)
    config = peft.LoraConfig(
        task_type=task, r=4, lora_alpha=12, target_modules=MATRICES, init_lora_weights=False
    )
    trained = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, tensor in trained.named_parameters():
            if "score" in name:
                tensor.normal_()
    trained.save_pretrained(tmp_path / "head")
    with torch.inference_mode():
        inner = trained.base_model.model
        wanted = inner.score(inner.model(torch.tensor(IDS)[None]).last_hidden_state)[0]
    found = loading.load(str(tmp_path / "head"), PLACE)
    assert found.scores is not None and (found.scores.name, found.scores.outputs) == ("score", outputs)
    torch.testing.assert_close(logits(tmp_path / "head"), wanted, atol=2e-4, rtol=1e-4)
    plain = loading.load("tiny-0.1m", PLACE).model
    assert found.model._base is plain._base, "the base is in memory once"  # type: ignore[attr-defined]
    assert architecture_of(sources.resolve(tmp_path / "head")) == f"LlamaFor{kind}"
    assert CliRunner().invoke(app, ["models", "check", str(tmp_path / "head")]).exit_code == 0


def test_weights_are_in_memory_once(made: Make, tmp_path: Path) -> None:
    base = shutil.copytree(tiny.HERE / "tiny-0.1m", tmp_path / "mine")
    first, second = made(base, seed=1), made(base, seed=2)
    with TorchEngine(base) as plain, TorchEngine(first) as one, TorchEngine(second) as two:
        bases = {id(engine._model._base) for engine in (plain, one, two)}  # type: ignore[attr-defined]
        assert len(bases) == 1
        assert len({engine.fingerprint for engine in (plain, one, two)}) == 3
        assert [key for key in llama._READ if str(base) in str(key[0])]
    del plain, one, two
    assert not [key for key in llama._READ if str(base) in str(key[0])]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    folder = shutil.copytree(tiny.HERE / "tiny-0.1m", tmp_path / "mine")
    held = loading.load(str(folder), PLACE)
    before = logits(folder)
    weights = load_file(folder / "model.safetensors")
    save_file({name: tensor * 1.5 for name, tensor in weights.items()}, folder / "model.safetensors")
    assert not torch.equal(logits(folder), before)
    del held


def test_a_copy_is_not_what_it_was_copied_from(made: Make, tmp_path: Path) -> None:
    """Training goes on where a checkpoint was copied from."""
    adapter = made()
    before = logits(adapter)
    best = shutil.copytree(adapter, tmp_path / "best")
    rewrite(adapter, lambda weights: weights.update({name: 2 * w for name, w in weights.items()}))
    assert torch.equal(logits(best), before)
    assert not torch.equal(logits(adapter), before)
    shutil.rmtree(adapter)
    assert torch.equal(logits(best), before)


def test_the_fingerprint_says_what_is_computed_wherever_it_lies(made: Make, tmp_path: Path) -> None:
    one, other = (shutil.copytree(tiny.HERE / "tiny-0.1m", tmp_path / name) for name in ("one", "other"))
    first = shutil.copytree(made(one, seed=1), tmp_path / "first")
    second = made(other, seed=1)
    names = [describe.fingerprint_of(str(path), "torch.float32") for path in (first, second)]
    assert names[0] == names[1] != describe.fingerprint_of(str(one), "torch.float32")
    with TorchEngine(first, dtype="float32") as engine:
        assert engine.fingerprint == names[0]
    scaled = made(one, seed=1, lora_alpha=13)
    assert describe.fingerprint_of(str(scaled), "torch.float32") != names[0]


def test_its_own_tokenizer_and_chat_template_are_used(made: Make) -> None:
    adapter = made()
    (adapter / "chat_template.jinja").write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    directory = sources.resolve(adapter)
    assert (directory / "chat_template.jinja").read_text().startswith("{% for")
    shutil.copy(tiny.HERE / "tiny-bpe" / "tokenizer.json", adapter)
    again = sources.resolve(adapter)
    assert again != directory
    assert (again / "tokenizer.json").read_bytes() == (tiny.HERE / "tiny-bpe" / "tokenizer.json").read_bytes()


def test_a_base_that_is_a_link_may_be_pointed_elsewhere(made: Make, tmp_path: Path) -> None:
    first, second = (shutil.copytree(tiny.HERE / "tiny-0.1m", tmp_path / name) for name in ("v1", "v2"))
    weights = load_file(second / "model.safetensors")
    save_file({name: tensor * 1.5 for name, tensor in weights.items()}, second / "model.safetensors")
    base = tmp_path / "base"
    base.symlink_to(first)
    adapter = made(base)
    before = logits(adapter)
    base.unlink()
    base.symlink_to(second)
    assert not torch.equal(logits(adapter), before)


def test_a_model_and_an_adapter_in_one_directory_are_refused(made: Make) -> None:
    adapter = made()
    shutil.copy(tiny.HERE / "tiny-0.1m" / "config.json", adapter)
    assert sources.resolve(adapter) != adapter, "a configuration alone is no model"
    shutil.copy(tiny.HERE / "tiny-0.1m" / "model.safetensors", adapter)
    with pytest.raises(ModelError, match="nobody can tell which is meant"):
        sources.resolve(adapter)


def test_the_list_and_the_check(made: Make) -> None:
    """The list needs no library that reads weights."""
    shown = CliRunner().invoke(app, ["models"])
    assert shown.exit_code == 0 and "adapts smollm2-135m" in " ".join(shown.output.split())
    adapter = made()
    checked = CliRunner().invoke(app, ["models", "check", str(adapter)])
    assert checked.exit_code == 0 and "an adapter of rank 4" in checked.output
    rewrite(adapter, narrower)
    refused = CliRunner().invoke(app, ["models", "check", str(adapter)])
    assert refused.exit_code == 2 and "give the base that it was trained on" in refused.output


def test_what_it_costs_counts(made: Make) -> None:
    adapter = made(target_modules=["q_proj"])
    base, whole = describe.shape_of("tiny-0.1m"), describe.shape_of(adapter)
    assert base is not None and whole is not None
    added = base.layers * 4 * (base.width + base.heads * base.head_dim)
    assert whole.adapter == added
    assert whole.parameters_total - base.parameters_total == added
    assert flops_2n(whole, 1) - flops_2n(base, 1) == 2 * added


def test_samples_through_the_engine_are_those_of_the_merged_model(made: Make, tmp_path: Path) -> None:
    adapter = made(r=2, lora_alpha=1)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        sources.resolve("tiny-0.1m"), dtype=torch.float32
    )
    merged = peft.PeftModel.from_pretrained(model, adapter).merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny.HERE / "tiny-0.1m" / name, tmp_path / "merged")

    def sampled(path: Path) -> list[str]:
        prefix = Sequence(Prompt("p", "Q:a=12+7;b=a*3;b?\nS:\n"))
        request = GenerateRequest(prefix, tuple(range(8)), SamplingParams(), 24)
        with TorchEngine(path, dtype="float32") as engine:
            return [sample.text for sample in asyncio.run(engine.generate(request)).samples]

    assert sampled(adapter) == sampled(tmp_path / "merged")


def test_an_adapter_says_how_it_is_read_as_a_reward_model(made: Make) -> None:
    tags = {"kind": "prm", "tag": "?", "positive": "1", "negative": "0"}
    directory = sources.resolve(made(changes={"metagen": tags}))
    assert layout_of(directory, "prm").labels == ("1", "0")


def test_a_base_beside_the_adapter(made: Make, tmp_path: Path) -> None:
    base = shutil.copytree(tiny.HERE / "tiny-0.1m", tmp_path / "adapter-0" / "base")
    adapter = made(base, changes={"base_model_name_or_path": "base"})
    torch.testing.assert_close(logits(adapter), expected(adapter, base), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"peft_type": "IA3"}, "peft_type='IA3'"),
        ({"use_dora": True}, "use_dora=True"),
        ({"bias": "all"}, "bias='all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"modules_to_save": ["score"]}, "modules_to_save"),
        ({"modules_to_save": ["score", "lm_head"], "task_type": "TOKEN_CLS"}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 2}}, "rank_pattern"),
        ({"init_lora_weights": "pissa_niter_4"}, "pissa_niter_4"),
        ({"init_lora_weights": "OLoRA"}, "OLoRA"),
        ({"use_qalora": True}, "use_qalora"),
    ],
)
def test_more_than_plain_lora_is_refused(made: Make, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedError, match=said):
        logits(made(changes=changes))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"r": None}, "r=None"),
        ({"lora_alpha": "x"}, "lora_alpha='x'"),
        ({"lora_alpha": float("nan")}, "lora_alpha=nan"),
        ({"r": True}, "r=True"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path=None"),
        ({"base_model_name_or_path": "nowhere"}, "nowhere"),
        ({"modules_to_save": ["score"], "task_type": "TOKEN_CLS"}, "the adapter's head has {}"),
    ],
)
def test_faults_of_the_configuration_are_named(made: Make, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        logits(made(changes=changes))


def rewrite(adapter: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    weights = load_file(adapter / lora.WEIGHTS)
    change(weights)
    save_file(weights, adapter / lora.WEIGHTS)


def without_b(weights: dict[str, Tensor]) -> None:
    del weights[next(name for name in weights if "lora_B" in name)]


def with_embedding(weights: dict[str, Tensor]) -> None:
    weights["base_model.model.model.embed_tokens.lora_embedding_A"] = torch.zeros(4, 8)


def elsewhere(weights: dict[str, Tensor]) -> None:
    for name in [name for name in weights if ".layers.0." in name]:
        weights[name.replace(".layers.0.", ".layers.70.")] = weights.pop(name)


def narrower(weights: dict[str, Tensor]) -> None:
    for name in [name for name in weights if "q_proj.lora_A" in name]:
        weights[name] = weights[name][:, :-1].contiguous()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_b, "expected A"),
        (with_embedding, "embed_tokens"),
        (elsewhere, r"layers\.70\."),
        (narrower, "give the base that it was trained on"),
    ],
)
def test_faults_of_the_weights_are_named(
    made: Make, change: Callable[[dict[str, Tensor]], None], said: str
) -> None:
    adapter = made()
    rewrite(adapter, change)
    with pytest.raises(ModelError, match=said):
        logits(adapter)


def test_half_an_adapter_is_no_adapter(made: Make) -> None:
    adapter = made()
    (adapter / lora.WEIGHTS).unlink()
    with pytest.raises(ModelError, match=r"no adapter_model\.safetensors"):
        sources.resolve(adapter)


def test_an_adapter_of_an_adapter_is_refused(made: Make) -> None:
    first = made(seed=1)
    second = made(seed=2, changes={"base_model_name_or_path": str(first)})
    with pytest.raises(ModelError, match="is an adapter itself"):
        sources.resolve(second)


def test_embeddings_are_not_made_without_the_adapter(made: Make) -> None:
    adapter = made()
    for path in (adapter, sources.resolve(adapter)):
        with pytest.raises(UnsupportedError, match="is an adapter"):
            MeanPooling(path)


def test_a_base_that_is_not_here_is_named_with_the_remedy(made: Make) -> None:
    adapter = made(changes={"base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct"})
    with pytest.raises(ModelError, match=r"HuggingFaceTB/SmolLM2.*into the field"):
        sources.resolve(adapter)


def test_a_base_that_has_changed_is_read_anew(made: Make, tmp_path: Path) -> None:
    base = shutil.copytree(tiny.HERE / "tiny-0.1m", tmp_path / "base")
    adapter = made(base)
    first = sources.resolve(adapter)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.1}))
    assert json.loads((sources.resolve(adapter) / "config.json").read_text())["rms_norm_eps"] == 0.1
    assert sources.resolve(adapter) != first


def test_through_transformers_it_is_refused(made: Make, tmp_path: Path) -> None:
    config = transformers.GPTNeoXConfig(
        vocab_size=64, max_position_embeddings=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    transformers.GPTNeoXForCausalLM(config).save_pretrained(tmp_path / "neox")
    shutil.copy(tiny.HERE / "tiny-0.1m" / "tokenizer.json", tmp_path / "neox")
    adapter = made(tmp_path / "neox", target_modules=["query_key_value"])
    with pytest.raises(UnsupportedError, match="adapters are not read"):
        logits(adapter)
