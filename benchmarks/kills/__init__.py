"""Kills of real processes at moments drawn at random: what is lost, what is paid for twice, and what comes out.

`python -m benchmarks kills`. KILLS=20 in the environment sets how many (200). What is interrupted goes on where it was,
unless metagen or this package has changed meanwhile; `runs/kills` holds that, and each trial that shows a fault.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from benchmarks.kills.scenes import SCENES, Scene
from benchmarks.kills.trial import ROOT, SIGNALS, Found, Model, Trial
from benchmarks.row import Row
from metagen.sequence import digest

KILLS = int(os.environ.get("KILLS", "200"))
PLACE = ROOT / "runs" / "kills"


def rows() -> Iterator[Row]:
    found = campaign(KILLS)
    kills = sum((Counter(one.kills) for one in found), Counter[str]())
    scenes = sum((Counter({one.scene: sum(one.kills.values())}) for one in found), Counter[str]())
    faults: Counter[str] = Counter()
    for one in found:
        for fault in one.faults:
            faults[fault.kind] += fault.count
    how = (
        f"{len(found)} trials of {', '.join(f'{name} ({n})' for name, n in scenes.items())}: "
        f"{', '.join(f'{kills[number.name]} {number.name}' for number in SIGNALS)}; each gone on with to its end"
    )
    finished = sum(one.finished for one in found)
    held = f"of {finished:,} that a ledger outside of metagen says were finished; {how}"
    yield Row("kills", kills.total(), "", how, f"≥ {KILLS}")
    yield Row("kills: samples and scores lost", faults["lost"], "", held, "≤ 0")
    yield Row("kills: recorded samples and scores paid for twice", faults["twice"], "", held, "≤ 0")
    yield Row("kills: results other than of a run that nobody kills", faults["differs"], "", how, "≤ 0")
    yield Row("kills: commands that hang, or end with a wrong exit code", faults["command"], "", how, "≤ 0")
    struck = "finished and not yet on disk in the moment of a SIGKILL; paid for again, as nobody had been told of them"
    yield Row("kills: on their way at a SIGKILL", sum(one.unheard for one in found), "", struck)
    oldest = 1000 * max(one.oldest for one in found)
    yield Row("kills: longest time on its way at a SIGKILL", oldest, "ms", struck)
    after = "a server, or a replica of a shard, that had not yet heard of the end of its client"
    yield Row("kills: finished elsewhere after the signal", sum(one.after for one in found), "", after)


def campaign(kills: int) -> list[Found]:
    """Trials until there are so many kills; those of an earlier call that was interrupted are not run again."""
    state, name = PLACE / "trials.jsonl", code()
    lines = state.read_text().splitlines() if state.exists() else []
    if not lines or json.loads(lines[0]) != name:
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir(parents=True)
        lines = [json.dumps(name)]
        state.write_text(lines[0] + "\n")
    found = [Found.of(json.loads(line)) for line in lines[1:]]
    models: dict[str, Model] = {}
    with ExitStack() as stack:
        for number, scene in enumerate(drawn()):
            done = sum(sum(one.kills.values()) for one in found)
            if done >= kills:
                break
            if number < len(found):
                continue
            if scene.name not in models:
                if scene.executor is not None:
                    os.environ["RAY_ADDRESS"] = stack.enter_context(cluster())
                root = PLACE / f"{scene.name} alone"
                shutil.rmtree(root, ignore_errors=True)
                models[scene.name] = Model(scene, root)
            root = PLACE / str(number)
            shutil.rmtree(root, ignore_errors=True)
            one = Trial(scene, number, models[scene.name], root).run()
            if not one.faults:
                shutil.rmtree(root)
            with state.open("a") as file:
                file.write(json.dumps(asdict(one)) + "\n")
            found.append(one)
            said = "".join(f"\n    {fault.kind}: {fault.words}" for fault in one.faults)
            print(f"  {done + sum(one.kills.values()):4} of {kills}  {number} {scene.name}{said}", flush=True)
    state.unlink()
    return found


def drawn() -> Iterator[Scene]:
    """Scenes without end, each as often as its weight says."""
    scenes = [scene for scene in SCENES if scene.executor is None or find_spec("ray") is not None]
    credit = Counter[str]()
    while True:
        for scene in scenes:
            credit[scene.name] += scene.weight
        best = max(scenes, key=lambda scene: credit[scene.name])
        credit[best.name] -= sum(scene.weight for scene in scenes)
        yield best


def code() -> str:
    """Names what is measured."""
    files = sorted([*(ROOT / "metagen").rglob("*.py"), *Path(__file__).parent.glob("*.py")])
    return digest(*(file.read_bytes() for file in files)).hex()


@contextmanager
def cluster() -> Iterator[str]:
    """The address of a Ray cluster on this machine, that outlives those who use it."""
    before = dict(os.environ)
    os.environ |= {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    # Actors find this package where the processes of the cluster do.
    os.environ["PYTHONPATH"] = str(ROOT)
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={
            "node_ip_address": "127.0.0.1",
            "include_dashboard": False,
            "object_store_memory": 80 << 20,
            "num_cpus": 8,
        },
    )
    try:
        yield made.address
    finally:
        made.shutdown()
        os.environ.clear()
        os.environ |= before
