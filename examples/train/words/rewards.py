r"""A LoRA adapter that judges solutions of word problems, and their steps: an implicit process reward model.

    python examples/train/words/rewards.py --problems problems.jsonl --rollouts rollouts.jsonl \
        --begin solver/adapter --into judge/

Call it again to go on after an interruption. The adapter begins as the solver, and the solver stays its reference:
what a judge says of the text up to the end of a line is sigmoid(beta * log-ratio of the two), as
`ImplicitProcessRewardModel` has it (Yuan et al. 2024, arXiv:2412.01981). A solver knows how a solution goes on, and
needs no new words to say so. Labels are those of `candidates.py`, for lines and for whole solutions.

A row is a problem with some of its solutions: those of the solver, and others that `candidates.py` writes. In a row,
right and wrong ones weigh the same, so that nothing is gained by knowing which problems are hard. Solutions of a row
see the question and not each other, so that the question is read once for all of them.
"""

from __future__ import annotations

import gzip
import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers
from torch import Tensor
from torch.nn import functional
from tuning import Row, ask, base, encode, fit, hidden_states, parse

from candidates import UNREAD, choose, values_of
from metagen.generators.models import sources

#: Of the log-ratio.
BETA = 1.0
#: In the judge's directory, a digest of the adapter that it began as: another reference gives another reward.
BEGAN = "reference.sha256"
#: What stands behind a row that is shorter than others, by column.
FILL = {
    "input_ids": 0,
    "position_ids": 0,
    "branch": -1,
    "before": 0,
    "begun": 0,
    "values": UNREAD,
    "weights": 0.0,
}


def ends(tokenizer: Any, ids: list[int], text: str) -> list[int]:
    """How many of a text's ids each of its lines ends behind."""
    lengths = accumulate(map(len, text.splitlines(keepends=True)))
    begun = [encode(tokenizer, text[:length]) for length in lengths]
    return [
        next((i for i, (a, b) in enumerate(zip(own, ids, strict=False)) if a != b), min(len(own), len(ids)))
        for own in begun
    ]


def row_of(tokenizer: Any, question: str, solutions: list[tuple[str, list[float]]]) -> Row:
    """A question with its solutions, each a text and the values of its lines.

    branch: 0 for the question, k for the k-th solution. before: the index of the token by which a token is predicted.
    begun: that of the last token before its solution. values: at the end of each line. weights: those of right and
    wrong add up to 1/2 each, among whole solutions and among the lines before; 0 where only one kind is there.
    """
    ids = ask(tokenizer, question)
    start = len(ids)
    row: Row = {
        "input_ids": ids, "position_ids": list(range(start)), "branch": [0] * start, "before": [0] * start,
        "begun": [0] * start, "values": [UNREAD] * start,
    }  # fmt: skip
    last: list[int] = []
    for k, (text, values) in enumerate(solutions, 1):
        own, offset = encode(tokenizer, text), len(ids)
        laid = [UNREAD] * len(own)
        for end, value in zip(ends(tokenizer, own, text), values, strict=True):
            laid[end - 1] = value
        row["input_ids"] += own
        row["position_ids"] += range(start, start + len(own))
        row["branch"] += [k] * len(own)
        row["before"] += [start - 1, *range(offset, offset + len(own) - 1)]
        row["begun"] += [offset - 1] * len(own)
        row["values"] += laid
        last.append(len(ids) - 1)
    row["weights"] = [0.0] * len(ids)
    read = [i for i, value in enumerate(row["values"]) if value != UNREAD]
    for group in ([i for i in read if i in last], [i for i in read if i not in last]):
        for value in (0.0, 1.0):
            alike = [i for i in group if row["values"][i] == value]
            if len(alike) < len(group):
                for i in alike:
                    row["weights"][i] = 0.5 / len(alike)
    return row


def rows_of(tokenizer: Any, problems: list[dict[str, Any]], rng: np.random.Generator) -> list[Row]:
    rows = [
        row_of(tokenizer, problem["question"], [(text, values_of(problem, text)) for text in choose(problem, rng)])
        for problem in problems
    ]  # fmt: skip
    return [row for row in rows if any(row["weights"])]


def mask_of(branch: Tensor) -> Tensor:
    """[rows, 1, length, length]: each token sees what stands before it in the question and in its own solution."""
    length = branch.shape[1]
    seen = (branch[:, None, :] == 0) | (branch[:, None, :] == branch[:, :, None])
    return (seen & torch.ones(length, length, dtype=torch.bool).tril())[:, None]


def log_probs(model: Any, inputs: dict[str, Tensor], before: Tensor, read: Tensor) -> Tensor:
    """Of the tokens of all solutions, [tokens]. The output matrix is a fifth of this model: only they are asked."""
    states, output = hidden_states(model, inputs)
    states = states[torch.arange(len(before))[:, None], before][read]
    logits = functional.linear(states, output).float()
    return -functional.cross_entropy(logits, inputs["input_ids"][read], reduction="none")


class RewardTrainer(transformers.Trainer):
    """Binary cross-entropy of the values and the sigmoid of the log-ratio from a solution's beginning to there."""

    reference: Any

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **_: Any
    ) -> Any:
        values, weights, branch, before, begun = (
            inputs.pop(name) for name in ("values", "weights", "branch", "before", "begun")
        )
        inputs = inputs | {"attention_mask": mask_of(branch)}
        ours = log_probs(model, inputs, before, branch > 0)
        with torch.no_grad():
            theirs = log_probs(self.reference, inputs, before, branch > 0)
        ratios = torch.zeros(branch.shape).masked_scatter(branch > 0, ours - theirs).cumsum(1)
        logits = BETA * (ratios - ratios.gather(1, begun))
        losses = functional.binary_cross_entropy_with_logits(logits, values.clamp(min=0), reduction="none")
        loss = (losses * weights).sum() / weights.sum()
        return (loss, {"logits": logits}) if return_outputs else loss


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
        begin={
            "type": str,
            "default": "smollm2-135m-solver",
            "help": "the adapter of the solver that wrote the rollouts; default: %(default)s",
        },
    )
    model, tokenizer = base()
    begin = sources.resolve(args.begin)
    model = peft.PeftModel.from_pretrained(model, begin, is_trainable=True)
    RewardTrainer.reference = peft.PeftModel.from_pretrained(base()[0], begin).eval()
    sampled = {record["question"]: record for record in read(args.rollouts)}
    problems = [sampled.get(problem["question"], problem) for problem in read(args.problems)]
    rng = np.random.default_rng(args.seed)
    parts = {
        name: rows_of(tokenizer, [p for p in problems if p["held_out"] == held_out][: args.count], rng)
        for name, held_out in (("train", False), ("validation", True))
    }
    (fit(RewardTrainer, model, parts, FILL, args) / BEGAN).write_text(weights_of(args.begin))


def weights_of(adapter: str) -> str:
    """A digest of an adapter's weights, by its name or its directory."""
    return sources.digest(sources.resolve(adapter) / "adapter_model.safetensors")


if __name__ == "__main__":
    main()
