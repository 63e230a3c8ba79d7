"""A LoRA adapter that makes SmolLM2-135M solve word problems, one step a line.

    python examples/train/words/solver.py --data data/ --into solver/     # call again to go on after an interruption

It learns the solutions that `data.py` wrote; the loss is that of their tokens.
"""

from __future__ import annotations

from typing import Any

import torch
import transformers
from data import Example, read
from torch import Tensor
from tuning import Row, ask, base, encode, fit, hidden_states, parse

IGNORED = -100


def row_of(tokenizer: Any, example: Example) -> Row:
    prompt = ask(tokenizer, example.question)
    solution = encode(tokenizer, example.solution + tokenizer.eos_token)
    return {"input_ids": prompt + solution, "labels": [IGNORED] * len(prompt) + solution}


class SolutionTrainer(transformers.Trainer):
    """Computes logits where there is a label and nowhere else: a fifth of this model's work is its output matrix."""

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Any:
        labels = inputs.pop("labels")[:, 1:]
        states, output = hidden_states(model, inputs)
        known = labels != IGNORED
        logits = torch.nn.functional.linear(states[:, :-1][known], output).float()
        loss = torch.nn.functional.cross_entropy(logits, labels[known])
        return (loss, {"logits": logits}) if return_outputs else loss


def main() -> None:
    args = parse(__doc__, data={"help": "the directory that data.py made"})
    model, tokenizer = base()
    parts = {
        name: [row_of(tokenizer, e) for e in read(args.data / f"{name}.jsonl")]
        for name in ("train", "validation")
    }
    fit(SolutionTrainer, model, parts, {"input_ids": 0, "labels": IGNORED}, args)


if __name__ == "__main__":
    main()
