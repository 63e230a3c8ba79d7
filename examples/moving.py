"""The picture of the front page: one real search, as it happens, under its budget.

    python examples/moving.py [FILE]

REBASE with eight samples on one problem of arithmetic, by the events that `strategy.stream` yields. Each step appears
when it was drawn, coloured by its reward; the bar below is the budget. Writes an animated SVG that follows a reader's
dark mode, and stands still where motion is not wanted.
"""

from __future__ import annotations

import asyncio
import html
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import metagen as mg
from metagen.events import Event
from metagen.scope import Scope
from metagen.sequence import Sequence

BUDGET, N, SEED, PLACE = 800, 8, 2, 2
#: Seconds that the search takes in the picture, and that its end is shown.
RUN, REST = 7.0, 4.0
WIDTH, LEFT, TOP, ROW, DEEP = 880, 24, 74, 25, 118


@dataclass
class Drawn:
    """A step that was drawn. copies: how often. at: which call brought it first. spent: tokens by then."""

    path: str
    text: str
    above: str
    whole: str
    at: int
    spent: int
    copies: int = 1
    score: float | None = None
    children: list[str] = field(default_factory=list)


async def solve() -> tuple[mg.Prompt, dict[str, Drawn], str, int]:
    """The problem, the tree of one search by its paths, the answer, and the tokens that were generated."""
    task = mg.ArithmeticTask(split="validation", seed=2026, levels=[6], per_level=6)
    problem = list(task.problems())[PLACE]
    with mg.TorchEngine("tiny-2m", threads=1) as model, mg.TorchEngine("tiny-prm", threads=1) as judge:
        reward = mg.ProcessRewardModel(judge)
        generator = model.generator(temperature=1.0, max_tokens=120)
        strategy = mg.Rebase(generator, n=N, verifier=reward, answer=task.answer)
        events = [e async for e in strategy.stream(problem.prompt, seed=SEED, budget=BUDGET)]
        tree = grow(events)
        prefix = Sequence.of(problem.prompt)
        scope = Scope.root("scores")
        steps = list(tree.values())
        scores = await reward.score([prefix.extend(one.whole) for one in steps], scope=scope)
        for one, score in zip(steps, scores, strict=True):
            one.score = score.value
    return problem.prompt, tree, events[-1].text or "", events[-1].usage.generated or 0  # type: ignore[union-attr]


def grow(events: list[Event]) -> dict[str, Drawn]:
    """The tree that a search's samples make: equal steps under one node are one."""
    tree: dict[str, Drawn] = {}
    spent = 0
    levels: dict[str, list[Event]] = {}
    for event in events:
        if event.kind == "sample":
            levels.setdefault(event.path, []).append(event)
    for number, (path, level) in enumerate(levels.items()):
        above = path.removeprefix("0/node/").removeprefix("0").lstrip(".")
        first: dict[str, Drawn] = {}
        for event in sorted(level, key=lambda one: one.index):
            spent += (event.usage.generated or 0) if event.usage else 0
            if not event.text or event.refused:
                continue
            if event.text in first:
                first[event.text].copies += 1
                continue
            name = f"{above}.{event.index}".lstrip(".")
            parent = tree.get(above)
            whole = (parent.whole if parent else "") + event.text
            tree[name] = first[event.text] = Drawn(name, event.text.strip(), above, whole, number, spent)
            if parent:
                parent.children.append(name)
    return tree


def place(tree: dict[str, Drawn]) -> dict[str, tuple[float, float]]:
    """Where each step stands: leaves below one another, a step in the middle of those that go on from it."""
    rows: dict[str, float] = {}
    line = iter(range(10_000))

    def put(name: str) -> float:
        below = [put(child) for child in tree[name].children]
        rows[name] = sum(below) / len(below) if below else float(next(line))
        return rows[name]

    for name, one in tree.items():
        if not one.above:
            put(name)
    return {name: (LEFT + DEEP * name.count("."), TOP + ROW * row) for name, row in rows.items()}


def picture(prompt: mg.Prompt, tree: dict[str, Drawn], answer: str, generated: int) -> str:
    """The SVG."""
    spots = place(tree)
    height = max(y for _, y in spots.values()) + 92
    total = max(one.at for one in tree.values()) + 1
    whole = RUN + REST
    kept = {name for name, one in tree.items() if answer.startswith(one.whole)}

    def when(at: float) -> str:
        return f"{100 * RUN * at / total / whole:.1f}"

    shows = [
        f"@keyframes s{at}{{0%,{when(at)}%{{opacity:0}}{when(at + 0.6)}%,100%{{opacity:1}}}}.s{at}{{animation:s{at} "
        f"{whole:g}s infinite}}"
        for at in range(total)
    ]
    end = when(total)
    stages = sorted({(one.at, one.spent) for one in tree.values()})
    bar = " ".join(f"{when(at + 0.6)}%{{transform:scaleX({spent / BUDGET:.3f})}}" for at, spent in stages)
    style = f"""
text{{font:12px ui-monospace,SFMono-Regular,Menlo,monospace;fill:var(--ink)}}.head{{font:600 15px system-ui,sans-serif}}
.note{{font:12px system-ui,sans-serif;fill:var(--soft)}}path{{fill:none;stroke:var(--line);stroke-width:1.2}}
svg{{--ink:#1c2128;--page:#fff;--soft:#59636e;--line:#c8d1da;--card:#f6f8fa;--good:#1a7f37;--bad:#cf222e}}
@media(prefers-color-scheme:dark){{svg{{--ink:#e6edf3;--page:#0d1117;--soft:#9198a1;--line:#3d444d;--card:#161b22;--good:#3fb950;--bad:#f85149}}}}
.best path,.best rect{{stroke:var(--good);stroke-width:2.4}}.end{{animation:end {whole:g}s infinite}}
@keyframes end{{0%,{end}%{{opacity:0}}{float(end) + 3:.1f}%,100%{{opacity:1}}}}
.bar{{transform-origin:{LEFT}px 0;animation:bar {whole:g}s infinite}}
@keyframes bar{{0%{{transform:scaleX(0)}} {bar} 100%{{transform:scaleX({generated / BUDGET:.3f})}}}}
{"".join(shows)}
@media(prefers-reduced-motion:reduce){{*{{animation:none!important}}.bar{{transform:scaleX({generated / BUDGET:.3f})}}}}
"""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="A tree search grows step by step until it has an answer, within a budget of {BUDGET} tokens">',
        f"<style>{style}</style>",
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="10" fill="var(--page)"/>',
        f'<text class="head" x="{LEFT}" y="26">{_text(prompt.text or "")}</text>',
        f'<text class="note" x="{LEFT}" y="46">REBASE, n = {N}: a reward model scores each step, and good steps get '
        "more of the next samples</text>",
        *_edges(tree, spots, kept),
        *_steps(tree, spots, kept),
        f'<rect x="{LEFT}" y="{height - 44:.0f}" width="{WIDTH - 2 * LEFT}" height="10" rx="5" fill="var(--card)" '
        'stroke="var(--line)"/>',
        f'<rect class="bar" x="{LEFT}" y="{height - 44:.0f}" width="{WIDTH - 2 * LEFT}" height="10" rx="5" '
        'fill="#4078c0"/>',
        f'<text class="note" x="{LEFT}" y="{height - 16:.0f}">{generated} of {BUDGET} tokens</text>',
        f'<text class="head end" x="{WIDTH - LEFT}" y="{height - 14:.0f}" text-anchor="end">answer: '
        f"{_text(answer.rstrip().rpartition('A:')[2])}</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _edges(tree: dict[str, Drawn], spots: dict[str, tuple[float, float]], kept: set[str]) -> Iterator[str]:
    for name, one in tree.items():
        if one.above:
            (x0, y0), (x, y) = spots[one.above], spots[name]
            best = " best" if name in kept else ""
            from_, by, to = (
                f"{x0 + DEEP - 14:.0f} {y0:.1f}",
                f"{x0 + DEEP - 4:.0f} {y0:.1f}",
                f"{x - 2:.0f} {y:.1f}",
            )
            line = f"M{from_}C{by} {x - 10:.0f} {y:.1f} {to}"
            yield f'<g class="s{one.at}{best}"><path d="{line}"/></g>'


def _steps(tree: dict[str, Drawn], spots: dict[str, tuple[float, float]], kept: set[str]) -> Iterator[str]:
    for name, one in tree.items():
        x, y = spots[name]
        best = " best" if name in kept else ""
        score = one.score or 0.0
        times = f" ×{one.copies}" if one.copies > 1 else ""
        size = 12 if len(one.text + times) <= 14 else 10 if len(one.text + times) <= 16 else 9
        yield (
            f'<g class="s{one.at}{best}"><rect x="{x - 2:.0f}" y="{y - 10:.1f}" width="{DEEP - 12}" height="20" rx="4" '
            f'fill="var(--{"good" if score >= 0.5 else "bad"})" fill-opacity="{0.06 + 0.32 * abs(2 * score - 1):.2f}"/>'
            f'<text x="{x + 3:.0f}" y="{y + 4:.1f}" style="font-size:{size}px">{_text(one.text + times)}</text></g>'
        )


def _text(text: str) -> str:
    return html.escape(text.split("\n")[0])


if __name__ == "__main__":
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/moving.svg")
    file.parent.mkdir(parents=True, exist_ok=True)
    found = asyncio.run(solve())
    file.write_text(picture(*found), encoding="utf-8")
    print(f"{file}: {len(found[1])} steps, {found[3]} tokens, answer {found[2].rstrip().rpartition('A:')[2]}")
