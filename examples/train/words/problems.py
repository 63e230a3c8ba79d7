"""Problems on which a judge learns which numbers a question needs, and for which operation.

    python examples/train/words/problems.py --mawps train.csv dev.csv --into problems.jsonl

Half are those of MAWPS, asked with other numbers; every third of these has a sentence with a number that the question
does not need, from another problem. Half are the stories of `stories.txt`, told with names, things and numbers drawn
at random. A problem that is held out shares no template with one that is learned from: by the hash of `data.py`.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from data import as_text, decimal, is_held_out, plausible, show, varied, work_out

STORIES = Path(__file__).parent / "stories.txt"
#: Draws of numbers after which a template is given up.
TRIES = 300
#: One problem of MAWPS in so many gets a sentence that it does not need.
DISTRACTED = 3
#: The greatest number of a story, and how often.
LARGEST = {10: 0.25, 20: 0.25, 50: 0.25, 100: 0.15, 500: 0.1}
PEOPLE = (
    ("Ann", "Beth", "Clara", "Dora", "Ella", "Grace", "Hannah", "Ines", "Lucy", "Nora", "Rosa", "Vera"),
    ("Adam", "Ben", "Carl", "David", "Erik", "Hugo", "Leo", "Max", "Omar", "Paul", "Simon", "Viktor"),
)
PRONOUNS = (
    {"he": "she", "He": "She", "him": "her", "himself": "herself"},
    {"he": "he", "He": "He", "him": "him", "himself": "himself"},
)
THINGS = (
    ("apples", "pears", "plums", "oranges", "lemons", "peaches"),
    ("pencils", "pens", "crayons", "brushes", "erasers", "rulers"),
    ("red marbles", "blue marbles", "green marbles", "white marbles"),
    ("stickers", "stamps", "postcards", "coins", "badges"),
    ("roses", "tulips", "daisies", "lilies"),
    ("cookies", "muffins", "candies", "chocolates", "cakes"),
    ("toy cars", "dolls", "puzzles", "balloons", "kites"),
    ("books", "magazines", "comics", "notebooks"),
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """numbers: as they stand in the question. equation: in prefix notation, over number0, number1, ... of these."""

    question: str
    answer: str
    numbers: tuple[str, ...]
    equation: str
    source: str
    held_out: bool


@dataclass(frozen=True)
class Template:
    """A question with numbers left open. given: the published numbers; none for a story, which has no others."""

    text: str
    equation: str
    source: str
    held_out: bool
    given: tuple[Fraction, ...] = ()


def mawps(paths: Sequence[Path]) -> list[Template]:
    """Templates whose equation is that of the published answer, and whose numbers can be told apart."""
    found = []
    for row in (row for path in paths for row in csv.DictReader(path.open(encoding="utf-8"))):
        numbers = tuple(Fraction(n) for n in row["Numbers"].split())
        worked = work_out(row["Equation"].split(), numbers)
        if worked and worked[1] == Fraction(row["Answer"]) and all(map(decimal, numbers)):
            held_out = is_held_out(row["Question"])
            found.append(Template(row["Question"], row["Equation"], "mawps", held_out, numbers))
    return found


def stories(path: Path) -> list[Template]:
    """One template for each question of each story."""
    told = path.read_text(encoding="utf-8")
    found = []
    for story in re.split(r"\n\n+", re.sub(r"(?m)^#.*\n", "", told).strip()):
        body, *questions = story.splitlines()
        for line in questions:
            question, equation = line.strip().split(" | ")
            text = f"{body} {question}"
            used = "abcd"[: len(set(re.findall(r"\{([abcd])\}", text)))]
            named = " ".join(f"number{used.index(t)}" if t in "abcd" else t for t in equation.split())
            text = re.sub(r"\{([abcd])\}", lambda slot: f"number{'abcd'.index(slot[1])}", text)
            found.append(Template(text, named, "story", is_held_out(body)))
    return found


def sentences(templates: Sequence[Template]) -> list[tuple[str, Fraction]]:
    """Statements with one number, which can stand in front of another problem."""
    found = []
    for template in templates:
        for sentence in re.findall(r"[^.?!]+ \.", template.text):
            slots = re.findall(r"number(\d+)", sentence)
            if len(slots) == 1:
                number = template.given[int(slots[0])]
                found.append((re.sub(r"number\d+", "{}", sentence).strip(), number))
    return found


def draw(
    template: Template, others: Sequence[tuple[str, Fraction]], rng: np.random.Generator
) -> Problem | None:
    """The template with its slots filled; None if no numbers were found for which its answer is plausible."""
    text, given = template.text, template.given
    if given and rng.integers(DISTRACTED) == 0:
        sentence, number = others[rng.integers(len(others))]
        given = (*given, number)
        own = re.findall(r"[^.?!]+[.?!]", text)
        own.insert(int(rng.integers(len(own))), sentence.format(f"number{len(given) - 1}"))
        text = " ".join(map(str.strip, own))
    text = cast(text, rng)
    slots = len(given) or len(set(re.findall(r"number\d+", text)))
    for _ in range(TRIES):
        numbers = varied(given, rng) if given else whole(slots, rng)
        worked = work_out(template.equation.split(), numbers) if len(set(numbers)) == slots else None
        if worked and plausible(worked[1], numbers) and not any(" = -" in step for step in worked[0]):
            shown = tuple(map(show, numbers))
            return Problem(
                as_text(text, numbers), show(worked[1]), shown, template.equation, template.source, template.held_out
            )  # fmt: skip
    return None


def whole(count: int, rng: np.random.Generator) -> list[Fraction]:
    largest = rng.choice(list(LARGEST), p=list(LARGEST.values()))
    return [Fraction(int(n)) for n in rng.integers(2, largest + 1, size=count)]


def cast(text: str, rng: np.random.Generator) -> str:
    """A story with names and things."""
    kind = int(rng.integers(2))
    first, second = rng.permutation(PEOPLE[kind])[:2]
    things = THINGS[rng.integers(len(THINGS))]
    x, y = rng.permutation(things)[:2]
    slots = PRONOUNS[kind] | {"N": first, "M": second, "x": x, "y": y}
    return re.sub(r"\{(\w+)\}", lambda slot: str(slots[slot[1]]), text)


def draw_all(templates: Sequence[Template], count: int, rng: np.random.Generator) -> Iterator[Problem]:
    """`count` problems, each template as often as any other; none where no template can be drawn."""
    others = sentences(templates)
    made, before = 0, -1
    while before < made < count:
        before = made
        for i in rng.permutation(len(templates)):
            problem = draw(templates[i], others, rng)
            if problem is not None and made < count:
                made += 1
                yield problem


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mawps", type=Path, nargs="+", required=True)
    parser.add_argument("--into", type=Path, required=True)
    parser.add_argument(
        "--count", type=int, default=680, help="problems to learn from, of each of the two kinds"
    )
    parser.add_argument("--validation", type=int, default=100, help="those that are held out, of each kind")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    problems = [
        problem
        for held_out, count in ((False, args.count), (True, args.validation))
        for templates in (mawps(args.mawps), stories(STORIES))
        for problem in draw_all([t for t in templates if t.held_out == held_out], count, rng)
    ]
    order = rng.permutation(len(problems))
    text = "".join(json.dumps(asdict(problems[i])) + "\n" for i in order)
    args.into.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
