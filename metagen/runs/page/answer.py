"""The first screen of a report: what each budget buys, as a figure and as a small table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan

from markupsafe import Markup

from metagen import html
from metagen.analysis import figures, study_figures
from metagen.analysis.budgets import MOST, budgets
from metagen.analysis.figures import Axis
from metagen.analysis.frontier import Point
from metagen.errors import InputError
from metagen.runs import words
from metagen.runs.curves import frontier
from metagen.runs.curves.study import StudyResult
from metagen.runs.page import draw
from metagen.runs.page.headline import middle_budget
from metagen.runs.questions.equal_compute import cheapest
from metagen.runs.questions.recommend import recommend
from metagen.runs.questions.section import Section, Table

#: Budgets in the small table at most.
BUDGETS = 6
TITLE = "The best that a budget buys"


@dataclass(frozen=True, slots=True)
class Answer:
    """figure: as SVG, `large` and, for a phone, `small`; empty where no cost is known. table: of budgets, if any."""

    figure: Mapping[str, Markup]
    table: Table | None
    caption: str = ""


def draw_budgets(groups: Mapping[str, Sequence[Point]], x: Axis, what: str) -> tuple[dict[str, Markup], str]:
    """The figure of what each budget buys in both sizes, with its caption. what: a group is, in a word."""
    reached = {name: max(p.accuracy for p in points) for name, points in groups.items()}
    said = "; ".join(f"{name} reaches {words.share(best)}" for name, best in reached.items())
    drawn = {
        size: Markup(  # by matplotlib, which escapes
            study_figures.lean(
                figures.inline(
                    budgets(groups, x=x, narrow=size == "small"), f"answer-{size}", f"{TITLE}: {said}"
                )
            )
        )
        for size in ("large", "small")
    }
    each = f", with each {what}" if len(groups) > 1 else ""
    banded = any(not isnan(p.low) for points in groups.values() for p in points)
    band = " The band is the 95% interval of the highest line." if banded else ""
    grey = f" Grey lines reach less than these {MOST}." if len(groups) > MOST else ""
    return drawn, f"{TITLE}{each}, as measured. Dots are the best of all for their cost.{band}{grey}"


def answer(result: StudyResult) -> Answer:
    """What a reader of a study sees before any section is opened."""
    cost = frontier.main_cost(result)
    axis = draw.MAIN.get(cost or "")
    cells = frontier.cells(result, cost) if cost and axis else []
    if not cells or not axis:
        return Answer({}, _table(result))
    several = len({cell.curve.model for cell in cells}) > 1
    groups: dict[str, list[Point]] = {}
    for cell in cells:
        curve = cell.curve
        label = short_label(curve.configuration(cell.point), curve.model if several else curve.name)
        group = curve.model if several else curve.strategy
        groups.setdefault(group, []).append(replace(cell.plot_point, label=label))
    drawn, caption = draw_budgets(groups, axis, "model" if several else "strategy")
    return Answer(drawn, _table(result), caption)


def short_label(configuration: str, group: str) -> str:
    """What tells a configuration from others of its group: `weighted@8` of a model, `n = 8` of a strategy."""
    rest = configuration.removeprefix(group)
    return f"n = {rest[1:]}" if rest.startswith("@") else rest.removeprefix("/")


def _table(result: StudyResult) -> Table | None:
    cost = frontier.main_cost(result)
    if cost is None:
        return None
    given = sorted(result.budgets.get(cost, ())) or middle_budget(result)
    stride = -(-len(given) // BUDGETS) or 1
    rows = []
    for budget in given[::-1][::stride][::-1]:
        try:
            found = recommend(result, {cost: budget})
        except InputError as error:
            least = cheapest(result, cost)
            dear = least is not None and least[1] > budget
            why = "no configuration is so cheap" if dear else str(error)
            rows.append((html.amount(budget), why, "–", "–"))
            continue
        spent = found.costs.get(cost)
        bounds = "" if isnan(found.low) else f" ({words.between(found.low, found.high)})"
        told = words.share(found.accuracy) + bounds
        rows.append(
            (
                html.amount(budget), found.full_name, told, "–" if spent is None else html.amount(spent),
            )
        )  # fmt: skip
    if not rows:
        return None
    caption = (
        f"The configuration to run, by the {words.unit(cost)} that a problem may take on average, and its expected "
        "accuracy in percent with the 95% interval."
    )
    return Table("answer", caption, ("budget", "run", "solves", "spends"), tuple(rows), frozenset({0, 2, 3}))


def gist(section: Section) -> str:
    """What a closed section holds, in few words."""
    untold = sum(not one.shown for one in section.findings)
    counts = (
        (len(section.findings), "question", f" ({untold} not settled)" if untold else ""),
        (len(section.pictures), "figure", ""),
        (len(section.tables), "table", ""),
        (len(section.notes), "note", ""),
    )
    return ", ".join(
        f"{count} {what}{'s' if count > 1 else ''}{more}" for count, what, more in counts if count
    )
