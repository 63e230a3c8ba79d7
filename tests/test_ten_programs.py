"""Ten programs that the contracts must carry. They were written before anything was built on them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from metagen.budget import Budget
from metagen.generators.base import Generator
from metagen.generators.function import FunctionGenerator
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.journal import SQLiteJournal
from metagen.scope import Scope
from metagen.sequence import Message, Prompt, Sequence, Step, Until
from metagen.strategies.base import Strategy
from metagen.strategies.parallel import BestOfN, MajorityVote, Sample, WeightedVote
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import CountingJournal, first_word, last_word, numbers, run
from metagen.verifiers.reward import ProcessRewardModel

PROMPT = Prompt("p1", text="How many?")


def test_1_best_of_4_over_majority_of_8() -> None:
    inner = MajorityVote(numbers(), 8, answer=last_word)
    result = BestOfN(inner, 4, verifier=first_word, answer=last_word).solve(PROMPT)

    sampled = [row for row in result.trace.rows if row.kind == "generate"]
    assert len(sampled) == 32
    assert {row.path for row in sampled} == {f"0/sample/{i}/sample" for i in range(4)}
    assert len({row.payload["text"] for row in sampled if row.payload}) == 32, "no two samples share a seed"
    assert len(result.candidates) == 4
    best = max(result.candidates, key=lambda c: c.value or 0.0)
    assert result.text == best.sequence.text


def test_2_majority_best_of_n_and_weighted_voting_share_one_pool() -> None:
    journal = CountingJournal()
    generator = numbers()
    majority = MajorityVote(generator, 8, answer=last_word).solve(PROMPT, journal=journal)
    assert journal.recorded == 8
    best = BestOfN(generator, 8, verifier=first_word, answer=last_word).solve(PROMPT, journal=journal)
    assert journal.recorded == 16, "eight scores more, no sample"
    weighted = WeightedVote(generator, 8, verifier=first_word, answer=last_word).solve(
        PROMPT, journal=journal
    )
    single = Sample(generator, answer=last_word).solve(PROMPT, journal=journal)
    assert journal.recorded == 16, "nothing more"

    texts = [[c.sequence.text for c in r.candidates] for r in (majority, best, weighted)]
    assert texts[0] == texts[1] == texts[2]
    assert single.text == texts[0][0]


def test_3_sixty_four_samples_begin_with_the_sixteen() -> None:
    few = MajorityVote(numbers(), 16, answer=last_word).solve(PROMPT)
    many = MajorityVote(numbers(), 64, answer=last_word).solve(PROMPT)
    assert [c.sequence.text for c in few.candidates] == [c.sequence.text for c in many.candidates[:16]]


KILLED = """
import sys, time
from metagen.generators.function import FunctionGenerator
from metagen.generators.models.sources import resolve
from metagen.generators.torch import TorchEngine
from metagen.journal import SQLiteJournal
from metagen.strategies.parallel import MajorityVote
from metagen.tasks.arithmetic.task import ArithmeticTask
from metagen.testing import last_word

def write(prefix, seed, index):
    with open(sys.argv[2], "a") as calls:
        calls.write(f"{index}\\n")
    if len(sys.argv) > 3:
        time.sleep(float(sys.argv[3]))
    return f"sample {index} says {seed % 3}"

generator = FunctionGenerator(write)
with SQLiteJournal(sys.argv[1], seed=0) as journal:
    # Small waves, each of which is durable before the next begins.
    for n in range(1, 13):
        result = MajorityVote(generator, n, answer=last_word).solve("How many?", journal=journal)
print(result.text)
"""


def test_4_resume_after_kill_9(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(KILLED))
    calls, journal = tmp_path / "calls", tmp_path / "journal.sqlite"
    command = [sys.executable, str(script), str(journal), str(calls)]
    first = subprocess.Popen([*command, "0.05"], stdout=subprocess.PIPE)
    while not calls.exists() or calls.read_text().count("\n") < 4:
        assert first.poll() is None, "the program ended before it could be killed"
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    with SQLiteJournal(journal, read_only=True) as opened:
        durable = {row.index for row in opened.of_problem(Prompt.of("How many?").problem_id)}
    assert durable

    calls.unlink()
    second = subprocess.run(command, capture_output=True, text=True, check=True)
    ran = [int(line) for line in calls.read_text().split()]
    assert sorted(ran) == sorted(set(range(12)) - durable), "only what was not recorded is run"

    calls.unlink()
    third = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not calls.exists(), "a second run makes no call at all"
    assert third.stdout == second.stdout


class Shortest(Strategy):
    """Draws one by one and keeps the shortest: what it offers last is what a spent budget returns."""

    def __init__(self, generator: Generator, n: int) -> None:
        self.generator, self.n = generator, n

    @property
    def fingerprint(self) -> str:
        return f"shortest {self.n} {self.generator.fingerprint}"

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        best = prefix
        for i in range(self.n):
            (drawn,) = await self.generator.generate(prefix, scope=scope.child(f"draw/{i}"))
            scope.offer(drawn, value=-float(len(drawn.text)))
            if not best.text or len(drawn.text) < len(best.text):
                best = drawn
        return best


@pytest.fixture(scope="module")
def small() -> Iterator[TorchEngine]:
    with TorchEngine("tiny-0.1m", threads=1) as engine:
        yield engine


QUESTION = Prompt("q", text="Q:a=12+7;b=a*3;c=b-8;c?\nS:\n")


class StepByStep(Strategy):
    """Extends a prefix one step at a time, each step under a place of its own."""

    accepts_until = False

    def __init__(self, generator: Generator, most: int) -> None:
        self.generator, self.most = generator, most

    @property
    def fingerprint(self) -> str:
        return f"step by step {self.most} {self.generator.fingerprint}"

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        for i in range(self.most):
            (prefix,) = await self.generator.generate(
                prefix, until=Step("\n"), scope=scope.child(f"step/{i}")
            )
            scope.offer(prefix, value=float(i))
            if prefix.finish is not None:
                break
        return prefix


def test_5_a_prefix_extended_step_by_step(small: TorchEngine) -> None:
    generator = small.generator(max_tokens=120)
    result = StepByStep(generator, 12).solve(QUESTION)

    sequence = result.sequence
    assert sequence.finish == "eos"
    assert len(sequence.steps) >= 2
    assert all(sequence.text[end - 1] == "\n" for end in sequence.steps)
    # Ids are carried from step to step: nothing is tokenised again, and a prefix is paid for once.
    assert sequence.tokens is not None
    assert small.render(sequence)[-len(sequence.tokens.ids) :] == sequence.tokens.ids
    usages = [row.usage for row in result.trace.rows]
    assert usages[0].prefilled == len(small.render(Sequence.of(QUESTION)))
    assert [u.prefilled for u in usages[1:]] == [1] * (len(usages) - 1), (
        "a step's last token is fed by the next"
    )
    # Greedy decoding in steps is greedy decoding in one go.
    greedy = generator.replace(temperature=0.0)
    whole = Sample(greedy).solve(QUESTION)
    assert StepByStep(greedy, 40).solve(QUESTION).text == whole.text


def test_6_exhaustion_in_the_middle_returns_the_best_so_far() -> None:
    lengths = [9, 7, 8, 3, 1]

    def write(prefix: Sequence, seed: int, index: int) -> str:
        return "x" * lengths[next(count)]

    count = iter(range(5))
    generator = FunctionGenerator(write, count=lambda text: 10, max_tokens=10)
    result = Shortest(generator, 5).solve(PROMPT, budget=Budget(generated=39))
    assert result.text == "x" * 7
    assert result.exhausted
    assert result.usage.generated == 30


def test_7_two_tokenizers_in_one_pipeline() -> None:
    """A generator over byte pairs, judged by a reward model over characters: they share text only."""
    task = ArithmeticTask()
    with TorchEngine("tiny-bpe", threads=1) as model, TorchEngine("tiny-prm", threads=1) as judge:
        assert model.tokenizer_fingerprint != judge.tokenizer_fingerprint
        verifier = ProcessRewardModel(judge)
        generator = model.generator(max_tokens=120)
        result = WeightedVote(generator, 4, verifier=verifier, answer=task.answer).solve(QUESTION)

        sampled, scored = ([r for r in result.trace.rows if r.kind == kind] for kind in ("generate", "score"))
        assert len(sampled) == 4
        assert scored
        first = sampled[0].payload
        assert first is not None
        assert len(first["ids"]) < len(first["text"]), "tokens of the generator span characters"
        steps = scored[0].payload
        assert steps is not None
        assert len(steps["steps"]) == len(verifier.split(first["text"]))
        # Each model pays for the prompt in its own tokens.
        assert sampled[0].usage.prefilled == len(model.render(Sequence.of(QUESTION)))
        assert scored[0].usage.prefilled == scored[0].usage.tokens
        assert scored[0].usage.prefilled > len(judge.render(Sequence.of(QUESTION)))


TEMPLATE = "{% for m in messages %}{{ m.content }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}"


def test_8_a_chat_prompt_with_a_partial_assistant_turn(tmp_path: Path) -> None:
    """The engine's own template renders the turns; the last one is continued, not answered."""
    folder = tmp_path / "chat"
    shutil.copytree(resolve("tiny-0.1m"), folder)
    (folder / "chat_template.jinja").write_text("<s>" + TEMPLATE)
    begun = "S:\na=12+7=19\n"
    with TorchEngine(folder, threads=1) as engine:
        greedy = Sample(engine.generator(temperature=0.0, max_tokens=120))
        chat = [Message("user", "Q:a=12+7;b=a*3;c=b-8;c?"), Message("assistant", begun)]
        as_chat = greedy.solve(chat)
        as_text = greedy.solve(f"Q:a=12+7;b=a*3;c=b-8;c?\n{begun}")
    assert as_chat.text == as_text.text
    assert as_chat.text.startswith("b=")
    assert as_chat.usage.prefilled == as_text.usage.prefilled


def test_9_an_engine_without_token_ids() -> None:
    """Nothing but text comes back: no ids, no counts, no log-probabilities. Unknown stays unknown."""
    generator = FunctionGenerator(lambda prefix, seed, index: f" and {index} more")

    async def two_steps(scope: Scope) -> Sequence:
        (first,) = await generator.generate(Sequence.of(PROMPT), scope=scope.child("step/0"))
        opened = Sequence.of(PROMPT).extend(first.text)
        (second,) = await generator.generate(opened, scope=scope.child("step/1"))
        return second

    sequence, rows = run(two_steps)
    assert sequence.text == " and 0 more and 0 more"
    assert sequence.tokens is None
    assert sequence.logprob is None
    assert all(row.usage.generated is None and row.usage.prefilled is None for row in rows)


class UntilTwice(Strategy):
    """Adaptive sampling: goes on, a few at a time, until an answer has come twice in a row of draws."""

    def __init__(self, generator: Generator, most: int) -> None:
        self.generator, self.most = generator, most
        self.answer = last_word

    @property
    def fingerprint(self) -> str:
        return f"until twice {self.most} {self.generator.fingerprint}"

    async def run(self, prefix: Sequence, until: Until, scope: Scope) -> Sequence:
        sampling = scope.child("sample")
        seen: dict[str | None, Sequence] = {}
        for start in range(0, self.most, 2):
            drawn = await self.generator.generate(prefix, n=2, start=start, scope=sampling)
            for sequence, answer in zip(drawn, await last_word.read(drawn), strict=True):
                if answer.key in seen:
                    return sequence
                seen[answer.key] = sequence
        return next(iter(seen.values()))


def test_10_adaptive_sampling_with_start() -> None:
    journal = CountingJournal()
    generator = numbers()
    result = UntilTwice(generator, 20).solve(PROMPT, journal=journal)
    drawn = journal.recorded
    assert drawn in (2, 4, 6), "four different answers at most"
    pool = MajorityVote(generator, 20, answer=last_word).solve(PROMPT, journal=journal)
    assert journal.recorded == 20, "the adaptive draws are the first of the pool"
    assert result.text in [c.sequence.text for c in pool.candidates[:drawn]]
