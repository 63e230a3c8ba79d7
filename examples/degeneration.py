"""Text that degenerates: what maximisation and sampling write, by models that count on the pages of docs/.

    python examples/degeneration.py [FOLDER [BEGINNINGS]]

The model is a product of k-gram models over characters, trained on the prose of this documentation; every fifth
paragraph is kept out, and is what a person wrote. Tables are printed, and figures go to FOLDER (runs/degeneration by
default): how surprising each token is that a way of decoding writes, diversity against surprise over temperatures and
truncations, accuracy against diversity of the largest embedded generator, and the most probable sequences of two models
that can be enumerated. A few minutes on two cores.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from figures.degeneration import Written, distinct, quality_lines, repetition
from figures.surprise import mode_bars, surprise_lines
from matplotlib.figure import Figure

import metagen as mg
from metagen.analysis.figures import style
from metagen.generators.decoding.search import BeamSearch
from metagen.generators.likelihood import likelihoods
from metagen.generators.models.recipes import Ensemble
from metagen.generators.torch.models.kgram import train

DOCS = Path(__file__).parents[1] / "docs"
#: Whose tokens are characters.
TOKENIZER = "tiny-0.1m"
#: Lengths of the k-grams, and the exponent of each in the product: so chosen that samples at temperature 1 surprise the
#: model about as much as paragraphs that are kept out.
PRODUCT = {1: 0.1, 2: 0.2, 3: 0.25, 4: 0.25, 5: 0.2, 6: 0.2}
#: Characters that a text is begun with, and tokens that are written behind them.
BEGUN, LENGTH = 40, 240
#: Beginnings, and samples of each.
TEXTS = 40


def paragraphs(page: str) -> Iterator[str]:
    """The prose of a page in Markdown, in characters that the model knows."""
    page = re.sub(r"```.*?```|<!--.*?-->|!\[[^\]]*\]\([^)]*\)", "", page, flags=re.DOTALL)
    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)
    for block in re.split(r"\n\s*\n", page):
        text = " ".join(re.sub(r"[`*]", "", block).split())
        if len(text) > 2 * BEGUN and text[0] not in "#|->{:" and "|" not in text and text.isascii():
            yield text


def corpus() -> tuple[list[str], list[str]]:
    """Paragraphs to count, and those that are kept out."""
    # Pages about decoding are left out: they are written by this script's results.
    pages = [page for page in sorted(DOCS.rglob("*.md")) if page.parent.name != "decoding"]
    texts = [text for page in pages for text in paragraphs(page.read_text("utf-8"))]
    held = texts[::5]
    return [text for text in texts if text not in held], held


def model(folder: Path, texts: Sequence[str]) -> Ensemble:
    """The product ∏_k p_k^w_k, normalised."""
    parts = [train(texts, folder / f"{k}-gram", tokenizer=TOKENIZER, k=k, constant=0.01) for k in PRODUCT]
    return Ensemble(tuple(parts), how="product", weights=tuple(PRODUCT.values()))


@dataclass(frozen=True)
class Way:
    """A way of decoding, one of its settings, and the texts that it wrote."""

    name: str
    setting: str
    texts: list[mg.Sequence]
    surprises: list[tuple[float, ...]]

    @property
    def words(self) -> list[list[str]]:
        """Of each text, without the last, which is cut."""
        return [sequence.text.split()[:-1] for sequence in self.texts]

    @property
    def surprise(self) -> float:
        """Bits a token."""
        return float(np.mean([bits for each in self.surprises for bits in each]))

    @property
    def repeats(self) -> float:
        """seq-rep-4 of words, the mean over texts."""
        return float(np.mean([repetition(words) for words in self.words]))

    @property
    def stuck(self) -> float:
        """The share of texts of which more than half of the 4-grams have occurred before."""
        return float(np.mean([repetition(words) > 0.5 for words in self.words]))

    @property
    def distinct(self) -> float:
        """distinct-2 of words."""
        return distinct(self.words, 2)

    def written(self, y: float) -> Written:
        return Written(self.setting, self.surprise, y)


SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "greedy": {"": {"temperature": 0.0}},
    "beam search": {f"{width}": {"search": BeamSearch(width=width)} for width in (4, 16)},
    "temperature": {f"{t:g}": {"temperature": t} for t in (0.3, 0.5, 0.7, 0.85, 1.0, 1.2)},
    "top-k": {f"{k}": {"top_k": k} for k in (2, 4, 8, 16)},
    "top-p": {f"{p:g}": {"top_p": p} for p in (0.5, 0.7, 0.9, 0.95)},
    "typical": {f"{p:g}": {"typical_p": p} for p in (0.5, 0.7, 0.9, 0.95)},
    "min-p": {f"{p:g}": {"min_p": p} for p in (0.3, 0.1, 0.03, 0.01)},
}


def decoded(engine: mg.TorchEngine, begun: Sequence[mg.Sequence]) -> dict[str, list[Way]]:
    """One text behind each beginning, of every way: all at once, since a step of many texts costs little more."""
    # Behind an end the model has counted nothing.
    ends = tuple((i,) for i in engine.ends)
    every = [(name, setting) for name, settings in SETTINGS.items() for setting in settings]

    async def write(name: str, setting: str) -> list[mg.Sequence]:
        generator = engine.generator(max_tokens=LENGTH, banned=ends, **SETTINGS[name][setting])
        scopes = [mg.Scope.root(f"text {i}") for i in range(len(begun))]
        made = (generator.generate(one, scope=scope) for one, scope in zip(begun, scopes, strict=True))
        return [texts[0] for texts in await asyncio.gather(*made)]

    async def write_all() -> list[list[mg.Sequence]]:
        return await asyncio.gather(*(write(*one) for one in every))

    ways: dict[str, list[Way]] = {}
    for (name, setting), texts in zip(every, asyncio.run(write_all()), strict=True):
        surprises = [one.surprises for one in likelihoods(engine, texts, entropies=False)]
        ways.setdefault(name, []).append(Way(name, setting, texts, surprises))
    return ways


def table(ways: Sequence[Way]) -> str:
    """The measures, as Markdown."""
    lines = [
        "| | bits a token | repeated 4-grams | texts that are stuck | distinct 2-grams |",
        "|---|---|---|---|---|",
    ]
    for way in ways:
        name = f"{way.name} {way.setting}".strip()
        shares = f"{100 * way.repeats:.0f}% | {100 * way.stuck:.0f}% | {100 * way.distinct:.0f}%"
        lines.append(f"| {name} | {way.surprise:.2f} | {shares} |")
    return "\n".join(lines)


def solutions(per_level: int) -> tuple[str, dict[str, dict[str, list[Written]]]]:
    """Accuracy and diversity of the largest embedded generator: a table, and points of a figure."""
    task = mg.ArithmeticTask("validation", levels=[3, 4, 5], per_level=per_level, seed=3)
    problems, n = list(task.problems()), 8
    points: dict[str, list[Written]] = {}
    lines = ["| | one sample is right | one of 8 is right | different answers of 8 |", "|---|---|---|---|"]
    ways = {"temperature": (0.3, 0.7, 1.0, 1.3, 1.6), "top-p at temperature 1.3": (0.5, 0.7, 0.9, 0.95)}
    with mg.TorchEngine("tiny-2m", threads=1) as engine:
        for name, values in ways.items():
            for value in values:
                params = (
                    {"temperature": value} if name == "temperature" else {"temperature": 1.3, "top_p": value}
                )
                share, some, different = asyncio.run(
                    graded(engine.generator(max_tokens=200, **params), task, problems, n)
                )
                points.setdefault(name, []).append(Written(f"{value:g}", different, share))
                cells = f"{100 * share:.0f}% | {100 * some:.0f}% | {different:.2f}"
                lines.append(f"| {name.replace(' at temperature 1.3', '')} {value:g} | {cells} |")
    return "\n".join(lines), {"one sample is right": points}


async def graded(
    generator: Any, task: mg.ArithmeticTask, problems: Sequence[Any], n: int
) -> tuple[float, float, float]:
    """The share of samples that are right, of problems with one that is, and the mean number of different answers."""

    async def one(problem: Any) -> tuple[float, float, float]:
        scope = mg.Scope.root(problem.id).child("sample")
        samples = await generator.generate(mg.Sequence.of(problem.prompt), n=n, scope=scope)
        right = await task.grade(problem, samples)
        keys = {answer.key for answer in await task.answer.read(samples) if answer.key is not None}
        return sum(map(bool, right)) / n, float(any(right)), float(len(keys))

    found = np.array(await asyncio.gather(*map(one, problems)))
    share, some, different = found.mean(0).tolist()
    return share, some, different


def modes() -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Kinds of sequences with their exact probabilities, and the kind of the most probable one, for two models."""
    flips, heads = 12, 0.7
    coin = mg.EnumerableEngine(
        ("h", "t", "$"),
        lambda prompt, done: (0.0, 0.0, 1.0) if len(done) == flips else (heads, 1 - heads, 0.0),
        name="coin",
    )
    letters, end, most = "abc", 0.1, 9
    words = mg.EnumerableEngine(
        (*letters, "$"), lambda prompt, done: (*[(1 - end) / len(letters)] * len(letters), end), name="words"
    )
    panels: dict[str, dict[str, float]] = {}
    mode: dict[str, str] = {}
    cases = (
        (
            f"{flips} flips, {100 * heads:g}% heads: number of heads",
            coin,
            flips + 1,
            "h",
            [str(k) for k in range(flips + 1)],
        ),
        (
            f"{len(letters)} letters, {100 * end:g}% end: length",
            words,
            most,
            letters,
            [*map(str, range(most)), f"{most}+"],
        ),
    )
    for title, engine, tokens, counted, kinds in cases:
        exact = engine.sequences(max_tokens=tokens)
        panels[title] = dict.fromkeys(kinds, 0.0)
        for sequence, p in exact.items():
            panels[title][kinds[sum(token in counted for token in sequence)]] += p
        ended = {sequence: p for sequence, p in exact.items() if sequence[-1] == "$"}
        best = max(ended, key=ended.__getitem__)
        mode[title] = kinds[sum(token in counted for token in best)]
        print(f"{title}: the most probable is {''.join(best)!r}, with {ended[best]:.4f}")
    return panels, mode


def save(figure: Figure, stem: Path) -> None:
    with style():
        figure.savefig(stem.with_suffix(".png"), dpi=130, metadata={"Software": None})


def main(folder: Path, count: int = TEXTS) -> None:
    panels, mode = modes()
    save(
        mode_bars(panels, mode, title="The most probable sequence is not typical"),
        folder / "degeneration_modes",
    )
    texts(folder, count)
    accuracies, points = solutions(count // 2)
    print(accuracies)
    figure = quality_lines(points, x="different answers among 8 samples", title="Accuracy against diversity")
    save(figure, folder / "degeneration_accuracy")


def texts(folder: Path, count: int) -> None:
    train_on, held = corpus()
    begun = [mg.Sequence.of(text[:BEGUN]) for text in held if len(text) > BEGUN + LENGTH][:count]
    rest = {text[:BEGUN]: text[BEGUN : BEGUN + LENGTH] for text in held}
    print(f"{len(train_on)} paragraphs, {sum(map(len, train_on)):,} characters; {len(begun)} beginnings")
    with TemporaryDirectory() as models, mg.TorchEngine(model(Path(models), train_on), threads=1) as engine:
        people = [one.extend(rest[one.prompt.text or ""]) for one in begun]
        person = Way(
            "a person", "", people, [one.surprises for one in likelihoods(engine, people, entropies=False)]
        )
        ways = decoded(engine, begun)
    every = [person, *(way for some in ways.values() for way in some)]
    print(table(every))
    for way in (ways["greedy"][0], ways["beam search"][-1], ways["temperature"][4], ways["top-p"][2]):
        print(f"\n{way.name} {way.setting}: {way.texts[0].prompt.text}[{way.texts[0].text}]")
    chosen = [person, ways["greedy"][0], ways["beam search"][-1], ways["top-p"][2], ways["temperature"][4]]
    lines = {f"{way.name} {way.setting}".strip(): way.surprises[0] for way in chosen}
    save(
        surprise_lines(lines, title="How surprising each token is to the model"),
        folder / "degeneration_surprise",
    )
    panels = {
        "distinct 2-grams": {name: [w.written(w.distinct) for w in some] for name, some in ways.items()},
    }
    star = person.written(person.distinct)
    figure = quality_lines(
        panels, reference=Written("a person", star.surprise, star.y), title="Diversity against surprise"
    )
    save(figure, folder / "degeneration")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/degeneration")
    folder.mkdir(parents=True, exist_ok=True)
    main(folder, *map(int, sys.argv[2:3]))
