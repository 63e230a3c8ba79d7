"""Write requirements/*.txt anew from pyproject.toml and constraints.txt; uv must be installed.

Each file has what its extra needs beyond the files that it stands on, with all hashes that the package index publishes
for these versions: those of every Python and platform. Which build of torch is right depends on the machine, so torch
and what only its builds for GPUs need stay out.
"""

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
#: Each file, the extra that it completes, and the files that it stands on. docs: a tool of it wants this Python.
FILES = {
    "core": ("", (), "3.11"),
    "torch": ("torch", ("core",), "3.11"),
    "test": ("test", ("core", "torch"), "3.11"),
    "lint": ("lint", ("core", "torch", "test"), "3.11"),
    "docs": ("docs", ("core",), "3.11.5"),
}
OF_TORCH = re.compile(r"(torch|triton|nvidia-.*|cuda-.*)==")
#: What builds metagen itself.
BUILD = "hatchling\neditables\n"


def locked(extra: str, python: str) -> list[str]:
    """Requirements with their hashes, one of several lines each."""
    command = [
        "uv", "pip", "compile", "--quiet", "--universal", "--python-version", python, "--generate-hashes",
        "--no-header", "--no-annotate", "--no-emit-package", "metageneration", "--constraint", "constraints.txt",
        "pyproject.toml", "-", *(["--extra", extra] if extra else []),
    ]  # fmt: skip
    found = subprocess.run(
        command, cwd=HERE.parent, input=BUILD, text=True, check=True, stdout=subprocess.PIPE
    )
    return re.findall(r"^\S.*(?:\n    .*)*", found.stdout, re.MULTILINE)


def main() -> None:
    """Write all files."""
    made: dict[str, list[str]] = {}
    for name, (extra, below, python) in FILES.items():
        known = {one.split("\n")[0] for file in below for one in made[file]}
        made[name] = [
            one for one in locked(extra, python)
            if one.split("\n")[0] not in known and not OF_TORCH.match(one)
        ]  # fmt: skip
        text = "# Made by requirements/renew.py; installed by the Makefile.\n" + "\n".join(made[name]) + "\n"
        (HERE / f"{name}.txt").write_text(text, encoding="utf-8")
        print(f"{name}: {len(made[name])} packages", file=sys.stderr)


if __name__ == "__main__":
    main()
