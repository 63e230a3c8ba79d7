"""What the templates share: open a model, solve one problem, and show how it went.

    python examples/templates/self_ask.py MODEL "a question"

MODEL is a directory with a Llama-like model (config.json, safetensors, tokenizer.json). Each template has a function
`build`, which makes its strategy of a generator: import that into an experiment or a notebook.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import metagen as mg


def solve(build: Callable[[mg.Generator], mg.Strategy], arguments: list[str]) -> mg.Result:
    """Run the strategy on the question, print its answer and its calls, and return the result."""
    if len(arguments) != 2:
        raise SystemExit("expected two arguments: the directory of a model, and a question in quotes")
    model, question = arguments
    with mg.TorchEngine(model) as engine:
        result = build(engine.generator(temperature=0.7, max_tokens=512)).solve(question)
    print(result.text)
    for row in sorted(result.trace.rows, key=lambda row: row.path):
        print(f"{row.kind:10}{row.path:24}{row.usage.generated or 0:6} tokens", file=sys.stderr)
    return result
