"""Our judgement beside math-verify's, pair by pair; what differs is listed with its reason in `disagreements.py`."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from metagen.sequence import Prompt, Sequence
from metagen.verifiers.math import MathRule
from metagen.verifiers.math.keys import Percent

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "answers"


class Pair(NamedTuple):
    gold: str
    pred: str
    #: What the source says, where it says something.
    equal: bool | None = None


def rows(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


def respelled(answer: str) -> str:
    """The same answer as another writer would put it."""
    if re.fullmatch(r"-?\d+", answer):
        return f"{answer}.0"
    for old, new in (
        ("\\dfrac", "\\frac"), ("\\frac", "\\dfrac"), ("\\text", "\\mbox"), ("\\sqrt", "\\, \\sqrt"), ("(", "\\left("),
        ("^\\circ", "^{\\circ}"), ("+", " + "), ("-", "- "),
    ):  # fmt: skip
        if old in answer:
            return answer.replace(old, new).replace(")", "\\right)" if "\\left(" in new else ")")
    return f" {answer} "


def ordinary() -> Iterator[Pair]:
    for row in rows("tails.jsonl"):
        yield Pair(f"${row['gold']}$", row["tail"])
    math = rows("math.jsonl")
    for i, row in enumerate(math):
        gold = f"${row['answer']}$"
        yield Pair(gold, row["ending"], True)
        yield Pair(gold, f"The answer is ${respelled(row['answer'])}$.", True)
        yield Pair(gold, f"The answer is ${math[i - 7]['answer']}$.")


def corner() -> Iterator[Pair]:
    for row in rows("cases.jsonl"):
        yield Pair(row["gold"], row["pred"], bool(row["equal"]))


def ours(pairs: list[Pair], percent: Percent = "hundredths") -> list[bool]:
    sequences = [Sequence(Prompt("p", "?"), text, finish="eos") for pair in pairs for text in pair[:2]]
    answers = asyncio.run(MathRule(percent=percent).read(sequences))
    keys = [answer.key for answer in answers]
    return [a is not None and a == b for a, b in zip(keys[::2], keys[1::2], strict=True)]


def theirs(pairs: list[Pair]) -> list[bool]:
    from math_verify import parse, verify

    logging.getLogger("math_verify").setLevel(logging.CRITICAL)
    # Its own time limits would make its judgement depend on how busy the machine is.
    parsed = cache(lambda text: parse(text, parsing_timeout=300))
    return [bool(verify(parsed(gold), parsed(pred), timeout_seconds=300)) for gold, pred, _ in pairs]


def listed() -> dict[tuple[str, str], str]:
    path = Path(__file__).with_name("disagreements.py")
    spec = importlib.util.spec_from_file_location("disagreements", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: dict[tuple[str, str], str] = {
        pair: reason for reason, pairs in module.DISAGREEMENTS.items() for pair in pairs
    }
    return found


def short(pair: Pair) -> tuple[str, str]:
    """What names a pair in the list: the ends of its texts."""
    return " ".join(pair.gold.split())[-60:], " ".join(pair.pred.split())[-60:]


@cache
def disagreements(source: Callable[[], Iterator[Pair]]) -> list[tuple[str, str]]:
    pairs = list(source())
    return [short(p) for p, a, b in zip(pairs, ours(pairs), theirs(pairs), strict=True) if a != b]


@pytest.mark.parametrize(("source", "least"), [(ordinary, 0.99), (corner, 0.90)])
def test_agreement(source: Callable[[], Iterator[Pair]], least: float) -> None:
    different = disagreements(source)
    assert 1 - len(different) / len(list(source())) >= least
    assert set(different) <= set(listed()), "disagreements that are not listed"


def test_every_disagreement_listed_is_one() -> None:
    assert set(listed()) == {*disagreements(ordinary), *disagreements(corner)}


def test_we_are_right_on_ordinary_pairs() -> None:
    pairs = [pair for pair in ordinary() if pair.equal]
    assert len(pairs) == 1000
    # The references of MATH leave the percent sign out.
    assert sum(ours(pairs, "dropped")) == len(pairs)


def test_the_documentation_says_so() -> None:
    page = " ".join((ROOT / "docs" / "explanation" / "answers.md").read_text("utf-8").split())
    assert all(reason in page for reason in listed().values())
    for source in (ordinary, corner):
        total = len(list(source()))
        assert f"agree on {total - len(disagreements(source)):,} of {total:,}" in page
