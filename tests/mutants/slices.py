"""What is mutated, and which tests ought to notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Pictures: what they look like is not a formula.
PICTURES = {
    "metagen/analysis/diagrams.py",
    "metagen/analysis/figures.py",
    "metagen/analysis/study_figures.py",
}


@dataclass(frozen=True)
class Slice:
    """Modules, as patterns below `metagen`, and the tests for them, below `tests`; those named alike run first."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]

    def paths(self) -> list[str]:
        found = {str(p.relative_to(ROOT)) for one in self.modules for p in (ROOT / "metagen").glob(one)}
        return sorted(p for p in found - PICTURES if not p.endswith("__init__.py"))

    def tests_of(self, module: str) -> list[str]:
        """Test files for a module, the one that has its name first, if there is one."""
        every = dict.fromkeys(p for one in self.tests for p in sorted((ROOT / "tests").glob(one)))
        alike = f"test_{Path(module).stem}.py"
        return [str(path.relative_to(ROOT)) for path in sorted(every, key=lambda p: p.name != alike)]


SLICES = {
    "budget": Slice(("budget.py",), ("test_budget.py", "test_scope.py")),
    "scope": Slice(("scope.py", "place.py"), ("test_scope.py", "test_history.py", "strategies/test_base.py")),
    "call": Slice(
        ("call.py", "attempts.py"),
        ("test_scope.py", "test_history.py", "test_durable.py", "test_attempts.py"),
    ),
    "batch": Slice(
        ("batch.py", "history.py"),
        ("test_batch.py", "test_history.py", "strategies/tree/test_interleaving.py"),
    ),
    "cost": Slice(("cost.py",), ("test_cost.py", "runs/curves/efficiency/test_roofline.py")),
    "primitive": Slice(
        ("generators/primitive.py", "generators/heard.py", "generators/continuation.py"),
        (
            "generators/test_continuation.py",
            "generators/test_enumerable.py",
            "generators/test_uncounted.py",
            "generators/test_prompt_forms.py",
            "generators/test_searching.py",
            "generators/test_turns.py",
            "test_durable.py",
            "generators/torch/test_engine.py",
        ),
    ),
    "decode": Slice(
        ("generators/torch/decode.py",),
        (
            "generators/torch/test_engine.py",
            "generators/torch/test_grammar.py",
            "generators/torch/speculation/test_engine.py",
            "generators/torch/search/test_in_engine.py",
            "generators/torch/test_memory.py",
            "generators/torch/test_masses.py",
            "generators/torch/search/test_beam.py",
            "generators/decoding/test_words.py",
        ),
    ),
    "speculation": Slice(
        ("generators/torch/speculation/*.py", "analysis/speculation.py"),
        (
            "analysis/test_speculation.py",
            "generators/torch/speculation/test_*.py",
            "generators/torch/test_masses.py",
        ),
    ),
    "strategies": Slice(
        ("strategies/*.py",),
        ("strategies/test_*.py", "strategies/sequential/test_sequential.py", "docs/test_html.py"),
    ),
    "trees": Slice(("strategies/tree/*.py",), ("strategies/tree/test_*.py",)),
    "chains": Slice(("strategies/chain/*.py",), ("strategies/chain/test_*.py",)),
    "refinement": Slice(("strategies/refine/*.py",), ("strategies/refine/test_*.py",)),
    "adaptive": Slice(("strategies/adaptive/*.py",), ("strategies/adaptive/test_*.py",)),
    "sequential": Slice(("strategies/sequential/*.py",), ("strategies/sequential/test_*.py",)),
    "verifiers": Slice(("verifiers/*.py",), ("verifiers/test_*.py",)),
    "analysis": Slice(("analysis/*.py",), ("analysis/test_*.py",)),
    "questions": Slice(
        ("runs/questions/*.py", "runs/curves/frontier.py"),
        ("runs/questions/test_*.py", "runs/curves/test_checks.py"),
    ),
}
