"""search-and-learn's own searches beside metagen's, in one process and by turns: best of n, beams and DVTS.

    git clone https://github.com/huggingface/search-and-learn
    .venv-vllm/bin/python -m benchmarks.rivals.learn search-and-learn/src [--problems 24] [--turns 3]

Both write with vLLM. Both read with the same reward model: search-and-learn by transformers, whose batch size is swept
first, and metagen by its torch engine. A line ends a step for both, in place of search-and-learn's empty line, and the
candidate with the best value is returned. Other settings of search-and-learn are those of its recipes. Its limit of
tokens holds for a step, and metagen's for a sample. Set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from vllm import LLM

from benchmarks.rivals.servers import JUDGE, TEMPLATE, WRITER
from benchmarks.rivals.table import TOKENS, Line, markdown
from metagen.generators.models import sources
from metagen.generators.torch import TorchEngine
from metagen.generators.vllm import VLLMEngine
from metagen.scope import Scope
from metagen.sequence import Sequence, Step
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.dvts import DVTS
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.tasks.base import Problem
from metagen.verifiers.reward import ProcessRewardModel

N, WIDTH, STEPS = 16, 4, 40
ARGS: dict[str, Any] = {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 29}
#: Candidates that their reward model reads at a time; their default is 4.
BATCHES = (4, 16, 64)


class Lines:
    """vLLM, whose steps end with a line in place of an empty one."""

    def __init__(self, model: LLM) -> None:
        # vLLM's own wrapper keeps no chat template that is set from outside.
        self._model, self._tokenizer = (
            model,
            AutoTokenizer.from_pretrained(sources.resolve(WRITER), trust_remote_code=False),
        )

    def get_tokenizer(self) -> Any:
        return self._tokenizer

    def generate(self, prompts: list[str], sampling_params: Any, **_: Any) -> Any:
        params = sampling_params.clone()
        if params.stop:
            params.stop = ["\n"]
        # Their template writes the first token by itself.
        ids = [{"prompt_token_ids": self._tokenizer.encode(one, add_special_tokens=False)} for one in prompts]
        return self._model.generate(ids, params, use_tqdm=False)


class Reward:
    """The reward model as theirs are read: a whole text for each candidate, in batches; [questions, outputs, steps]."""

    def __init__(self, batch: int) -> None:
        path = sources.resolve(JUDGE)
        marks = json.loads((path / "config.json").read_text())["metagen"]
        self.batch = batch
        self._tokenizer = AutoTokenizer.from_pretrained(path, padding_side="right", trust_remote_code=False)
        self._model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, trust_remote_code=False
        ).eval()
        self._tag = marks["tag"]
        encode = self._tokenizer.convert_tokens_to_ids
        self._tag_id, self._labels = (
            encode(marks["tag"]),
            [encode(marks["positive"]), encode(marks["negative"])],
        )

    def score(self, questions: list[str], outputs: list[list[str]]) -> list[list[list[float]]]:
        pairs = [(question, one) for question, every in zip(questions, outputs, strict=True) for one in every]
        found: list[list[float]] = []
        for at in range(0, len(pairs), self.batch):
            found += self._read(pairs[at : at + self.batch])
        each = iter(found)
        return [[next(each) for _ in every] for every in outputs]

    def _read(self, pairs: list[tuple[str, str]]) -> list[list[float]]:
        encode = self._tokenizer.encode
        rows = []
        for question, text in pairs:
            ids = encode(question)
            for line in text.splitlines(keepends=True):
                ids += [*encode(line, add_special_tokens=False), self._tag_id]
            rows.append(ids)
        longest = max(map(len, rows))
        inputs = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        with torch.inference_mode():
            logits = self._model(input_ids=inputs, attention_mask=mask).logits[:, :, self._labels]
        positive = torch.softmax(logits, -1)[..., 0]
        return [
            positive[i, : len(row)][torch.tensor(row) == self._tag_id].tolist() or [0.0]
            for i, row in enumerate(rows)
        ]


def theirs(
    searches: dict[str, Callable[..., Any]], config: Any, model: Lines, reward: Reward
) -> dict[str, Any]:
    """By method, what solves problems together; beams take one at a time."""

    def solve(method: str, approach: str, at_once: int) -> Callable[[list[str]], list[str]]:
        settings = config(
            approach=approach, n=N, beam_width=WIDTH, search_batch_size=at_once, temperature=1.0, max_tokens=TOKENS,
            system_prompt="", custom_chat_template=TEMPLATE, agg_strategy="last", num_iterations=STEPS,
            filter_duplicates=approach == "beam_search",
        )  # fmt: skip

        def run(prompts: list[str]) -> list[str]:
            texts: list[str] = []
            for at in range(0, len(prompts), at_once):
                texts += searches[approach]({"problem": prompts[at : at + at_once]}, settings, model, reward)[
                    "pred"
                ]
            return texts

        return run

    return {
        "best of n": solve("best of n", "best_of_n", 25),
        "beams": solve("beams", "beam_search", 1),
        "DVTS": solve("DVTS", "dvts", 25),
    }


def main(path: str, problems: list[Problem], turns: int) -> list[Line]:
    sys.path.insert(0, path)
    from sal.config import Config  # type: ignore[import-not-found]
    from sal.search import beam_search, best_of_n, dvts  # type: ignore[import-not-found]

    prompts = [problem.prompt.text or "" for problem in problems]
    plain = LLM(
        str(sources.resolve(WRITER)),
        dtype="float32",
        seed=0,
        disable_log_stats=True,
        max_model_len=1024,
        **ARGS,
    )
    with (
        VLLMEngine(WRITER, threads=1, max_context=1024, **ARGS) as writer,
        TorchEngine(JUDGE, threads=1) as judge,
    ):
        generator, verifier = writer.generator(max_tokens=TOKENS), ProcessRewardModel(judge)
        parts: dict[str, Any] = {"verifier": verifier, "until": Step("\n", 256)}
        ours: dict[str, Strategy] = {
            "best of n": BestOfN(generator, N, verifier=verifier),
            "beams": BeamSearch(generator, N, m=WIDTH, **parts),
            "DVTS": DVTS(generator, N, m=WIDTH, **parts),
        }
        agree(problems[0], verifier, Reward(4))
        reward = Reward(fastest(prompts))
        searches = {"best_of_n": best_of_n, "beam_search": beam_search, "dvts": dvts}
        others = theirs(searches, Config, Lines(plain), reward)
        lines: list[Line] = []
        for method in ours:

            def run_theirs(texts: list[str], turn: int, method: str = method) -> list[str]:
                return list(others[method](texts))

            def run_ours(texts: list[str], turn: int, strategy: Strategy = ours[method]) -> list[str]:
                async def every() -> list[str]:
                    found = await asyncio.gather(*(strategy.asolve(text, seed=turn) for text in texts))
                    return [one.text for one in found]

                return asyncio.run(every())

            for who, run in (("search-and-learn", run_theirs), ("metagen", run_ours)):
                lines.append(Line(method, who, run))
        for turn in range(-1, turns):  # the first of each warms up, on few problems
            for line in lines:
                some = problems if turn >= 0 else problems[:2]
                began = time.perf_counter()
                texts = line.solve(prompts[: len(some)], turn)
                if turn >= 0:
                    line.add(time.perf_counter() - began, texts, some)
    return lines


def agree(problem: Problem, verifier: ProcessRewardModel, reward: Reward) -> None:
    """Both see the same values."""
    prompt, text = problem.prompt.text or "", "1+1=2\n2*3=6\n"
    (score,) = asyncio.run(verifier.score([Sequence(problem.prompt, text)], scope=Scope.root("agree")))
    ((found,),) = reward.score([prompt], [[text]])
    if score.steps is None or max(abs(a - b) for a, b in zip(score.steps, found, strict=True)) > 1e-4:
        raise RuntimeError(f"{text!r} is worth {score.steps} and {found}: not the same reward model")


def fastest(prompts: list[str]) -> int:
    """Of BATCHES, the one that reads the most texts in a second."""
    texts = [["1+1=2\n2*3=6\n6-5=1\nA:1\n"] * N for _ in prompts]
    taken = {}
    for batch in BATCHES:
        reward = Reward(batch)
        reward.score(prompts[:1], texts[:1])
        began = time.perf_counter()
        reward.score(prompts, texts)
        taken[batch] = time.perf_counter() - began
    print(f"their reward model, seconds by batch size: { {b: round(t, 2) for b, t in taken.items()} }")
    return min(taken, key=taken.__getitem__)


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("path", help="the src/ of a checkout of search-and-learn")
    given.add_argument("--problems", type=int, default=24)
    given.add_argument("--turns", type=int, default=3)
    wanted = given.parse_args()
    torch.set_num_threads(1)
    some = ArithmeticTask("validation", seed=47, levels=[2, 3, 4, 5], per_level=-(-wanted.problems // 4))
    chosen = list(some.problems())[: wanted.problems]
    print(markdown(main(wanted.path, chosen, wanted.turns), len(chosen)))
