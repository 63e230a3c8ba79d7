"""The first screen of a study's report: what each budget buys, as a figure and as a small table."""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan

from markupsafe import Markup

from metagen import html
from metagen.analysis import figures, study_figures
from metagen.errors import InputError
from metagen.runs import words
from metagen.runs.curves import frontier
from metagen.runs.curves.study import StudyResult
from metagen.runs.page import draw
from metagen.runs.page.headline import middle_budget
from metagen.runs.questions.recommend import recommend
from metagen.runs.questions.section import Section, Table

#: Budgets in the small table at most.
BUDGETS = 6
TITLE = "The best that a budget buys"


@dataclass(frozen=True, slots=True)
class Answer:
    """figure: as SVG; None where no cost is known. table: a recommendation for each budget; None without any."""

    figure: Markup | None
    table: Table | None


def answer(result: StudyResult) -> Answer:
    """What a reader sees before any section is opened."""
    best = draw.best_figure(result)
    figure = None
    if best is not None:
        best.suptitle("")  # the page has a heading
        figure = Markup(
            study_figures.lean(figures.inline(best, "answer", TITLE))
        )  # by matplotlib, which escapes
    return Answer(figure, _table(result))


def _table(result: StudyResult) -> Table | None:
    cost = frontier.main_cost(result)
    if cost is None:
        return None
    budgets = sorted(result.budgets.get(cost, ())) or middle_budget(result)
    stride = -(-len(budgets) // BUDGETS) or 1
    rows = []
    for budget in budgets[::-1][::stride][::-1]:
        try:
            found = recommend(result, {cost: budget})
        except InputError:
            rows.append((html.amount(budget), "nothing is so cheap", "–", "–"))
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
        f"What to run, by the {words.unit(cost)} that a problem may take on average, and what to expect of it, in "
        "percent with the 95% interval."
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
