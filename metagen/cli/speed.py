"""What was measured of a model's speed here, and what to make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from metagen.generators.torch.speed import Speed, Timing

#: Times as fast, from where on another number format is recommended: less is within the noise of a busy machine.
WORTH_IT = 1.15


def render(speed: Speed, rows: tuple[int, ...]) -> RenderableType:
    """A line for each way to run the model, and a recommendation."""
    table = Table(title=f"{speed.model}, tokens per second", title_justify="left", box=None)
    for name in ("number format", "threads", *(f"{n} row{'s' * (n > 1)}" for n in rows), "default = 1"):
        table.add_column(name, justify="left" if name == "number format" else "right", no_wrap=True)
    for one in speed.timings:
        style = "bold" if one is speed.best else ""
        rates = (f"{rate:,.0f}" for rate in one.rates)
        table.add_row(_format(one), str(one.threads), *rates, f"{one.over(speed.default):.2f}", style=style)
    return Group(table, Text(), *(Text(line) for line in advice(speed)))


def advice(speed: Speed) -> list[str]:
    """Sentences."""
    default, best = speed.default, speed.best
    alike = [
        one for one in speed.timings if (one.dtype, one.quantization) == (default.dtype, default.quantization)
    ]
    fastest = max(alike, key=lambda one: one.over(default))
    said = f"Engines that are told no threads take {fastest.threads} for this model from now on"
    found = [f"{said}." if fastest is not default else f"{said}, as before."]
    if not speed.kept:
        found = [f"The measurement cannot be kept: write threads: {fastest.threads} in the experiment file."]
    gain = best.over(fastest)
    if (best.dtype, best.quantization) == (default.dtype, default.quantization) or gain < WORTH_IT:
        found.append(
            f"The default number format, {_format(default)}, is the fastest, or as good as the fastest."
        )
    else:
        options = f"dtype: {best.dtype}" + (
            f", quantization: {best.quantization}" if best.quantization else ""
        )
        found.append(
            f"{_format(best)} is {gain:.1f} times as fast. It samples other texts, so nothing chooses it for you: "
            f"write {options} in the experiment file."
        )
    return found


def _format(one: Timing) -> str:
    return one.quantization or one.dtype
