"""The pictures of docs/strategies: real runs on the embedded models, a minute in all.

    python examples/gallery.py [FOLDER]

The pictures go to FOLDER (runs/gallery by default), one for each strategy that has something to show.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from matplotlib.figure import Figure

import metagen as mg
from metagen.analysis.chains import program_diagram
from metagen.analysis.figures import save
from metagen.analysis.particles import effective_sizes
from metagen.analysis.trees import tree_diagram
from metagen.analysis.votes import vote_bars

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

    def chain(self) -> Figure:
        chain = mg.chain_of_thought(self.generator, cue="A:", thought=150, answer=self.task.answer)

        async def outputs() -> dict[str, str]:
            made = await chain.outputs(mg.Sequence.of(PROBLEM), mg.Scope.root("gallery"))
            return {name: one.sequence.text for name, one in made.items() if one.sequence}

        return program_diagram(
            chain.graph, asyncio.run(outputs()), output=chain.output, title="Chain of thought"
        )


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
            ("particles", gallery.particles),
            ("chains", gallery.chain),
        ]
        for name, draw in pictures:
            _, svg = save(draw(), out / name)
            print(f"{name}: {svg.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(*sys.argv[1:])
