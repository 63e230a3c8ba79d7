"""One configuration on one problem, seen as it went: its calls, who waited for whom, what was asked, and its trees.

The strategy runs again over the journal, with its engines closed. A journal that holds a part of it gives that part.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from metagen.cost import Usage
from metagen.errors import InputError, MetagenError
from metagen.history import Delivery
from metagen.journal import Row, SQLiteJournal
from metagen.runs.declare import recipe, schema
from metagen.runs.directory import Cell, RunDirectory
from metagen.runs.names import nearest
from metagen.runs.work import build, offline
from metagen.runs.work.attempts import Recorded
from metagen.runs.work.build import Setup
from metagen.runs.work.makers import Makers
from metagen.runs.work.progress import Meter
from metagen.runs.work.work import Work
from metagen.sequence import Prompt, Sequence
from metagen.strategies.base import wait
from metagen.strategies.tree.node import Tree
from metagen.tasks.base import Problem
from metagen.trace import Trace

#: Calls, and nodes of a tree, that are told at most.
MOST = 4000
#: Amounts of a call.
AMOUNTS = ("prefilled", "cached", "generated", "flops", "money")
SCRIPT = '''\
from pathlib import Path

from metagen.runs.declare import schema
from metagen.runs.work import build

EXPERIMENT = """\\
{yaml}"""
file = Path("{name}.yaml")
file.write_text(EXPERIMENT, encoding="utf-8")
with build.open_setup(schema.load(file)) as setup:
    strategy = setup.strategy(setup.configurations[0])
    problem = next(iter(setup.task.problems()))
    result = strategy.solve(problem.prompt, seed=setup.experiment.seed)
    print(result.text, result.answer, result.usage)
'''


@dataclass
class Heard:
    """What a replay tells beside its records. asked: prefixes by path and content. trees: with their paths."""

    asked: dict[tuple[str, bytes], Sequence] = field(default_factory=dict)
    trees: list[tuple[str, Tree]] = field(default_factory=list)

    def __call__(self, path: str, what: object, content: bytes) -> None:
        if isinstance(what, Tree):
            self.trees.append((path, what))
        elif isinstance(what, Sequence):
            self.asked[path, content] = what


class Replayer:
    """The experiment of a run over its journal, with stand-ins for its engines; open until it is closed.

    Raises InputError for an experiment that cannot be made here: without its data, its plug-ins, or trust in them.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._stack = ExitStack()
        try:
            self._file, self._makers = directory.experiment, Makers.of_run(directory)
            experiment = offline.with_stand_ins(
                schema.load(directory.experiment), fingerprints=True, noted=self._makers.engines
            )
            self._setup: Setup = self._stack.enter_context(build.open_setup(experiment))
            self._journal = self._stack.enter_context(SQLiteJournal(directory.journal, read_only=True))
            folder = RunDirectory(Path(self._stack.enter_context(TemporaryDirectory(prefix="metagen-"))))
            self._work = Work(self._setup, folder, Recorded(self._journal), Meter())
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def replay(self, problem: str, configuration: str) -> dict[str, Any]:
        """For JSON. InputError for a problem or a configuration that the run does not have."""
        cell, (place, asked), heard = self._cell(configuration), self._problem(problem), Heard()
        note = None
        # A run that goes on may have met limits since.
        self._journal.look()
        self._work.journal = Recorded(self._journal)
        try:
            sequence, trace = wait(self._work.replay(cell, place, asked, heard))
        except MetagenError as error:
            return {"whole": False, "note": str(error), "calls": [], "trees": [], "text": None, "left_out": 0}
        if sequence is None:
            note = "This part of the work is not recorded to its end: it is shown as far as it is recorded."
        for _, tree in heard.trees:
            tree.charge(trace.rows)
        calls = [
            self._call(number, delivery, trace, heard, asked)
            for number, delivery in enumerate(trace.deliveries[:MOST])
        ]
        return {
            "whole": sequence is not None,
            "note": note,
            "text": None if sequence is None else sequence.text,
            "exhausted": sequence is not None and sequence.exhausted,
            "usage": _amounts(trace.usage),
            "calls": calls,
            "left_out": max(0, len(trace.deliveries) - MOST),
            "trees": [tree_data(path, tree) for path, tree in heard.trees],
        }

    def recipe(self, configuration: str) -> dict[str, str]:
        """The configuration as an experiment in YAML, and as a script that solves its first problem."""
        cell = self._cell(configuration)
        experiment = self._setup.experiment
        text = recipe.recipe(schema.load(self._file), cell.generator, cell.strategy, cell.n or 0)
        name = "".join(c if c.isalnum() else "-" for c in f"{experiment.name}-{cell.name}").strip("-")
        quoted = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        return {"yaml": text, "python": SCRIPT.format(yaml=quoted, name=name)}

    def _cell(self, name: str) -> Cell:
        cells = {cell.name: cell for cell in self._setup.configurations}
        if name not in cells:
            raise InputError(
                f"the run has no configuration {name!r}; {nearest(name, cells, 'configurations')}"
            )
        return cells[name]

    def _problem(self, id: str) -> tuple[int, Problem]:
        known = []
        for place, problem in enumerate(self._setup.task.problems()):
            if problem.id == id:
                return place, problem
            known.append(problem.id)
        raise InputError(f"the run has no problem {id!r}; {nearest(id, known, 'problems')}")

    def _call(
        self, number: int, delivery: Delivery, trace: Trace, heard: Heard, problem: Problem
    ) -> dict[str, Any]:
        rows = trace.rows[delivery.first : delivery.first + delivery.count]
        if not rows:
            return {"number": number, "clock": delivery.clock, "after": delivery.after, "items": []}
        first = rows[0]
        begun = min((row.started for row in rows if not row.cached), default=None)
        return {
            "number": number,
            "clock": delivery.clock,
            "after": delivery.after,
            "kind": first.kind,
            "maker": self._makers.name(first.by),
            "path": first.path,
            "started": begun,
            "seconds": sum(row.usage.seconds for row in rows),
            "usage": _amounts(Usage.sum(row.usage for row in rows)),
            "asked": _asked(heard.asked.get((first.path, first.content)), problem.prompt),
            "items": [_item(row) for row in rows],
        }


def tree_data(path: str, tree: Tree) -> dict[str, Any]:
    """A tree for JSON: its nodes, parents before children. Amounts of a node are those of drawing its children.

    Of a larger tree than is told, the way to what was chosen is kept, and of the rest what is nearest to the root.
    """
    chosen = _way(tree)
    nodes = list(tree)
    first = sorted(nodes, key=lambda node: (node.name not in chosen, node.depth))[:MOST]
    return {
        "path": path,
        "size": len(nodes),
        "chosen": bool(chosen),
        "nodes": [
            {
                "name": node.name,
                "parent": node.parent.name if node.parent else None,
                "step": node.step,
                "value": _finite(node.value),
                "state": node.state,
                "multiplicity": node.multiplicity,
                "visits": node.visits,
                "finish": node.sequence.finish,
                "cut": node.sequence.cut,
                "chosen": node.name in chosen,
                **_amounts(node.cost),
            }
            for node in sorted(first, key=lambda node: node.position)
        ],
    }


def _way(tree: Tree) -> set[str]:
    """The names of the nodes on the way to what was chosen; a revision is chosen itself, without those before it."""
    if tree.chosen is None:
        return set()
    same = [node for node in tree if node.sequence.text == tree.chosen.text and node.parent is not None]
    ended = [node for node in same if node.finished] or same
    return {node.name for node in ended[0].path()} if ended else set()


def _asked(prefix: Sequence | None, task: Prompt) -> dict[str, Any] | None:
    """What a generator was given: the problem itself, or another prompt, and the text that it goes on from."""
    if prefix is None:
        return None
    prompt = prefix.prompt
    same = prompt.digest == task.digest
    messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
    return {
        "same": same,
        "messages": [] if same else messages or [{"role": "text", "content": prompt.text or ""}],
        "prefix": prefix.text,
    }


def _item(row: Row) -> dict[str, Any]:
    data: Mapping[str, Any] = row.payload or {}
    thought = data.get("thought") or {}
    return {
        "index": row.index,
        "status": row.status,
        "text": data.get("text"),
        "finish": data.get("finish"),
        "thought": thought.get("text") if isinstance(thought, Mapping) else None,
        "value": _finite(data.get("value")),
        "steps": [_finite(value) for value in data.get("steps") or ()],
        "verdict": data.get("verdict"),
        "feedback": data.get("feedback"),
        "other": None if row.kind in ("generate", "score") else str(dict(data))[:2000],
        "generated": row.usage.generated,
    }


def _amounts(usage: Usage) -> dict[str, float | None]:
    return {name: getattr(usage, name) for name in AMOUNTS}


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and isfinite(value) else None
