"""vLLM: models of many architectures on GPUs and CPUs, batched continuously, prefixes cached in blocks."""

from metagen.generators.vllm.engine import VLLMEngine as VLLMEngine
