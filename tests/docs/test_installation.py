"""Nobody is told to install the other project that has metagen's name on the public index."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from metagen.errors import install

ROOT = Path(__file__).resolve().parents[2]
NAME = "meta" + "gen"
#: `pip install`, options, and the bare name; or the bare name with extras.
BARE = re.compile(rf"pip3?\s+install\s+(?:-\S+\s+)*['\"]?{NAME}(?![\w.-])|(?<![\w./-]){NAME}\[[a-z]")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def files() -> list[Path]:
    """What is kept: all that git tracks; of an unpacked sdist, all that it holds."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    names = done.stdout.split("\0") if done.returncode == 0 else map(str, ROOT.rglob("*"))
    return [path for path in (ROOT / name for name in names) if path.is_file() and not path.is_symlink()]


def test_no_command_installs_the_other_project() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files()
        if path.suffix in {"", ".md", ".py", ".pyi", ".toml", ".yaml", ".yml", ".txt", ".html"}
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if BARE.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        (f"pip install {NAME}", True),
        (f"pip install -U '{NAME}[torch]'", True),
        (f"in an environment with `{NAME}[torch]`", True),
        ("pip install -e '.[torch]'", False),
        (f"pip uninstall --yes {NAME}", False),
        (f"pip install {NAME}eration", False),
        (f"{NAME}.[a-z]", False),
    ],
)
def test_the_search_finds_the_bare_name_alone(text: str, bare: bool) -> None:
    found = BARE.search(text) is not None
    assert found == bare


def test_the_name_is_our_own_wherever_it_stands() -> None:
    assert PROJECT["name"] == "metageneration"
    own = [
        one for extra in PROJECT["optional-dependencies"].values() for one in extra if one.startswith(NAME)
    ]
    assert own and all(re.fullmatch(rf"{PROJECT['name']}\[[a-z]+\]", one) for one in own)
    assert PROJECT["scripts"] == {NAME: "metagen.cli:main"}
    assert PROJECT["name"] in (ROOT / "metagen/cli/doctor.py").read_text(encoding="utf-8")
    assert "-e '.[torch]'" in install("torch")


def test_the_page_has_every_extra_and_is_linked() -> None:
    page = (ROOT / "docs/installation.md").read_text(encoding="utf-8")
    assert [extra for extra in PROJECT["optional-dependencies"] if f"`{extra}`" not in page] == []
    for name in ("README.md", "docs/index.md", "docs/tutorial.md", "mkdocs.yml"):
        assert "installation.md" in (ROOT / name).read_text(encoding="utf-8"), name
