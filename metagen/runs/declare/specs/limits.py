"""Limits, as files say them."""

from __future__ import annotations

from dataclasses import dataclass

from metagen.budget import Budget
from metagen.values import Quantity, Total


@dataclass(frozen=True, slots=True)
class BudgetSpec(Budget):
    """A Budget as read from outside."""

    generated: Total | None = None
    prefilled: Total | None = None
    calls: Total | None = None
    flops: Quantity | None = None
    money: Quantity | None = None
    seconds: Quantity | None = None
