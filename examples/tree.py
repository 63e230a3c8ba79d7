"""One problem, every rule of tree search: what each chose, what it cost, and a picture of its tree.

    python examples/tree.py [FOLDER]

The pictures go to FOLDER (runs/trees by default). The embedded models run on any machine, in a few seconds.
"""

from __future__ import annotations

import sys
from pathlib import Path

import metagen as mg
from metagen.analysis.figures import save
from metagen.analysis.trees import tree_diagram
from metagen.cost import Usage
from metagen.strategies.tree.beam import BeamSearch
from metagen.strategies.tree.best_first import BestFirst
from metagen.strategies.tree.depth_first import DepthFirst
from metagen.strategies.tree.dvts import DVTS
from metagen.strategies.tree.rebase import AsyncRebase, Rebase

PROBLEM = "Q:a=36/8;b=a+3;c=b*4;d=c-11;d?\nS:\n"


def main(folder: str = "runs/trees") -> None:
    out, task = Path(folder), mg.ArithmeticTask()
    with mg.TorchEngine("tiny-2m") as model, mg.TorchEngine("tiny-prm") as judge:
        generator = model.generator(max_tokens=200)
        parts = {"verifier": mg.ProcessRewardModel(judge), "answer": task.answer}
        for search in (
            Rebase(generator, n=12, **parts),
            AsyncRebase(generator, n=12, **parts),
            BeamSearch(generator, n=12, m=4, **parts),
            DVTS(generator, n=12, m=4, **parts),
            BestFirst(generator, n=3, m=4, **parts),
            DepthFirst(generator, n=1, m=4, threshold=0.5, **parts),
        ):
            name = type(search).__name__
            tree = search.tree(PROBLEM, seed=7)
            tokens = Usage.sum(node.cost for node in tree).generated
            last = tree.chosen.text.strip().rpartition("\n")[2]
            print(
                f"{name}: {last} by {len(tree)} nodes, {len(tree.finished_leaves())} finished, {tokens} tokens"
            )
            out.mkdir(parents=True, exist_ok=True)
            save(tree_diagram(tree.graph(), title=name), out / name.lower())
    print(f"Pictures in {out}")


if __name__ == "__main__":
    main(*sys.argv[1:])
