"""The model against transformers: every architecture, every way to extend rows."""

import json
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from metagen.errors import InputError, ModelError, UnsupportedError
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.models import loading
from metagen.generators.torch.models.loading import Place
from tests.generators.torch.conftest import OTHERS

pytestmark = pytest.mark.usefixtures("steps")

CPU = torch.device("cpu")
#: Architectures that `llama.py` computes.
OURS = ["llama", "llama3", "mistral", "qwen2", "qwen3"]


def load(directory: Path, **options: Any) -> Any:
    """The model of `llama.py` where it computes the architecture, else that of transformers behind our verbs."""
    place = Place(**{"dtype": torch.float32, "device": CPU, "batch": 8, "kv_bytes": 1 << 25, **options})
    return loading.load(directory, place).model


def ids(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("kind", [*OURS, *sorted(OTHERS.keys() - {"mamba"})])
@torch.inference_mode()
def test_logits_are_those_of_transformers(kind: str, model_dir: Any) -> None:
    directory = model_dir(kind)
    reference = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(0)
    long = torch.randint(0, reference.config.vocab_size, (700,), generator=generator)
    short = torch.randint(0, reference.config.vocab_size, (37,), generator=generator)
    want, want_short = reference(long[None]).logits[0], reference(short[None]).logits[0]
    model = load(directory)
    a, b = long.numpy(), short.numpy()

    def close(found: torch.Tensor, expected: torch.Tensor) -> None:
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)

    # Ragged tokens, all logits; then one each; then ragged again, the last logits only.
    model.open(ids(0, 1), [])
    close(
        model.extend(ids(0, 1), np.concatenate([a[:200], b[:30]]), ids(200, 30), np.arange(230)),
        torch.cat([want[:200], want_short[:30]]),
    )
    close(model.extend(ids(0, 1), ids(a[200], b[30])), torch.stack([want[200], want_short[30]]))
    close(
        model.extend(ids(0, 1), np.concatenate([a[201:300], b[31:37]]), ids(99, 6)),
        torch.stack([want[299], want_short[36]]),
    )
    # A row that outgrows its tail, saved whole, and rows over one long and one short segment.
    for at in range(300, 660, 180):
        close(model.extend(ids(0), a[at : at + 180], ids(180))[0], want[at + 179])
    head, rest = model.save(0, 0, 650).split(600)
    assert (len(head), len(rest)) == (600, 50)
    model.open(ids(2, 3, 5), [head, rest])
    close(
        model.extend(ids(2, 3, 5), np.tile(a[650:655], 3), ids(5, 5, 5)),
        want[654].expand(3, -1),
    )
    # Rows with and without shared segments side by side, after a fork and a truncation.
    model.fork(ids(3), ids(0))
    model.truncate(1, 20)
    close(
        model.extend(ids(0, 1), np.concatenate([a[655:658], b[20:24]]), ids(3, 4)),
        torch.stack([want[657], want_short[23]]),
    )
    model.truncate(2, 610)
    close(model.extend(ids(2), a[610:612], ids(2))[0], want[611])
    model.truncate(2, 100)
    close(model.extend(ids(2), a[100:101])[0], want[100])
    # A piece of which no logits are wanted.
    assert model.extend(ids(2), a[101:104], ids(3), ids()).shape == (0, reference.config.vocab_size)
    close(model.extend(ids(2), a[104:105])[0], want[104])


@pytest.mark.parametrize(
    ("kind", "seed"), [*(("llama", seed) for seed in range(4)), ("gemma2", 0), ("gpt2", 1)]
)
@torch.inference_mode()
def test_rows_hold_what_they_should_after_any_operations(model_dir: Any, kind: str, seed: int) -> None:
    """Open, fork, move, truncate, close and extend at random: every logit is that of the row's tokens alone."""
    model, alone = load(model_dir(kind), batch=12), load(model_dir(kind))
    rng = random.Random(seed)
    held: dict[int, list[int]] = {}
    segments: list[tuple[list[int], list[Any]]] = [([], [])]
    free = lambda: [r for r in range(model.rows) if r not in held]  # noqa: E731

    def grow(rows: list[int]) -> None:
        counts = [rng.choice((1, 1, 2, 40, 90)) if rng.random() < 0.4 else 1 for _ in rows]
        new = [[rng.randrange(5, 300) for _ in range(n)] for n in counts]
        found = model.extend(ids(*rows), np.concatenate(new), None if set(counts) == {1} else ids(*counts))
        for row, tokens, logits in zip(rows, new, found, strict=True):
            held[row] += tokens
            alone.open(ids(0), [])
            for at in range(0, len(held[row]), 200):
                part = held[row][at : at + 200]
                expected = alone.extend(ids(0), np.array(part), ids(len(part)))[0]
            alone.close(ids(0))
            torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)

    for _ in range(60):
        verb = rng.choice(
            ("open", "open", "fork", "move", "truncate", "close", "save", "split", "grow", "grow", "grow")
        )
        if verb == "open" and len(free()) > 4:
            rows, (tokens, chain) = rng.sample(free(), rng.randint(1, 4)), rng.choice(segments)
            model.open(ids(*rows), chain)
            held |= {row: list(tokens) for row in rows}
            grow(rows)
        elif verb in ("fork", "move") and held and len(held) < model.rows:
            source, target = rng.choice(list(held)), rng.choice(free())
            getattr(model, verb)(ids(source), ids(target))
            held[target] = list(held[source])
            if verb == "move":
                del held[source]
        elif verb == "truncate" and held:
            row = rng.choice(list(held))
            length = rng.randrange(1, len(held[row]) + 1)
            model.truncate(row, length)
            held[row] = held[row][:length]
        elif verb == "close" and len(held) > 2:
            rows = rng.sample(list(held), 2)
            model.close(ids(*rows))
            for row in rows:
                del held[row]
        elif verb == "save" and held:
            row = rng.choice(list(held))
            cuts = sorted(
                {0, len(held[row]), *(rng.randrange(len(held[row])) for _ in range(rng.choice((0, 1, 6))))}
            )
            segments.append((list(held[row]), [model.save(row, a, b) for a, b in pairwise(cuts)]))
        elif verb == "split" and segments[-1][1]:
            # As the prefix tree does it, under rows that read the segment.
            chain = rng.choice(segments[1:])[1]
            whole = rng.choice(chain)
            if len(whole) > 1:
                at = chain.index(whole)
                chain[at : at + 1] = whole.split(rng.randrange(1, len(whole)))
        elif held:
            grow(sorted(held) if rng.random() < 0.5 else rng.sample(list(held), rng.randint(1, len(held))))
    model.close(np.array(list(held)))
    if kind != "llama":
        assert model._together is None
        assert not any(model._segments)
        return
    assert not any(region.count for region in model._kv._regions.all)
    assert not model._kv._chains.slots.users.any(), "a slot is free when nobody uses it"


@torch.inference_mode()
def test_bfloat16_is_near_float32(model_dir: Any) -> None:
    full, half = (load(model_dir("qwen2"), dtype=t) for t in (torch.float32, torch.bfloat16))
    tokens = np.arange(40) + 5
    results = []
    for model in (full, half):
        model.open(ids(0), [])
        first = model.extend(ids(0), tokens, ids(40))
        model.open(ids(1, 2), [model.save(0, 0, 40)])
        results.append(torch.cat([first, model.extend(ids(1, 2), ids(7, 8))]))
    gap = (results[0] - results[1]).abs().max() / results[0].abs().max()
    assert gap < 0.05


@torch.inference_mode()
def test_poisoned_rows_leave_nothing_behind(model_dir: Any) -> None:
    model = load(model_dir("llama"))
    model.open(ids(0), [])
    clean = model.extend(ids(0), ids(5, 6, 7), ids(3))
    model._kv._regions.tail(0)[..., :3, :] = torch.nan
    model.close(ids(0), poisoned=True)
    model.open(ids(0), [])
    torch.testing.assert_close(model.extend(ids(0), ids(5, 6, 7), ids(3)), clean)
    # Nor where a row has slid from, nor where one was closed by those who knew nothing of it.
    model.open(ids(1), [])
    model.extend(ids(1), ids(5, 6, 7), ids(3))
    model._kv._regions.tail(1)[..., :3, :] = torch.nan
    model.close(ids(0))
    model.close(ids(1))
    model.open(ids(2, 3), [])
    found = model.extend(ids(2, 3), ids(5, 6, 7, 5, 6, 7), ids(3, 3))
    torch.testing.assert_close(found, clean.expand(2, -1))


def broken(source: Path, target: Path, **config: Any) -> Path:
    shutil.copytree(source, target)
    path = target / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return target


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"model_type": "nonsense"}, UnsupportedError, "nonsense"),
        ({"hidden_size": None}, ModelError, "hidden_size"),
        ({"num_attention_heads": 3}, ModelError, "not a multiple"),
        ({"intermediate_size": 95}, ModelError, r"gate_proj.weight.*\(96, 48\).*\(95, 48\)"),
        ({"num_hidden_layers": 3}, ModelError, "layers.2"),
        ({"num_hidden_layers": 1}, ModelError, "no place for the weights"),
        ({"rope_parameters": {"rope_type": "yarn"}}, UnsupportedError, "yarn"),
        ({"eos_token_id": 100000}, ModelError, "eos_token_id"),
    ],
)
def test_configs_that_do_not_fit(
    change: dict[str, Any], error: type[Exception], says: str, model_dir: Any, tmp_path: Path
) -> None:
    directory = broken(model_dir("llama"), tmp_path / "m", **change)
    (directory / "generation_config.json").unlink()
    with pytest.raises(error, match=says):
        TorchEngine(directory)


def test_layers_without_keys_are_refused(model_dir: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"model_type='mamba'.*keys and values"):
        load(model_dir("mamba"))


def test_weights_that_are_missing_are_not_made_up(model_dir: Any, tmp_path: Path) -> None:
    directory = broken(model_dir("gpt2"), tmp_path / "m", n_layer=3)
    with pytest.raises(ModelError, match=r"missing keys in the weights, 'transformer\.h\.2"):
        load(directory)


def test_missing_and_unreadable_files(model_dir: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file or directory"):
        TorchEngine(tmp_path / "nowhere")
    for name, says in (
        ("config.json", "config.json"),
        ("model.safetensors", "model.safetensors"),
        ("tokenizer.json", "tokenizer.json"),
    ):
        directory = broken(model_dir("llama"), tmp_path / f"no {name}")
        (directory / name).unlink()
        with pytest.raises(ModelError, match=says):
            TorchEngine(directory)
        (directory / name).write_text("{}" if name != "model.safetensors" else "not tensors")
        with pytest.raises((ModelError, UnsupportedError)):
            TorchEngine(directory)


@pytest.mark.parametrize("lost", ["self_attn.k_proj.bias", "mlp.up_proj.bias"])
def test_some_biases_without_the_others(lost: str, model_dir: Any, tmp_path: Path) -> None:
    directory = broken(model_dir("qwen2"), tmp_path / "m")
    weights = load_file(directory / "model.safetensors")
    base = "model.layers.1."
    for name in ("mlp.gate_proj", "mlp.up_proj"):
        weights[f"{base}{name}.bias"] = torch.zeros(len(weights[f"{base}{name}.weight"]))
    del weights[base + lost]
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"layers\.1\..*bias.*of these"):
        TorchEngine(directory)


@pytest.mark.parametrize("lost", ["q_norm", "k_norm"])
def test_a_norm_of_queries_or_of_keys_alone(lost: str, model_dir: Any, tmp_path: Path) -> None:
    directory = broken(model_dir("qwen3"), tmp_path / "m")
    weights = load_file(directory / "model.safetensors")
    del weights[f"model.layers.1.self_attn.{lost}.weight"]
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"layers\.1\..*norm.*1 of these 2 norms"):
        TorchEngine(directory)


def test_a_tokenizer_larger_than_the_vocabulary(model_dir: Any, tmp_path: Path) -> None:
    directory = broken(model_dir("llama"), tmp_path / "m", vocab_size=200)
    weights = load_file(directory / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = weights[name][:200].clone()
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="vocab_size=200"):
        TorchEngine(directory)


def test_memory_that_holds_no_rows(model_dir: Any) -> None:
    with pytest.raises(InputError, match="kv_memory_bytes"):
        load(model_dir("llama"), kv_bytes=1000)
