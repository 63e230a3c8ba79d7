"""Steps on a GPU: a few kernels in Triton, captured as one CUDA graph for each number of tokens."""
