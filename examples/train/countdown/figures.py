"""Validation figures of the Countdown family: `python examples/train/countdown/figures.py --into FOLDER`.

They go into the model cards. Of the proposer: how many samples are right, and in how many problems any of them is. Of
the value model: the area under the curve by how many numbers are left, on random games and on the proposer's own steps.
The test problems stay untouched.
"""

from __future__ import annotations

import first  # noqa: F401 - first

# isort: split
from collections import defaultdict

import countdown_cards
import countdown_family
import numpy as np
import tables
import torch
import values
import vocabulary
from tables import Told

import setting
from llama import Llama, load
from metagen.analysis.selection import pooled_auc
from metagen.tasks.countdown.problems import LEVELS, Problem, problems
from metagen.tasks.split import Split
from sample import sample


def asked(per_level: int, seed: int = 0) -> list[Problem]:
    """Validation problems, level by level."""
    return [one for level in LEVELS for one in problems(Split.VALIDATION, level, per_level, seed)]


def written(model: Llama, some: list[Problem], samples: int) -> list[list[Told]]:
    """The proposer's attempts at each problem."""
    every = [one for one in some for _ in range(samples)]
    texts = sample(model, vocabulary.numbers(), [p.prompt for p in every], longest=tables.LONGEST, seed=1)
    told = [tables.judged(problem, *text) for problem, text in zip(every, texts, strict=True)]
    return [told[i : i + samples] for i in range(0, len(told), samples)]


def right(told: Told) -> bool:
    """Whether it came to its end, at the target."""
    return bool(told.labels) and all(told.labels) and len(told.tables[-1]) == 1


def areas(model: Llama, told: list[Told]) -> dict[int, tuple[int, float, float]]:
    """By numbers left: how many different states, the share in reach, and the area under the curve."""
    rows = tables.rows(told)
    found: defaultdict[int, dict[str, tuple[float, bool]]] = defaultdict(dict)
    for game, row, said in zip(told, rows, values.said(model, rows), strict=True):
        for k, table in enumerate(game.tables):
            if k == 0 or game.labels[k - 1]:  # what follows a dead end is one by definition
                name = game.text.partition("\n")[0] + repr(table)
                found[len(table)][name] = (float(said[k]), bool(row.labels[k]))
    result = {}
    for left, states in sorted(found.items()):
        score, label = (np.array(column) for column in zip(*states.values(), strict=True))
        result[left] = label.size, float(label.mean()), pooled_auc(score, label)
    return result


def proposed(model: Llama, per_level: int, samples: int) -> tuple[list[str], list[Told]]:
    """What the proposer can do, as lines of Markdown, and its different attempts."""
    pools = written(model, asked(per_level), samples)
    table = np.array([[right(one) for one in pool] for pool in pools])
    lines = [
        f"Right in % on {len(pools)} validation problems, {samples} samples each at temperature 1:\n",
        "| level | one sample | any of " + f"{samples} |",
        "|---|---|---|",
    ]
    for level, rows in zip((*LEVELS, "all"), [*np.split(table, len(LEVELS)), table], strict=True):
        lines.append(f"| {level} | {100 * rows.mean():.1f} | {100 * rows.any(1).mean():.1f} |")
    return lines, [one for pool in pools for one in dict.fromkeys(pool)]


def judged(model: Llama, own: list[Told], games: int) -> list[str]:
    """What the value model can tell apart, as lines of Markdown."""
    lines = [
        "Area under the curve on different states of validation problems, that have not been dead ends before:\n",
        "| states after | numbers left | states | in reach, % | area |",
        "|---|---|---|---|---|",
    ]
    random_games = tables.some_games(1, 0, games, Split.VALIDATION)
    for name, told in (("random games", random_games), ("the proposer's steps", own)):
        for left, (count, share, area) in areas(model, told).items():
            shown = "–" if np.isnan(area) else f"{area:.3f}"
            lines.append(f"| {name} | {left} | {count:,} | {100 * share:.0f} | {shown} |")
    return lines


def main(run: setting.Setting, per_level: int, samples: int, games: int) -> None:
    proposer, value = countdown_family.PROPOSER, countdown_family.VALUE
    first_lines, own = proposed(load(run.trained(proposer)), per_level, samples)
    figures = {proposer: first_lines, value: judged(load(run.trained(value)), own, games)}
    print("\n".join([*figures[proposer], "", *figures[value]]))
    countdown_cards.write(run, figures)


if __name__ == "__main__":
    parser = setting.parser(__doc__, countdown_family.HOME)
    parser.add_argument("--problems", type=int, default=20, help="of each level")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--games", type=int, default=2000, help="that are random")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    main(setting.of(arguments), arguments.problems, arguments.samples, arguments.games)
