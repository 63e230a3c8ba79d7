"""Mathematical answers: read out of solutions, and named by their equivalence class."""

from metagen.verifiers.math.extract import SOURCES, Source
from metagen.verifiers.math.rule import MathRule

__all__ = ["SOURCES", "MathRule", "Source"]
