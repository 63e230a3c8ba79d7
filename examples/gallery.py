"""The pictures of docs/strategies: real runs, on the embedded models where these can do it, a minute in all.

    python examples/gallery.py [FOLDER]

The pictures go to FOLDER (runs/gallery by default), one for each strategy that has something to show. Models that
criticise, reflect or write programs do not ship: there, functions of a few lines write, and the strategies are real.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
from matplotlib.figure import Figure

import metagen as mg
from metagen.analysis.adaptive import spending
from metagen.analysis.chains import program_diagram
from metagen.analysis.figures import save, small_multiples, style
from metagen.analysis.particles import effective_sizes
from metagen.analysis.trees import tree_diagram
from metagen.analysis.votes import vote_bars
from metagen.strategies.adaptive.stopping import Decided
from metagen.strategies.aggregators import Majority
from metagen.verifiers.code.codet import dual_agreement
from metagen.verifiers.code.isolation import IsolationError
from metagen.verifiers.code.sandbox import Sandbox

#: A problem that the models solve now and then.
PROBLEM = "Q:a=36/8;b=a+3;c=b*4;d=c-11;d?\nS:\n"
#: One on which the most frequent answer is wrong and the process model knows better.
LEVELS, SAMPLES = [4, 5], 24


class Gallery:
    """The parts that all pictures share, while the engines are open."""

    def __init__(self, model: mg.TorchEngine, small: mg.TorchEngine, judge: mg.TorchEngine) -> None:
        self.generator = model.generator(max_tokens=200)
        self.small = small.generator(max_tokens=200)
        self.task = mg.ArithmeticTask("validation", levels=LEVELS, per_level=12, seed=5)
        self.prm = mg.ProcessRewardModel(judge)
        self.parts = {"verifier": self.prm, "answer": self.task.answer}

    def trees(self) -> Iterator[tuple[str, Callable[[], Figure]]]:
        g, parts = self.generator, self.parts
        searches: dict[str, mg.TreeSearch] = {
            "rebase": mg.Rebase(g, n=12, **parts),
            "async_rebase": mg.AsyncRebase(g, n=12, **parts),
            "beam": mg.BeamSearch(g, n=12, m=4, **parts),
            "dvts": mg.DVTS(g, n=12, m=4, **parts),
            "best_first": mg.BestFirst(g, n=3, m=4, **parts),
            "depth_first": mg.DepthFirst(g, n=1, m=4, threshold=0.5, **parts),
            "lookahead": mg.Lookahead(g, n=8, m=4, ahead=1, **parts),
            "mcts": mg.MCTS(g, n=8, width=3, **parts),
        }
        for name, search in searches.items():
            yield (
                name,
                lambda search=search: tree_diagram(
                    search.tree(PROBLEM, seed=7).graph(), title=type(search).__name__
                ),
            )

    def particles(self) -> Figure:
        filters = {
            f"temperature {t:g}": mg.ParticleFilter(self.small, 16, temperature=t, **self.parts)
            for t in (0.5, 1.0, 2.0)
        }
        problems = list(self.task.problems())[:8]
        clouds = {
            name: [[level.effective for level in f.cloud(p.prompt).levels] for p in problems]
            for name, f in filters.items()
        }
        return effective_sizes({"16 particles": clouds}, title="How many particles there really are")

    def votes(self) -> Figure:
        """The first problem on which weights change the vote for the better; else the first of all."""
        journal, found = mg.MemoryJournal(), None
        for problem in self.task.problems():
            weighted = mg.WeightedVote(self.small, SAMPLES, **self.parts).solve(
                problem.prompt, journal=journal
            )
            pool = [c for c in weighted.candidates if c.key is not None and c.sequence.finish == "eos"]
            plain = Counter(c.key for c in pool)
            heavy = {key: sum(c.value or 0.0 for c in pool if c.key == key) for key in plain}
            right = asyncio.run(self.task.answer.key(problem.reference))
            panels = {"majority: votes": dict(plain), "weighted: Σ score": heavy}
            found = found or (panels, right)
            if plain and max(plain, key=plain.__getitem__) != right == max(heavy, key=heavy.__getitem__):
                found = panels, right
                break
        assert found is not None
        return vote_bars(found[0], right=[found[1] or ""], title=f"One problem, {SAMPLES} samples")

    def adaptive(self) -> Figure:
        """Samples that stopping rules draw, by level. The full vote draws first, and they find its samples recorded."""
        levels, most = [5, 4, 3, 2, 1], 16
        task = mg.ArithmeticTask("validation", levels=levels, per_level=16, seed=5)
        problems, journal, answer = list(task.problems()), mg.MemoryJournal(), task.answer
        rules: dict[str, mg.Strategy] = {
            "Decided": mg.Adaptive(self.small, most, Majority(answer), Decided(most)),
            "Adaptive-Consistency": mg.AdaptiveConsistency(self.small, most, answer=answer),
            "ESC": mg.EarlyStopping(self.small, most, answer=answer, window=4),
        }

        async def drawn(rule: mg.Strategy) -> list[int]:
            results = await asyncio.gather(*(rule.asolve(p.prompt, journal=journal) for p in problems))
            return [len(result.candidates) for result in results]

        asyncio.run(drawn(mg.MajorityVote(self.small, most, answer=answer)))
        samples = {name: asyncio.run(drawn(rule)) for name, rule in rules.items()}
        groups = [levels.index(p.level) for p in problems if p.level is not None]
        names = [f"level {level}" for level in levels]
        return spending(groups, samples, names, title=f"Samples drawn, of {most} at most")

    def chain(self) -> Figure:
        chain = mg.chain_of_thought(self.generator, cue="A:", thought=150, answer=self.task.answer)

        async def outputs() -> dict[str, str]:
            made = await chain.outputs(mg.Sequence.of(PROBLEM), mg.Scope.root("gallery"))
            return {name: one.sequence.text for name, one in made.items() if one.sequence}

        return program_diagram(
            chain.graph, asyncio.run(outputs()), output=chain.output, title="Chain of thought"
        )


def rounds(strategy: mg.Refinement, prompt: str, names: dict[str, str], title: str) -> Figure:
    """What was written in a run of a few rounds, one after the other; names: of the roles in its records."""
    result = strategy.solve(prompt)
    rows = [row for row in result.trace.rows if row.kind == "generate"]
    texts = {}
    for row in rows:
        role, _, number = row.path.removeprefix("0/").partition("/")
        texts[f"{names[role]} {number}".strip()] = (row.payload or {})["text"]
    graph: nx.DiGraph[str] = nx.DiGraph(pairwise(texts))
    best = next(name for name, text in reversed(texts.items()) if text == result.text)
    return program_diagram(graph, texts, output=best, title=title)


def self_refine() -> Figure:
    def write(prefix: mg.Sequence, seed: int, index: int) -> str:
        said = prefix.prompt.text or ""
        if not said.rstrip().endswith("again.") and "Check this answer" not in said:
            return "it rains"
        last = next(line for line in reversed(said.splitlines()) if line.lower().startswith("it rains"))
        if said.rstrip().endswith("again."):
            return last.capitalize() if last[0].islower() else last + "."
        if last[0].islower():
            return "A sentence begins with a capital."
        return "NOTHING TO MEND" if last.endswith(".") else "The full stop is missing."

    strategy = mg.SelfRefine(mg.FunctionGenerator(write, name="writer"), rounds=3)
    names = {"sample": "draft", "feedback": "critique", "revise": "revision"}
    return rounds(strategy, "Describe the weather.\n", names, "Self-Refine: it stops when it is content")


def reflexion() -> Figure:
    parts = ("sorted(x)", "[::-1]")

    def write(prefix: mg.Sequence, seed: int, index: int) -> str:
        said = prefix.prompt.text or ""
        if "his attempt" in said.rstrip().splitlines()[-1]:
            return f"The test wants {said.split('failing test: ')[-1].split(';')[0]}: I should add that."
        return "def f(x): return" + "".join(f" {part}" for part in parts if part in said)

    def test(sequence: mg.Sequence) -> mg.Score:
        missing = [part for part in parts if part not in sequence.text]
        return mg.Score(0.0, feedback=f"failing test: {missing[0]};") if missing else mg.Score(1.0)

    model, tests = mg.FunctionGenerator(write, name="coder"), mg.FunctionVerifier(test, name="tests")
    names = {"sample": "attempt 0", "feedback": "reflection", "revise": "attempt"}
    title = "Reflexion: each attempt reads the reflections before it"
    return rounds(mg.Reflexion(model, verifier=tests, rounds=4), "Sort downwards.\n", names, title)


#: Programs that a model might write for "the middle of three numbers", and tests, of which the last two are wrong.
MIDDLE = {
    "sorted": "return sorted((a, b, c))[1]",
    "sum": "return a + b + c - max(a, b, c) - min(a, b, c)",
    "max of mins": "return max(min(a, b), min(c, max(a, b)))",
    "b": "return b",
    "mean": "return (a + b + c) / 3",
    "max of two": "return max(a, b)",
}
TESTS = [
    "(1, 2, 3) == 2",
    "(3, 1, 2) == 2",
    "(5, 5, 1) == 5",
    "(9, 4, 7) == 7",
    "(4, 8, 6) == 8",
    "(1, 3, 2) == 1",
]


def codet() -> Figure:
    """Which program passes which test, run in the sandbox; below each name its dual agreement."""
    sandbox = Sandbox()

    async def passes(body: str, test: str) -> bool:
        ran = await sandbox.execute(f"def f(a, b, c):\n    {body}\n\n\nassert f{test}\n")
        return ran.verdict == "finished"

    async def table() -> list[list[bool]]:
        return [[await passes(body, test) for test in TESTS] for body in MIDDLE.values()]

    passed = np.array(asyncio.run(table()))
    scores = dual_agreement(passed)
    with style():
        figure, (axes,) = small_multiples(1, "Programs and generated tests vouch for each other", 1)
        axes.imshow(passed, cmap="Greens", vmin=-0.2, vmax=1.4, aspect="auto")
        for (i, k), ok in np.ndenumerate(passed):
            axes.text(k, i, "pass" if ok else "–", ha="center", va="center", fontsize=8)
        axes.set_xticks(range(len(TESTS)), [f"f{test}" for test in TESTS], rotation=30, ha="right")
        names = [f"{name}  {score:.2f}" for name, score in zip(MIDDLE, scores, strict=True)]
        axes.set_yticks(range(len(MIDDLE)), names)
        axes.grid(visible=False)
        axes.set_xlabel("tests; the last two are wrong")
        axes.set_ylabel("programs, with their scores")
    return figure


def main(folder: str = "runs/gallery") -> None:
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    with (
        mg.TorchEngine("tiny-2m") as model,
        mg.TorchEngine("tiny-0.5m") as small,
        mg.TorchEngine("tiny-prm") as judge,
    ):
        gallery = Gallery(model, small, judge)
        pictures = [
            *gallery.trees(),
            ("voting", gallery.votes),
            ("adaptive", gallery.adaptive),
            ("particles", gallery.particles),
            ("chains", gallery.chain),
            ("self_refine", self_refine),
            ("reflexion", reflexion),
            ("codet", codet),
        ]
        for name, draw in pictures:
            try:
                figure = draw()
            except IsolationError as error:
                print(f"{name}: not drawn, programs cannot be isolated on this machine: {error}")
                continue
            _, svg = save(figure, out / name)
            print(f"{name}: {svg.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
