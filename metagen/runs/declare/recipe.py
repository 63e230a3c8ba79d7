"""The experiment of one configuration: what to run, cut out of the experiment that measured it."""

from __future__ import annotations

from collections import abc
from typing import Any

from metagen.errors import InputError
from metagen.runs.declare import parts, source
from metagen.runs.declare.cells import configurations
from metagen.runs.declare.specs import SECTIONS, Experiment


def recipe(
    experiment: Experiment,
    model: str,
    strategy: str,
    n: int,
    comments: abc.Sequence[str] = (),
    *,
    name: str | None = None,
) -> str:
    """YAML of an experiment with one cell: this model and strategy at n (0 for a strategy without n).

    Only the parts that it needs are left, without what is default; name, task, seed, budget and executor stay.
    comments: lines at its head. name: what it is called, by default as the experiment. InputError where the experiment
    has no such cell.
    """
    made = _cell(experiment, model, strategy)
    kept = parts.definitions_of(experiment, *parts.of_cells([made]))
    whole = experiment.model_dump(mode="json", exclude_none=True)
    lean = experiment.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    # In the order of the whole, with what says most even where it is the default.
    data: dict[str, Any] = {
        key: value if key in ("name", "seed") else lean[key]
        for key, value in whole.items()
        if key in ("name", "seed", *lean)
    }
    for section in SECTIONS:
        data[section] = {
            name: spec for name, spec in data.get(section, {}).items() if (section, name) in kept
        }
    if pools := data.get("executor", {}).get("pools"):
        data["executor"]["pools"] = {name: pool for name, pool in pools.items() if ("engines", name) in kept}
    data = {key: value for key, value in data.items() if value != {}}
    data["name"] = name or experiment.name
    data["grid"] = {"generators": [made[0]], "strategies": [made[1]]}
    if n and "n" in whole["strategies"][made[1]]:
        data["strategies"][made[1]]["n"] = n
    elif n and any(cell.strategy == made[1] and cell.n for cell in configurations(experiment)):
        data["grid"]["n"] = [n]
    if set(data.get("allocation", {}).get("strategies", ())) - {made[1]}:
        raise InputError(
            f"{made[0]}/{made[1]} shared a total with other strategies (allocation.strategies), and by itself would "
            "spend otherwise; measure it without allocation"
        )
    head = "".join(f"# {' '.join(line.split())}\n" for line in comments)
    return head + source.write(data)


def _cell(experiment: Experiment, model: str, strategy: str) -> tuple[str, str]:
    """Generator and strategy, which in a study may be variants with frozen settings: `0.5M.temperature-0.7`."""
    cells = experiment.grid.cells
    if (model, strategy) in cells:
        return model, strategy
    found = [
        (g, s)
        for g, s in cells
        if (g == model or g.startswith(f"{model}.")) and (s == strategy or s.startswith(f"{strategy}."))
    ]
    if len(found) == 1:
        return found[0]
    what = "several cells" if found else "no cell"
    shown = ", ".join(f"{g}/{s}" for g, s in (found or cells)[:8])
    raise InputError(
        f"the experiment {experiment.name!r} has {what} for {model}/{strategy} (it has {shown}); give the one that "
        "was measured"
    )
