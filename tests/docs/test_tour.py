"""The notebook of examples/: it runs, and what is kept of it is small and says nothing of a machine.

python tests/docs/test_tour.py      # runs it, and keeps what it shows
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TOUR = Path(__file__).parents[2] / "examples" / "tour.ipynb"
#: Bytes; the figure is the most of it.
LARGEST = 200_000
#: Paths of machines, dates, durations, addresses of objects.
TELLS = (
    r"/(?:home|root|tmp|Users|work|usr|opt)/|[A-Z]:\\\\|0x[0-9a-f]{6,}|\d{4}-\d\d-\d\d|"
    r"\d+(?:\.\d+)? ?(?:ms|s|seconds|minutes)\b"
)


def executed(place: Path) -> nbformat.NotebookNode:
    notebook = nbformat.read(TOUR, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", record_timing=False,
        resources={"metadata": {"path": str(place)}},
    )  # fmt: skip
    client.execute()
    return notebook


def shown(notebook: nbformat.NotebookNode) -> list[list[tuple[str, list[str]]]]:
    """Of each cell the kinds of its outputs."""
    return [
        [(output.output_type, sorted(output.get("data", {}))) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_the_notebook_runs_and_shows_what_is_kept(tmp_path: Path) -> None:
    fresh, kept = executed(tmp_path), nbformat.read(TOUR, as_version=4)
    assert shown(fresh) == shown(kept)
    kinds = {kind for cell in shown(fresh) for _, data in cell for kind in data}
    assert {"text/html", "image/png"} <= kinds
    assert not list(tmp_path.iterdir()), "the notebook leaves files where it is opened"


def test_what_is_kept_is_small_and_says_nothing_of_a_machine() -> None:
    assert TOUR.stat().st_size < LARGEST
    notebook = nbformat.read(TOUR, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert sum(bool(cell.outputs) for cell in code) == len(code) - 1, "run this file to keep outputs"
    texts = [
        text
        for cell in code
        for output in cell.outputs
        for kind, text in [*output.get("data", {}).items(), ("", output.get("text", ""))]
        if not kind.startswith("image/")
    ]
    told = [found for text in texts for found in re.findall(TELLS, text)]
    assert told == []
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert notebook.metadata.language_info == {"name": "python"}


def keep() -> None:
    """Run the notebook, and keep what it shows."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        notebook = executed(Path(place))
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
    nbformat.write(notebook, TOUR)


if __name__ == "__main__":
    keep()
