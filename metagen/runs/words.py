"""Numbers as findings and tables say them: shares, differences, intervals and amounts of a cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import isinf, isnan, nan

from metagen.analysis.paired import Difference
from metagen.html import amount

#: What a cost is called behind a number, and on an axis.
UNITS = {
    "samples": "samples",
    "generated": "tokens generated",
    "tokens": "tokens",
    "flops": "FLOPs",
    "flops_2n": "FLOPs (2N·T)",
    "money": "money",
    "seconds": "seconds",
}
PER_PROBLEM = "per problem"
#: What a tie is (`analysis.ties`).
TIED = "half a point, or two Monte-Carlo errors"
#: What measured seconds are.
TIMED = "Seconds are the summed wall time of calls, with waits for the batch; they depend on concurrency."


def unit(cost: str) -> str:
    """`flops` → FLOPs, `roofline:h200` → modelled seconds on h200."""
    kind, _, where = cost.partition(":")
    names = {"roofline": "modelled seconds of work on", "latency": "modelled seconds of waiting on"}
    return f"{names[kind]} {where}" if kind in names else UNITS.get(cost, cost)


def axis(cost: str) -> str:
    """The label of an axis."""
    return f"{unit(cost)} {PER_PROBLEM}"


def with_unit(value: float, cost: str) -> str:
    """An amount with what it counts: 3.2G FLOPs."""
    return f"{amount(value)} {unit(cost)}"


def share(value: float) -> str:
    """A share in percent; a dash for none."""
    return "–" if isnan(value) else f"{100 * value:.1f}%"


def often(value: float) -> str:
    """A share of resamples, of which there are about a thousand: known to a point or so, and never certain."""
    if isnan(value):
        return "–"
    return "over 99%" if value > 0.99 else "under 1%" if value < 0.01 else f"{value:.0%}"


def win_share(value: float, several: int = 1) -> str:
    """Written behind a winner: the share of resamples in which it wins; the least share, for several budgets."""
    return f" (in {'at least ' if several > 1 and 0.01 <= value <= 0.99 else ''}{often(value)} of resamples)"


def bounds(low: float, high: float) -> str:
    """[38.1, 44.0], in percent; nothing where they are unknown."""
    return "" if isnan(low) or isnan(high) else f"[{100 * low:.1f}, {100 * high:.1f}]"


def with_interval(value: float, low: float, high: float, stderr: float = nan) -> str:
    """A share with its interval, and its clustered standard error where that is given: 41.0% ±1.5 [38.1, 44.0]."""
    return " ".join(part for part in (share(value), plus_minus(stderr).strip(), bounds(low, high)) if part)


def difference(value: float, low: float, high: float) -> str:
    """Points of accuracy with their interval: +3.2 [+1.1, +5.4]."""
    if isnan(value):
        return "–"
    return signed_points(value) + (
        "" if isnan(low) or isnan(high) else f" [{signed_points(low)}, {signed_points(high)}]"
    )


def within(low: float, high: float, form: Callable[[float], str] = "{:.3g}".format) -> str:
    """Bounds of any quantity above 0: `above 3`, `below 8`, `3 to 8`; 0 and inf are no bounds, NaN is unknown."""
    if isnan(low) or isnan(high):
        return "unknown"
    if low <= 0.0 and isinf(high):
        return "without bounds"
    if low <= 0.0:
        return f"below {form(high)}"
    return f"above {form(low)}" if isinf(high) else f"{form(low)} to {form(high)}"


def join_words(parts: list[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def lines(clauses: Iterable[str]) -> tuple[str, ...]:
    """Each a sentence of its own; empty ones are none."""
    return tuple(f"{clause[:1].upper()}{clause[1:]}." for clause in clauses if clause)


def sentences(clauses: Iterable[str]) -> str:
    """One behind another."""
    return " ".join(lines(clauses))


def plus_minus(stderr: float) -> str:
    """The clustered standard error behind an accuracy in percent: ` ±3.5`; nothing where it is unknown."""
    return "" if isnan(stderr) else f" ±{100 * stderr:.1f}"


def percent(share: float, sign: str = "%") -> str:
    """A share with one decimal."""
    return f"{100 * share:.1f}{sign}"


def between(low: float, high: float) -> str:
    """Bounds in percent; a dash where they are unknown."""
    return "–" if isnan(low) or isnan(high) else f"{100 * low:.0f}–{100 * high:.0f}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as fits."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


#: How a smallest detectable difference relates to the interval that stands beside it.
DETECTABLE = (
    "An interval holds the differences that fit the measurement. The smallest detectable difference is no second "
    "interval: it is the size from which a true difference would be shown on as many problems with probability 0.8."
)


def least(difference: Difference) -> str:
    """The least difference that would have been shown, in points; none, where so few problems can show none."""
    if isnan(difference.detectable):
        return ""
    return "none" if isinf(difference.detectable) else percent(difference.detectable, "")


def signed_points(share: float) -> str:
    """A difference in points, with its sign; what rounds to 0 is +0.0."""
    return f"{100 * share:+z.1f}".replace("-", "−")


def cost_amount(value: float, cost: str) -> str:
    """A cost in few characters: 12,500 tokens are 12.5k, 3e9 FLOPs are 3G; tokens below a thousand are whole."""
    return f"{value:.0f}" if cost == "generated" and value < 999.5 else amount(value)
