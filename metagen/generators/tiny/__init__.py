"""The embedded family: small Llamas that ship in the package and reason step by step at real error rates.

Every directory beside this file is an ordinary Hugging Face model directory with its model card.
"""

from __future__ import annotations

from pathlib import Path

from metagen.errors import ModelError

HERE = Path(__file__).parent


def names() -> list[str]:
    """The embedded models."""
    return sorted(p.parent.name for p in HERE.glob("*/config.json"))


def resolve(model: str | Path) -> Path:
    """The directory of a model: a path as it is, or the name of an embedded model.

    Raises ModelError if there is neither.
    """
    path = Path(model).expanduser()
    if (path / "config.json").exists():
        return path
    embedded = HERE / str(model)
    if str(model) in names():
        return embedded
    what = "has no config.json" if path.is_dir() else "does not exist"
    raise ModelError(
        f"model {str(model)!r}: the directory {what}, and no embedded model has that name; "
        f"give a model directory, or one of {', '.join(names()) or '(none is installed)'}"
    )
