"""What a configuration is called where people choose among them: with its n, and the setting that was frozen for it."""

from __future__ import annotations

from metagen.runs.curves.study import Curve
from metagen.runs.declare.settings import AS_WRITTEN


def frozen(curve: Curve) -> str:
    """The setting that was frozen for a curve; empty for one that is as written."""
    return "" if curve.setting == AS_WRITTEN else curve.setting


def named(curve: Curve, point: int) -> str:
    """A point of a curve with its frozen setting: `small/rebase@16 (temperature=0.2)`."""
    name = curve.configuration(point)
    return f"{name} ({setting})" if (setting := frozen(curve)) else name
