"""The torch engine: Llama-like models on CPU and CUDA, batched continuously over a prefix tree."""

import os
import sys

# Between two operations a thread waits by spinning, by default for as long as it takes: where others want the
# cores too, that is what they wait for, and an engine falls to a fiftieth of its speed. This bound costs an idle
# machine nothing that can be measured. It is read when torch is loaded; a setting of the user's own stands.
if "torch" not in sys.modules:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from metagen.generators.torch.engine import TorchEngine as TorchEngine
