"""The examples of chains: the one on the embedded models runs, and the templates for real ones are built."""

from __future__ import annotations

import importlib.util
import string
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from metagen.generators.enumerable import EnumerableEngine
from metagen.strategies.base import Strategy
from metagen.verifiers.code.isolation import IsolationError

EXAMPLES = Path(__file__).parents[3] / "examples"
TEMPLATES = sorted(path for path in (EXAMPLES / "templates").glob("*.py") if path.stem != "model")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The templates import one another, as scripts do."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "templates"))
    yield
    for path in EXAMPLES.glob("templates/*.py"):
        sys.modules.pop(path.stem, None)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
@pytest.mark.usefixtures("beside")
def test_a_template_is_built_without_a_model(path: Path) -> None:
    module = load(path)
    # Some are held to a grammar, which the tokens must be able to write.
    tokens = (*string.printable, "</s>")
    engine = EnumerableEngine(tokens, {(): [1 / len(tokens)] * len(tokens)})
    try:
        made = module.build(engine.generator(max_tokens=64))
    except IsolationError as error:
        pytest.skip(f"untrusted programs cannot be isolated on this machine: {error}")
    assert (
        isinstance(made, Strategy)
        and made.fingerprint == module.build(engine.generator(max_tokens=64)).fingerprint
    )
    assert module.__doc__ and not made.oracle


def test_there_is_a_template_for_every_pattern() -> None:
    assert len(TEMPLATES) >= 10


@pytest.mark.usefixtures("beside")
def test_a_template_runs_on_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    import model  # type: ignore[import-not-found]  # beside the templates

    template = load(EXAMPLES / "templates" / "chain_of_thought.py")
    result = model.solve(template.build, ["tiny-0.1m", "Q:a=12+7;a?"])
    shown = capsys.readouterr()
    assert shown.out.strip() == result.text.strip() and "0/sample/4/answer/0/answer" in shown.err
    with pytest.raises(SystemExit, match="two arguments"):
        model.solve(template.build, [])


@pytest.mark.usefixtures("beside")
def test_the_tools_of_the_template_work() -> None:
    module = load(EXAMPLES / "templates" / "tool_use.py")
    assert module.calculate("-(3 + 4) * 2 / 7") == -2 and module.days_between("2024-02-28", "2024-03-01") == 2
    for wrong in ("__import__('os')", "1 +", "1/0", "2 ** 9"):
        with pytest.raises(module.ToolError):
            module.calculate(wrong)


def test_chains_on_the_embedded_models(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = load(EXAMPLES / "chains.py")
    monkeypatch.setattr(sys, "argv", ["chains.py", "--per-level", "4", "--model", "tiny-0.1m"])
    module.main()
    said = capsys.readouterr().out
    rows = {
        line[:30].strip(): line[30:].split() for line in said.splitlines() if line[30:].strip()[:1].isdigit()
    }
    assert float(rows["… with a calculator"][0]) >= float(rows["thought, then answer"][0])
    assert float(rows["… rewritten first"][0]) == float(rows["thought, then answer"][0]), (
        "what distracts is all gone"
    )
