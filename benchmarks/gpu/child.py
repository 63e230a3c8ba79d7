"""One piece in a process of its own: `python -m benchmarks.gpu.child SOURCE …` writes a line of JSON for each event."""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.gpu.place import Place
from benchmarks.gpu.processes import end_with_parent
from benchmarks.gpu.row import Lacks
from metagen.errors import absent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", help="module:function, and :argument for each of its own")
    parser.add_argument("--out", type=Path, required=True, help="where events are appended")
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--skip", default="[]", help="tasks that are done, as JSON")
    options = parser.parse_args()
    module, function, *args = options.source.split(":")
    end_with_parent()
    place, skip = Place(options.rehearse, options.models), set(json.loads(options.skip))
    if options.rehearse:
        import torch

        torch.set_num_threads(1)
    with options.out.open("a") as out:

        def tell(**event: Any) -> None:
            out.write(json.dumps(event) + "\n")
            out.flush()

        try:
            for name, work in getattr(importlib.import_module(module), function)(place, *args):
                if name not in skip:
                    run(name, work, tell)
        except (ImportError, Lacks) as error:
            if (said := remedy(error)) is None:
                raise
            tell(task="start", event="missing", error=said, seconds=0.0)


def remedy(error: BaseException) -> str | None:
    """What is not installed, and what to do; None if that is not why."""
    if isinstance(error, Lacks):
        return str(error)
    name = absent(error)
    return (
        f"{name} is missing; pip install {name.partition('.')[0]}, then run the same command again"
        if name
        else None
    )


def run(name: str, work: Any, tell: Any) -> None:
    began = time.perf_counter()
    tell(task=name, event="begin")
    try:
        for row in work():
            tell(task=name, event="row", row=row.to_dict(), seconds=time.perf_counter() - began)
    except Exception as error:  # noqa: BLE001 - whatever it is becomes a row, and the other tasks go on
        if (lack := remedy(error)) is not None:
            tell(task=name, event="missing", error=lack, seconds=time.perf_counter() - began)
            return
        traceback.print_exc()
        said = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        tell(task=name, event="error", error=said, seconds=time.perf_counter() - began)
        del error
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        return
    tell(task=name, event="done", seconds=time.perf_counter() - began)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
