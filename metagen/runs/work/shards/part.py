"""What one driver is given: its problems, and no more at a time than its share."""

from __future__ import annotations

import random
from dataclasses import dataclass

from metagen.runs.declare.specs import Experiment
from metagen.tasks.base import Problem


@dataclass(frozen=True, slots=True)
class Part:
    """Part `index`, from 0, of `count`.

    Of each `count` problems in a row every part has one, drawn by lot: parts are equally large up to one problem, and
    levels that come in turns do not all fall to one of them.
    """

    index: int
    count: int

    def __call__(self, place: int, problem: Problem) -> bool:
        """Whether the problem at this place of the task belongs to it."""
        row, at = divmod(place, self.count)
        return random.Random(row).sample(range(self.count), self.count)[at] == self.index

    def __str__(self) -> str:
        return f"{self.index + 1}-of-{self.count}"

    def share(self, whole: int) -> int:
        """Its share of `whole` equal things; those of all parts add up."""
        return whole // self.count + (self.index < whole % self.count)

    def of(self, experiment: Experiment) -> Experiment:
        """The experiment as its driver runs it: with its share of what is worked on at a time."""
        executor = experiment.executor
        mine = {"shards": None, "concurrency": max(1, self.share(executor.concurrency))}
        return experiment.model_copy(update={"executor": executor.model_copy(update=mine)})
