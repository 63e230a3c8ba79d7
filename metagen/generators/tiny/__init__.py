"""The embedded family: small Llamas that ship in the package and reason step by step at real error rates.

Every directory beside this file is an ordinary Hugging Face model directory with its model card.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def names() -> list[str]:
    """The embedded models."""
    return sorted(p.parent.name for p in HERE.glob("*/config.json"))
