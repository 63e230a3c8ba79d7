"""The progress of a run on stderr: a bar on a terminal, else lines."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from metagen.cli import output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from metagen.runs.work.progress import Meter, Phase

#: Seconds between lines of progress where there is no terminal.
PAUSE = 10.0
#: Columns below which the bar is left out.
NARROW = 100


@contextlib.contextmanager
def show_progress(meter: Meter, name: str) -> Iterator[None]:
    """Progress on stderr while the block runs: a bar on a terminal, else a line now and then."""
    from rich.live import Live

    console = output.console(stderr=True)
    if console.is_terminal:
        live = Live(
            get_renderable=lambda: _bar(meter, name, console.width),
            console=console,
            refresh_per_second=4,
            transient=True,
        )
        live.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # the terminal is gone, and what ended the block says so
                live.stop()
        return
    done = threading.Event()

    def lines() -> None:
        while not done.wait(PAUSE):
            output.say(f"{name}: {_counts(meter)}")

    thread = threading.Thread(target=lines, name="metagen-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _bar(meter: Meter, name: str, width: int) -> RenderableType:
    """A bar with what it counts; in few columns the counts alone."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    if width < NARROW:
        return Text(f"{name}: {_counts(meter)}")
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column()
    grid.add_column(no_wrap=True)
    done, total = (meter.after.done, meter.after.total) if meter.after.name else (meter.done, meter.total)
    bar = ProgressBar(total=total or None, completed=done, width=24, pulse=not total)
    grid.add_row(name, bar, _counts(meter))
    return grid


def _counts(meter: Meter) -> str:
    """Samples, rate, and how long it will take if the rate stays."""
    from metagen.runs.words import duration

    if meter.after.name:
        return _words_of(meter.after)
    if not meter.total:
        return "starting"
    words = [f"{meter.done:,} of {meter.total:,} samples"]
    if meter.rate:
        words.append(f"{meter.rate:,.0f} samples/s" if meter.rate >= 10 else f"{meter.rate:.2g} samples/s")
    if meter.left:
        words.append(f"about {duration(meter.left)} left")
    if reused := meter.done - meter.fresh:
        words.append(f"{reused:,} from the journal")
    if meter.cached:
        words.append(f"{meter.cached:,} records from the cache")
    if meter.failures:
        words.append(f"{meter.failures:,} failed")
    return ", ".join(words)


def _words_of(phase: Phase) -> str:
    """The name of a phase, how much of it is done, and how long the rest will take."""
    from metagen.runs.words import duration

    words = [f"{phase.name} …"]
    if phase.items:
        words = [f"{phase.name}: {phase.finished:,} of {phase.items:,} {phase.unit}"]
    if phase.left:
        words.append(f"about {duration(phase.left)} left")
    return ", ".join(words)
