import json
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metagen.cost import (
    ARCHITECTURES,
    HARDWARE,
    Beside,
    Hardware,
    ModelShape,
    Price,
    Usage,
    decode_flops,
    flops_2n,
    prefill_flops,
    roofline_seconds,
    token_flops,
)
from metagen.errors import InputError, ModelError

# Small enough to count by hand: L=2, D=8, q=4, kv=2, d=3 (so q·d ≠ D), D_ff=10, V=7.
SMALL = ModelShape(layers=2, width=8, heads=4, kv_heads=2, head_dim=3, ff=10, vocab=7)
MIXTURE = replace(SMALL, experts=5, active_experts=2)

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}

counts = st.none() | st.integers(0, 10**9)
usages = st.builds(
    Usage,
    prefilled=counts,
    cached=counts,
    generated=counts,
    calls=st.integers(0, 10**6),
    flops=counts,
    flops_2n=counts,
    money=st.none() | st.floats(0, 1e6),
    seconds=st.floats(0, 1e6),
)


class TestUsage:
    def test_adds_by_field_and_unknown_stays_unknown(self) -> None:
        a = Usage(prefilled=3, cached=None, generated=5, calls=1, flops=7.0, money=0.5, seconds=2.0)
        b = Usage(prefilled=10, cached=4, generated=None, calls=2, flops=1.0, flops_2n=9.0, money=0.25)
        assert a + b == Usage(13, None, None, 3, 8.0, 9.0, 0.75, 2.0)

    def test_the_empty_sum_is_zero(self) -> None:
        assert Usage.sum([]) == Usage() == Usage.sum(iter(()))

    def test_tokens(self) -> None:
        assert Usage(prefilled=3, cached=100, generated=4).tokens == 7
        assert Usage(prefilled=None, generated=4).tokens is None
        assert Usage(prefilled=3, generated=None).tokens is None

    @given(st.lists(usages, max_size=5))
    def test_sum_is_repeated_addition(self, many: list[Usage]) -> None:
        total = Usage()
        for usage in many:
            total = total + usage
        assert Usage.sum(many) == total

    def test_a_share_rounds_counts_up_and_keeps_unknowns(self) -> None:
        usage = Usage(prefilled=3, cached=None, generated=4, calls=1, flops=7.0, money=0.5)
        assert usage.share(0.5) == Usage(2, None, 2, 1, 3.5, 0, 0.25)

    def test_what_is_left_of_a_field_is_not_below_zero(self) -> None:
        usage, other = Usage(generated=5, calls=1, flops=None), Usage(generated=3, calls=2)
        assert usage.less(other) == Usage(generated=2, calls=0, flops=None)

    @given(usages)
    def test_json_round_trip(self, usage: Usage) -> None:
        assert Usage.from_dict(json.loads(json.dumps(usage.to_dict()))) == usage

    def test_json_leaves_zeros_out_and_keeps_unknowns(self) -> None:
        assert Usage().to_dict() == {}
        assert Usage(cached=None, generated=2).to_dict() == {"cached": None, "generated": 2}


class TestFlops:
    def test_parameters_by_hand(self) -> None:
        attention = 8 * 4 * 3 + 2 * 8 * 2 * 3 + 4 * 3 * 8  # query, key and value, output: 288
        mlp = 3 * 8 * 10  # 240
        assert SMALL.parameters == 2 * (attention + mlp) == 1056
        assert SMALL.parameters_total == 1056 + 2 * 7 * 8
        assert replace(SMALL, tied=True).parameters_total == 1056 + 7 * 8
        assert replace(SMALL, gated=False).parameters == 2 * (288 + 160)

    def test_a_mixture_counts_active_experts_and_its_router(self) -> None:
        assert MIXTURE.parameters == 2 * (288 + 2 * 240 + 8 * 5)
        assert MIXTURE.parameters_total == 2 * (288 + 5 * 240 + 8 * 5) + 112

    def test_token_by_hand(self) -> None:
        # 2·1056 + 4·L·q·d·5 + LM head 2·8·7
        assert token_flops(SMALL, context=5) == 2112 + 4 * 2 * 4 * 3 * 5 + 112 == 2704
        assert token_flops(SMALL, context=5, logits=False) == 2592

    def test_decoding_one_token_needs_only_the_prefill(self) -> None:
        assert decode_flops(SMALL, generated=0, context=9) == decode_flops(SMALL, generated=1, context=9) == 0
        assert decode_flops(SMALL, generated=2, context=9) == token_flops(SMALL, context=10)

    @given(st.integers(1, 40), st.integers(0, 40))
    def test_prefill_and_decode_are_the_sum_over_tokens(self, prompt: int, generated: int) -> None:
        fed = max(generated - 1, 0)
        by_token = sum(token_flops(SMALL, i, logits=i >= prompt) for i in range(1, prompt + fed + 1))
        assert prefill_flops(SMALL, prompt) + decode_flops(SMALL, generated, prompt) == by_token

    @given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 3))
    def test_a_prefill_may_be_cut_anywhere(self, known: int, new: int, logits: int) -> None:
        whole = prefill_flops(SMALL, known + new, logits=logits)
        parts = (
            prefill_flops(SMALL, known, logits=0),
            prefill_flops(SMALL, known + new, cached=known, logits=logits),
        )
        assert whole == sum(parts)

    @given(st.integers(1, 50), st.integers(1, 30), st.integers(1, 30))
    def test_generating_in_two_requests_costs_as_much_as_in_one(
        self, prompt: int, first: int, second: int
    ) -> None:
        # The second request finds all but the last token of its prefix in the cache.
        prefix = prompt + first
        resumed = prefill_flops(SMALL, prefix, cached=prefix - 1) + decode_flops(SMALL, second, prefix)
        assert decode_flops(SMALL, first, prompt) + resumed == decode_flops(SMALL, first + second, prompt)

    def test_2n_is_the_exact_count_without_attention_and_head(self) -> None:
        assert flops_2n(SMALL, 10) == 2 * 1056 * 10
        attention = 4 * 2 * 4 * 3 * (10 * 11 // 2)
        assert prefill_flops(SMALL, 10, logits=0) == flops_2n(SMALL, 10) + attention

    @pytest.mark.parametrize("shape", [SMALL, MIXTURE, replace(SMALL, tied=True, beside=(Beside(MIXTURE),))])
    def test_bytes_are_those_of_all_parameters(self, shape: ModelShape) -> None:
        assert shape.bytes_total == shape.parameters_total * 2 == shape.compress(2.0).bytes_total

    def test_only_layers_are_compressed(self) -> None:
        assert SMALL.compress(0.5).bytes_total == 1056 / 2 + 112 * 2

    def test_weights_beside_are_used_anew_for_each_token_of_a_window_and_each_one_tried(self) -> None:
        assert [Beside(SMALL, **how).times for how in ({}, {"window": 5}, {"tries": 3})] == [1, 5, 4]

    def test_a_model_beside_another(self) -> None:
        """Of 10 tokens 4 are known, and three sets of logits are asked for."""
        assert Beside(SMALL).flops(10, 4, 3) == prefill_flops(SMALL, 10, 4, 3)
        assert Beside(SMALL, window=6).flops(10, 4, 3) == 3 * prefill_flops(SMALL, 6)
        assert Beside(SMALL, window=16).flops(10, 4, 3) == 3 * prefill_flops(SMALL, 10)
        tried = token_flops(SMALL, 11, logits=False)  # an eleventh token, which sees the ten before it
        assert Beside(SMALL, tries=2).flops(10, 4, 3) == prefill_flops(SMALL, 10, 4, logits=0) + 6 * tried

    @pytest.mark.parametrize("arguments", [(5, 6), (5, -1), (-1, 0)])
    def test_impossible_prefills_are_refused(self, arguments: tuple[int, int]) -> None:
        with pytest.raises(InputError, match="0 ≤ cached ≤ tokens"):
            prefill_flops(SMALL, *arguments)

    def test_impossible_decodes_are_refused(self) -> None:
        with pytest.raises(InputError, match="counts ≥ 0"):
            decode_flops(SMALL, -1, 5)


class TestFromConfig:
    def test_llama_3_8b(self) -> None:
        shape = ModelShape.from_config(LLAMA)
        assert shape == ModelShape(32, 4096, 32, 8, 128, 14336, 128256)
        # The published 8,030,261,248 less the norms, (2·32 + 1)·4096.
        assert shape.parameters_total == 8_030_261_248 - 65 * 4096
        assert shape.kv_bytes_per_token == 2 * 32 * 8 * 128 * 2

    def test_mixtral_8x7b(self) -> None:
        shape = ModelShape.from_config({
            **LLAMA, "model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
        })  # fmt: skip
        # The published 46,702,792,704 less the norms.
        assert shape.parameters_total == 46_702_792_704 - 65 * 4096
        active = shape.parameters + 2 * 32000 * 4096
        assert active == pytest.approx(12.88e9, rel=1e-3)  # published as 12.9B

    def test_qwen3_moe_takes_the_width_of_one_expert(self) -> None:
        shape = ModelShape.from_config({
            **LLAMA, "model_type": "qwen3_moe", "head_dim": 64, "num_experts": 128, "num_experts_per_tok": 8,
            "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": [],
        })  # fmt: skip
        assert (shape.ff, shape.head_dim, shape.experts, shape.active_experts) == (768, 64, 128, 8)

    def test_gpt2(self) -> None:
        config = {
            "model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None, "vocab_size": 50257,
        }  # fmt: skip
        shape = ModelShape.from_config(config)
        assert shape == ModelShape(12, 768, 12, 12, 64, 3072, 50257, gated=False, tied=True, dtype_bytes=4)
        # The published 124,439,808 less positions, norms and biases.
        extras = 1024 * 768 + 25 * 2 * 768 + 12 * (3 * 768 + 768 + 3072 + 768)
        assert shape.parameters_total == 124_439_808 - extras

    def test_gpt_neox_and_gemma(self) -> None:
        neox = ModelShape.from_config({**LLAMA, "model_type": "gpt_neox", "num_key_value_heads": None})
        assert (neox.gated, neox.kv_heads, neox.tied) == (False, 32, False)
        untold = {k: v for k, v in LLAMA.items() if k != "tie_word_embeddings"}
        gemma = ModelShape.from_config(
            {"model_type": "gemma3", "text_config": {**untold, "model_type": "gemma3_text"}}
        )
        assert (gemma.gated, gemma.tied) == (True, True)

    def test_directory_and_file(self, tmp_path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(LLAMA))
        assert ModelShape.from_config(tmp_path) == ModelShape.from_config(str(tmp_path / "config.json"))

    def test_agrees_with_a_model_that_runs(self) -> None:
        transformers = pytest.importorskip("transformers")
        config = transformers.LlamaConfig(
            hidden_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            intermediate_size=80, vocab_size=31, tie_word_embeddings=False,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
        matrices = sum(p.numel() for p in model.parameters() if p.ndim == 2)
        shape = ModelShape.from_config(config.to_dict())
        assert shape.parameters_total == matrices
        assert shape.parameters == matrices - 2 * 31 * 48

    def test_embeddings_of_which_a_config_says_nothing_are_tied_as_its_model_has_them(self) -> None:
        known = pytest.importorskip("transformers").CONFIG_MAPPING
        untold = {k: v for k, v in LLAMA.items() if k != "tie_word_embeddings"}
        for kind in sorted(ARCHITECTURES & set(known.keys())):
            own = known[kind]()
            shape = ModelShape.from_config({**untold, "model_type": kind})
            assert shape.tied == getattr(own, "text_config", own).tie_word_embeddings, kind

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"model_type": "mamba"}, r"config\.json: model_type='mamba', expected one of llama"),
            ({"hidden_size": None}, r"config\.json: no field 'hidden_size' or 'n_embd'; add it"),
            ({"vocab_size": "many"}, r"config\.json: vocab_size='many', expected an integer ≥ 1"),
            ({"num_hidden_layers": True}, "num_hidden_layers=True"),
            ({"num_attention_heads": 0}, "num_attention_heads=0"),
            ({"num_attention_heads": 33}, "no multiple of 33 heads; add the field 'head_dim'"),
            ({"num_key_value_heads": 5}, r"config\.json: .*not a multiple of kv_heads=5"),
            ({"torch_dtype": "int3"}, "dtype='int3', expected one of float64"),
            ({"mlp_only_layers": [0]}, r"mlp_only_layers=\[0\]"),
            ({"num_local_experts": 2, "num_experts_per_tok": 3}, "active_experts=3 of experts=2"),
            ({"num_local_experts": 2}, "no field 'num_experts_per_tok'"),
        ],
    )
    def test_faults_name_file_field_and_remedy(
        self, tmp_path, change: dict[str, object], message: str
    ) -> None:
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **change}))
        with pytest.raises(ModelError, match=message):
            ModelShape.from_config(tmp_path)

    @pytest.mark.parametrize(
        ("content", "message"), [("{", "not valid JSON"), ("[]", "expected a JSON object")]
    )
    def test_torn_files(self, tmp_path, content: str, message: str) -> None:
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ModelError, match=message):
            ModelShape.from_config(tmp_path)

    def test_missing_file(self, tmp_path) -> None:
        with pytest.raises(ModelError, match="cannot be read"):
            ModelShape.from_config(tmp_path)

    def test_every_size_may_be_1(self) -> None:
        assert ModelShape(1, 1, 1, 1, 1, 1, 1, dtype_bytes=1).parameters == 4 + 3

    def test_shapes_that_do_not_fit(self) -> None:
        with pytest.raises(ModelError, match="layers=0"):
            replace(SMALL, layers=0)
        with pytest.raises(ModelError, match="active_experts=0 of experts=4"):
            replace(SMALL, experts=4)


class TestRoofline:
    def test_decode_of_one_sequence_is_bound_by_memory(self) -> None:
        hardware = Hardware("test", peak=1e18, bandwidth=1000.0)
        weights = (1056 + 56) * 2  # layers and LM head
        per_token = 2 * 2 * 2 * 3 * 2
        expected = (weights + 11 * per_token + weights + 12 * per_token) / 1000
        assert roofline_seconds(SMALL, hardware, 0, 3, 10) == pytest.approx(expected)

    def test_a_large_batch_is_bound_by_compute(self) -> None:
        hardware = Hardware("test", peak=1000.0, bandwidth=1e18)
        work = 7 * (prefill_flops(SMALL, 10, cached=4) + decode_flops(SMALL, 5, 10))
        assert roofline_seconds(SMALL, hardware, 6, 5, 10, batch=7) == pytest.approx(work / 1000)

    def test_a_batch_reads_the_weights_once(self) -> None:
        hardware = Hardware.find("h100-sxm")
        shape = ModelShape.from_config(LLAMA)
        one, many = (roofline_seconds(shape, hardware, 0, 100, 1, batch=b) for b in (1, 16))
        assert one < many < 1.1 * one

    def test_a_mixture_reads_more_experts_in_a_larger_batch(self) -> None:
        hardware = Hardware("test", peak=1e18, bandwidth=1.0)
        one = roofline_seconds(MIXTURE, hardware, 0, 2, 1)
        lone_kv = 2 * MIXTURE.kv_bytes_per_token
        assert one - lone_kv == pytest.approx(2 * (MIXTURE.parameters + 56))
        crowd = roofline_seconds(MIXTURE, hardware, 0, 2, 1, batch=1000)
        assert crowd - 1000 * lone_kv == pytest.approx(2 * (MIXTURE.parameters_total - 56))

    def test_8b_on_an_h100_decodes_below_its_bandwidth(self) -> None:
        # 16 GB of weights at 3.35 TB/s: about 4.5 ms a token.
        seconds = roofline_seconds(ModelShape.from_config(LLAMA), Hardware.find("h100-sxm"), 0, 1001, 1)
        assert 4.4e-3 < seconds / 1000 < 4.7e-3

    def test_faults(self) -> None:
        with pytest.raises(InputError, match=r"unknown hardware 'h1000'.*h100-sxm"):
            Hardware.find("h1000")
        with pytest.raises(InputError, match="peak=0"):
            Hardware("x", 0, 1)
        for arguments in ((11, 1, 10), (-1, 1, 10), (1, -1, 10), (1, 1, 10, 0)):
            with pytest.raises(InputError, match="0 ≤ prefilled ≤ context"):
                roofline_seconds(SMALL, HARDWARE["h200"], *arguments)


class TestPrice:
    def test_of(self) -> None:
        price = Price(prompt=2.0, generated=10.0, cached=0.5)
        assert price.of(Usage(prefilled=1_000_000, cached=2_000_000, generated=300_000)) == pytest.approx(6.0)

    def test_cached_tokens_cost_like_the_prompt_unless_said(self) -> None:
        assert Price(2.0, 10.0).of(Usage(cached=500_000)) == pytest.approx(1.0)
        assert Price(2.0, 10.0, cached=0.0).of(Usage(cached=500_000)) == 0.0

    @pytest.mark.parametrize("unknown", ["prefilled", "cached", "generated"])
    def test_unknown_counts_have_no_price(self, unknown: str) -> None:
        assert Price(2.0, 10.0).of(replace(Usage(1, 1, 1), **{unknown: None})) is None

    def test_negative_prices_are_refused(self) -> None:
        with pytest.raises(InputError, match="generated=-1"):
            Price(1.0, -1)


def test_the_cost_model_imports_nothing_heavy() -> None:
    heavy = "{'numpy', 'torch', 'scipy', 'transformers'} & set(sys.modules)"
    code = f"import sys, metagen.cost; print(sorted({heavy}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
