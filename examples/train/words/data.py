"""Word problems with solutions of one step a line, from the training sets of GSM8K and MAWPS.

    python examples/train/words/data.py --gsm8k train.jsonl --mawps train.csv dev.csv --into data/

GSM8K (Cobbe et al. 2021, MIT): `grade_school_math/data/train.jsonl` of github.com/openai/grade-school-math, as it is
but for the calculator's marks. MAWPS (Koncel-Kedziorski et al. 2016): `data/cv_mawps/fold0/*.csv` of
github.com/arkilpatel/SVAMP (MIT), where numbers stand apart from texts, so that a problem is asked again with others.
Test problems (SVAMP, GSM8K's test set) are neither read nor needed here.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

#: Problems of each data set that are kept for validation: one in so many.
HELD_OUT = 20
#: How often a problem of MAWPS is asked with other numbers.
VARIANTS = 2
OPERATORS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    question: str
    steps: tuple[str, ...]
    answer: str
    source: str
    held_out: bool

    @property
    def solution(self) -> str:
        """Steps and answer, a line each, as the solver is to write them."""
        return "\n".join([*self.steps, f"The answer is {self.answer}."])


def is_held_out(question: str) -> bool:
    """By the text alone, so that no seed and no order changes it."""
    return int.from_bytes(hashlib.sha256(question.encode()).digest()[:4]) % HELD_OUT == 0


def gsm8k(path: Path) -> Iterator[Example]:
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        solution, answer = record["answer"].rsplit("####", 1)
        steps = [re.sub(r"<<.*?>>", "", step).strip() for step in solution.splitlines()]
        question = record["question"].strip()
        yield Example(question, tuple(filter(None, steps)), answer.strip(), "gsm8k", is_held_out(question))


def mawps(paths: Sequence[Path], seed: int = 0) -> Iterator[Example]:
    """Each problem as it is, and `VARIANTS` times with other numbers; those of which the equation is beyond doubt."""
    rows = {row["Question"]: row for path in paths for row in csv.DictReader(path.open(encoding="utf-8"))}
    rng = np.random.default_rng(seed)
    for template, row in rows.items():
        numbers = [Fraction(n) for n in row["Numbers"].split()]
        equation, held_out = row["Equation"].split(), is_held_out(template)
        published = work_out(equation, numbers)
        if published is None or published[1] != Fraction(row["Answer"]) or not all(map(decimal, numbers)):
            continue  # the equation is not that of the answer, or steps would be rounded
        if len(set(numbers)) < len(numbers):  # which of two equal numbers is meant, nobody knows
            continue
        drawn = [numbers, *(varied(numbers, rng) for _ in range(0 if held_out else VARIANTS))]
        for which, values in enumerate(drawn):
            worked = work_out(equation, values)
            if worked is None or (which and not plausible(worked[1], values)):
                continue
            steps, answer = worked
            yield Example(as_text(template, values), tuple(steps), show(answer), "mawps", held_out)


def varied(numbers: Sequence[Fraction], rng: np.random.Generator) -> list[Fraction]:
    """Whole numbers of about the same size; what is no whole number stays."""
    return [
        Fraction(int(rng.integers(2, max(10, 2 * int(n))))) if n.denominator == 1 and n > 1 else n
        for n in numbers
    ]


def plausible(answer: Fraction, numbers: Sequence[Fraction]) -> bool:
    return answer > 0 and (answer.denominator == 1 or any(n.denominator > 1 for n in numbers))


def work_out(equation: Sequence[str], numbers: Sequence[Fraction]) -> tuple[list[str], Fraction] | None:
    """The lines of an equation in prefix notation, and its value; None if that is no decimal of two places."""
    steps: list[str] = []
    stack: list[Fraction] = []
    for token in reversed(equation):
        if token in OPERATORS:
            left, right = stack.pop(), stack.pop()
            if token == "/" and right == 0:
                return None
            value = OPERATORS[token](left, right)
            if not decimal(value):
                return None
            steps.append(f"{show(left)} {token} {show(right)} = {show(value)}")
            stack.append(value)
        elif token.startswith("number"):
            stack.append(numbers[int(token.removeprefix("number"))])
        else:
            stack.append(Fraction(token))
    return steps, stack.pop()


def decimal(value: Fraction) -> bool:
    """Whether it is written with at most two places."""
    return (100 * value).denominator == 1


def show(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.2f}".rstrip("0")


def as_text(template: str, numbers: Sequence[Fraction]) -> str:
    """With the numbers in, and without the spaces of a tokenizer."""
    text = re.sub(r"number(\d+)", lambda found: show(numbers[int(found[1])]), template)
    text = re.sub(r" ([.,?!;:%])", r"\1", text)
    return re.sub(r" ('s|'t|'re|'ll|'ve|'m|'d)\b", r"\1", text).replace("$ ", "$").strip()


def read(path: Path) -> list[Example]:
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Example(**record | {"steps": tuple(record["steps"])}) for record in records]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gsm8k", type=Path, required=True)
    parser.add_argument("--mawps", type=Path, nargs="+", required=True)
    parser.add_argument("--into", type=Path, required=True)
    args = parser.parse_args()
    args.into.mkdir(parents=True, exist_ok=True)
    examples = [*gsm8k(args.gsm8k), *mawps(args.mawps)]
    for name, held_out in (("train", False), ("validation", True)):
        chosen = [e for e in examples if e.held_out == held_out]
        (args.into / f"{name}.jsonl").write_text(
            "".join(json.dumps(asdict(e)) + "\n" for e in chosen), encoding="utf-8"
        )
        print(name, {source: sum(e.source == source for e in chosen) for source in ("gsm8k", "mawps")})


if __name__ == "__main__":
    main()
