"""Importing metagen is cheap, and offers what its stub promises."""

import ast
import subprocess
import sys
from pathlib import Path

import networkx
import pytest

import metagen

HEAVY = [
    "torch",
    "transformers",
    "matplotlib",
    "pandas",
    "numpy",
    "scipy",
    "pydantic",
    "rich",
    "ray",
    "sympy",
    "mpmath",
    "vllm",
]


def test_import_loads_nothing_heavy() -> None:
    code = f"import metagen, sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_dry_run_loads_no_statistics(tmp_path: Path) -> None:
    """Half a second, of which most commands need nothing."""
    file = Path(metagen.__file__).parents[1] / "examples" / "quickstart.yaml"
    heavy = ["torch", "transformers", "matplotlib", "pandas", "scipy.stats", "scipy.optimize"]
    code = (
        "import sys; from metagen.cli import app; "
        f"app(['run', {str(file)!r}, '--dry-run'], standalone_mode=False); "
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout.strip().splitlines()[-1] == "[]"


def test_import_loads_one_module() -> None:
    """The stub, which names what there is, is read when the first name is asked for."""
    code = "import sys; before = set(sys.modules); import metagen; print(*{*sys.modules} - before)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["metagen"]


@pytest.mark.parametrize("name", metagen.__all__)
def test_public_name_resolves(name: str) -> None:
    assert getattr(metagen, name) is not None
    assert name in dir(metagen)


def test_stub_repeats_each_name() -> None:
    """`import A as A` is what type checkers take for a public name."""
    stub = Path(metagen.__file__).with_suffix(".pyi").read_text("utf-8")
    aliases = [a for node in ast.parse(stub).body if isinstance(node, ast.ImportFrom) for a in node.names]
    assert aliases
    assert all(a.name == a.asname for a in aliases)


def test_unknown_name_names_the_nearest() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Promt'") as caught:
        _ = metagen.Promt
    assert (caught.value.name, caught.value.obj) == ("Promt", metagen)


def import_graph(root: Path) -> "networkx.DiGraph[str]":
    """Which module of a package names which in an import, wherever in its file, for type checkers too.

    The package itself is left out: its face imports what it names when somebody asks for it.
    """
    paths = {path.relative_to(root).with_suffix("").as_posix(): path for path in root.rglob("*.py")}
    modules = {name.removesuffix("/__init__").replace("/", "."): path for name, path in paths.items()}
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path} imports by dots, which this test does not read"
                named = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for target in named:
                package, _, rest = target.partition(".")
                while package == root.name and rest and rest not in modules:
                    rest = rest.rpartition(".")[0]
                if package == root.name and rest and rest != name:
                    graph.add_edge(name, rest)
    return graph


def circles(graph: "networkx.DiGraph[str]") -> set[frozenset[str]]:
    return {frozenset(part) for part in networkx.strongly_connected_components(graph) if len(part) > 1}


def test_no_modules_import_each_other() -> None:
    """Not within functions, and not for type checkers alone either."""
    found = circles(import_graph(Path(metagen.__file__).parent))
    assert found == set(), "move down what their modules share, or let the lower one ask by a protocol"


def test_a_circle_is_found_wherever_its_imports_stand(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    for name, source in {
        "one.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from package import two",
        "two.py": "def f():\n    from package.inner.three import x",
        "inner/__init__.py": "import package.one",
        "inner/three.py": "from package.inner import y\nimport ast",
        "above.py": "import package.one, package.two",
    }.items():
        (package / name).write_text(source)
    assert circles(import_graph(package)) == {frozenset({"one", "two", "inner", "inner.three"})}
