"""Results and runs in notebooks: rich, and safe against what models write."""

from __future__ import annotations

import asyncio
from html.parser import HTMLParser
from pathlib import Path

import pytest

import metagen as mg
from metagen import html
from metagen.runs.curves.measured import derive
from metagen.runs.declare import schema
from metagen.runs.directory import RunDirectory
from metagen.runs.work import build, runner

TOY = Path(__file__).parents[1] / "runs" / "toy"
HOSTILE = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>&amp;\ud800\u202e\x00</pre></div>"
TAGS = {"div", "b", "pre", "table", "thead", "tbody", "tr", "th", "td", "span", "details", "summary"} | {
    *("ul", "li", "br")
}


class Page(HTMLParser):
    """Fails on tags that do not match, on those that are not ours, and on attributes that could do something."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        source.encode("utf-8")
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        assert {name for name, _ in attrs} <= {"style", "aria-hidden", "scope"}
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def numbers(text: str = "A:{}\n", delay: float = 0.0) -> mg.Generator:
    async def write(prefix: mg.Sequence, seed: int, index: int) -> str:
        await asyncio.sleep(delay)
        return text.replace("{}", "1" if index < 3 else "2")

    return mg.FunctionGenerator(write, name="numbers", count=len, max_tokens=1000)


last = mg.FunctionRule(lambda text: text.partition("A:")[2] or None)
third = mg.FunctionVerifier(lambda sequence: 1.0 if "2" in sequence.text else 0.25, name="third")


async def grade(sequence: mg.Sequence) -> float:
    return 1.0


def test_a_vote_is_shown_with_its_counts() -> None:
    result = mg.MajorityVote(numbers(), n=4, answer=mg.NumberRule()).solve("Choose.")
    words = Page(result._repr_html_()).text.split("\n")
    at = words.index("samples")
    assert words[at + 1 : at + 5] == ["1", "3", html.EIGHTHS[-1] * html.WIDTH, " ✓"]
    assert words[at + 5 : at + 7] == ["2", "1"]
    assert {"generated", "4 spans"} <= set(words)
    assert any("4 × generate" in word for word in words)


def test_scores_are_shown_with_their_sums() -> None:
    result = mg.WeightedVote(numbers(), n=4, verifier=third, answer=mg.NumberRule()).solve("Choose.")
    assert result.answer is not None
    assert result.answer.key == "2"
    words = Page(result._repr_html_()).text.split("\n")
    at = words.index("Σ score")
    assert words[at + 1 : at + 5] == ["2", "1", "1.00", "1.00"]
    assert words[at + 7 : at + 11] == ["1", "3", "0.25", "0.75"]


def test_what_ended_early_and_what_an_oracle_chose_is_told() -> None:
    short = mg.MajorityVote(numbers(), n=4, answer=mg.NumberRule()).solve("Choose.", budget=5)
    assert "a best effort" in Page(short._repr_html_()).text
    oracle = mg.BestOfN(numbers(), n=2, verifier=mg.OracleVerifier(grade)).solve("Choose.")
    assert "chosen by an oracle" in Page(oracle._repr_html_()).text
    assert "exhausted" in repr(short)
    assert "oracle" in repr(oracle)


def test_nothing_offered_is_shown_too() -> None:
    none = mg.MajorityVote(numbers(), n=4, answer=mg.NumberRule()).solve("Choose.", budget=mg.Budget(calls=0))
    assert "a best effort" in Page(none._repr_html_()).text


@pytest.mark.parametrize("answer", [last, None], ids=["as answers", "as texts"])
def test_hostile_text_stays_text(answer: mg.AnswerRule | None) -> None:
    strategy = mg.BestOfN(numbers(f"{HOSTILE} A:{HOSTILE}"), n=2, verifier=third, answer=answer)
    page = Page(strategy.solve(mg.Prompt(HOSTILE, text="Write."))._repr_html_())
    assert "<script>" in page.text
    assert r"\ud800" in page.text


def test_equal_runs_look_equal() -> None:
    """Seconds are left out, so that notebooks can be kept and compared."""
    pages = [
        mg.MajorityVote(numbers(delay=delay), n=2, answer=mg.NumberRule()).solve("Choose.")._repr_html_()
        for delay in (0.0, 0.02)
    ]
    assert pages[0] == pages[1]


def test_plain_repr_is_short() -> None:
    result = mg.MajorityVote(numbers("word " * 150 + "\nA:1\n"), n=16, answer=mg.NumberRule()).solve(
        "Choose."
    )
    assert len(repr(result)) < 120
    assert "answer='1'" in repr(result)


@pytest.mark.parametrize(
    ("share", "drawn"), [(0, ""), (1, "█" * 16), (0.5, "█" * 8), (2, "█" * 16), (-1, "")]
)
def test_bars(share: float, drawn: str) -> None:
    assert Page(html.bar(share)).text.strip() == drawn


@pytest.mark.parametrize(
    ("value", "words"), [(None, "?"), (0, "0"), (999, "999"), (12_500, "12.5k"), (3e9, "3G")]
)
def test_amounts(value: float | None, words: str) -> None:
    assert html.amount(value) == words


def test_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOY))
    file = tmp_path / "sums.yaml"
    file.write_text(
        'name: sums\ntask: {kind: "metagen_toy:ToyTask", count: 4}\n'
        'generators: {toy: {kind: "metagen_toy:generator"}}\n'
        "strategies: {majority: {kind: majority}}\ngrid: {n: [1, 4]}\n"
    )
    run = RunDirectory.at(tmp_path / "run")
    assert "has not begun" in Page(run._repr_html_()).text
    with build.open_setup(schema.load(file)) as setup:
        runner.run(setup, run)
    page = Page(run._repr_html_())
    assert "sums" in page.text
    assert "4 problems, 16 samples, seed 0" in page.text
    assert f"metagen report {run.root}" in page.text
    results = derive(run, run.final_state().lines)
    assert "toy/majority@4" in Page(results._repr_html_()).text
    assert repr(results) == "Results(2 configurations, 6 by level)"
    run.save(runner.State("sums", "interrupted"))
    assert "metagen resume" in Page(run._repr_html_()).text
