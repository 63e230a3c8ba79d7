"""A LoRA adapter that judges solutions of word problems: each step as it is written (PRM), or all at the end (ORM).

    python examples/train/words/rewards.py --problems problems.jsonl --rollouts rollouts.jsonl --into judge/

Call it again to go on after an interruption. After each step stands a tag, and there the model says + or -. Behind a
whole solution stands another tag, for whether its answer is right. One adapter learns both, and begins as the solver.

A row is a problem with some of its solutions: those of the solver, and others that `candidates.py` writes. In a row,
right and wrong ones weigh the same, so that nothing is gained by knowing which problems are hard. Solutions of a row
see the question and not each other, so that the question is read once for all of them.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers
from torch import Tensor
from tuning import Row, ask, base, encode, fit, hidden_states, parse

from candidates import UNREAD, choose, values_of
from metagen.generators.models import sources

#: Tokens of SmolLM2's vocabulary that no solution has.
STEP, WHOLE = "<file_sep>", "<jupyter_output>"
RIGHT, WRONG = "+", "-"
#: Entries of the adapter's configuration: the layouts by which verifiers read it.
ENTRIES = {
    "metagen": {"kind": "prm", "tag": STEP, "positive": RIGHT, "negative": WRONG, "delimiter": "\n"},
    "metagen_orm": {"kind": "orm", "tag": WHOLE, "positive": RIGHT, "negative": WRONG},
}
#: What stands behind a row that is shorter than others, by column.
FILL = {"input_ids": 0, "position_ids": 0, "branch": -1, "values": UNREAD, "weights": 0.0}


def lay(tokenizer: Any, text: str, values: list[float], stepwise: bool) -> tuple[list[int], list[float]]:
    """A solution's ids and, at tags, its values: with a tag behind each line, or one behind all of it."""
    if not stepwise:
        ids = [*encode(tokenizer, text), tokenizer.convert_tokens_to_ids(WHOLE)]
        return ids, [UNREAD] * (len(ids) - 1) + values[-1:]
    ids, laid, tag = [], [], tokenizer.convert_tokens_to_ids(STEP)
    for line, value in zip(text.splitlines(keepends=True), values, strict=True):
        own = encode(tokenizer, line)
        ids += [*own, tag]
        laid += [UNREAD] * len(own) + [value]
    return ids, laid


def row_of(tokenizer: Any, question: str, solutions: list[tuple[str, list[float], bool]]) -> Row:
    """A question with its solutions: text, value of each line, and whether each line has a tag.

    branch: 0 for the question, k for the k-th solution. weights: those of right and wrong add up to 1/2 each, among
    answers and among the steps before; 0 where only one kind is there.
    """
    ids = ask(tokenizer, question)
    start = len(ids)
    row: Row = {
        "input_ids": ids, "position_ids": list(range(start)), "branch": [0] * start, "values": [UNREAD] * start,
    }  # fmt: skip
    answers: list[int] = []
    for k, (text, values, stepwise) in enumerate(solutions, 1):
        own, laid = lay(tokenizer, text, values, stepwise)
        row["input_ids"] += own
        row["position_ids"] += range(start, start + len(own))
        row["branch"] += [k] * len(own)
        row["values"] += laid
        answers.append(len(ids) - 1)
    row["weights"] = [0.0] * len(ids)
    read = [i for i, value in enumerate(row["values"]) if value != UNREAD]
    for group in ([i for i in read if i in answers], [i for i in read if i not in answers]):
        for value in (0.0, 1.0):
            alike = [i for i in group if row["values"][i] == value]
            if len(alike) < len(group):
                for i in alike:
                    row["weights"][i] = 0.5 / len(alike)
    return row


def rows_of(tokenizer: Any, problems: list[dict[str, Any]], rng: np.random.Generator) -> list[Row]:
    rows = []
    for problem in problems:
        texts = choose(problem, rng)
        first = int(rng.integers(2))
        solutions = [
            (text, values_of(problem, text), (k + first) % 2 == 0)
            for k, text in enumerate(rng.permutation(texts).tolist())
        ]
        rows.append(row_of(tokenizer, problem["question"], solutions))
    return [row for row in rows if any(row["weights"])]


class RewardTrainer(transformers.Trainer):
    """Binary cross-entropy with the values, of the two labels' logits alone. labels: ids of right and wrong."""

    labels: tuple[int, int]

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Any:
        values, weights, branch = (inputs.pop(name) for name in ("values", "weights", "branch"))
        states, output = hidden_states(model, inputs | {"attention_mask": mask_of(branch)})
        read = weights > 0
        right, wrong = output[list(self.labels)].float()
        logits = states[read].float() @ (right - wrong)
        losses = torch.nn.functional.binary_cross_entropy_with_logits(
            logits, values[read].float(), reduction="none"
        )
        loss = (losses * weights[read]).sum() / weights[read].sum()
        return (loss, {"logits": logits}) if return_outputs else loss


def mask_of(branch: Tensor) -> Tensor:
    """[rows, 1, length, length]: each token sees what stands before it in the question and in its own solution."""
    length = branch.shape[1]
    seen = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
    return (seen & torch.ones(length, length, dtype=torch.bool).tril())[:, None]


def read(path: Path) -> list[dict[str, Any]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def main() -> None:
    args = parse(
        __doc__,
        problems={"help": "what problems.py wrote"},
        rollouts={"help": "what rollouts.py wrote"},
        count={
            "type": int,
            "default": 5000,
            "help": "problems to learn from, the first that are not held out",
        },
        begin={"default": sources.fetch("smollm2-135m-solver"), "help": "the adapter that it begins as"},
    )
    model, tokenizer = base()
    model = peft.PeftModel.from_pretrained(model, args.begin, is_trainable=True)
    RewardTrainer.labels = (
        tokenizer.convert_tokens_to_ids(RIGHT),
        tokenizer.convert_tokens_to_ids(WRONG),
    )
    sampled = {record["question"]: record for record in read(args.rollouts)}
    problems = [sampled.get(problem["question"], problem) for problem in read(args.problems)]
    rng = np.random.default_rng(args.seed)
    parts = {
        name: rows_of(tokenizer, [p for p in problems if p["held_out"] == held_out][: args.count], rng)
        for name, held_out in (("train", False), ("validation", True))
    }
    path = fit(RewardTrainer, model, parts, FILL, args) / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | ENTRIES, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
