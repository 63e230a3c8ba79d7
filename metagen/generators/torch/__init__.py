"""The torch engine: continuous batching of Llama-like models over a prefix tree, on CPU and CUDA."""

from metagen.generators.torch.engine import TorchEngine

__all__ = ["TorchEngine"]
