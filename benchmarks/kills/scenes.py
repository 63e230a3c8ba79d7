"""What is killed: experiments, the commands that run them, and how often each is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PARTS = "benchmarks.kills.parts"
VOTES = {
    "majority": {"kind": "majority", "n": 8},
    "weighted": {"kind": "weighted", "verifier": "judge", "n": 8},
}
REBASE = {"rebase": {"kind": "rebase", "verifier": "judge", "n": 6}}
MCTS = {"mcts": {"kind": "mcts", "verifier": "judge", "width": 2, "n": 4}}
REFINEMENT = {"refine": {"kind": "refinement", "verifier": "judge", "n": 3, "rounds": 2}}
STUDY = {
    "baselines": False,
    "budgets": {"samples": [2]},
    "development": {
        "share": 0.5,
        "n": 4,
        "trials": 2,
        "settings": {"weighted": [{}, {"generator.temperature": 0.7}]},
    },
}
SHARDS = {"kind": "ray", "concurrency": 4, "replicas": 2, "shards": 2}


@dataclass(frozen=True, slots=True)
class Scene:
    """One kind of work that is killed, and resumed.

    command: of the command line, `run`, `study` or `report`. weight: how many of 100 trials. served: whether the
    engine is a server in a process of its own, that is asked over HTTP; streamed: in chunks.
    """

    name: str
    strategies: dict[str, Any]
    weight: int
    command: str = "run"
    served: bool = False
    streamed: bool = False
    budget: int | None = None
    executor: dict[str, Any] | None = None

    @property
    def remote(self) -> bool:
        """Whether samples are finished in another process than the one that is killed."""
        return self.served or self.executor is not None

    def write(self, file: Path, ledger: Path, port: int | None) -> None:
        """The experiment, as a file."""
        engine: dict[str, Any] = {"kind": f"{PARTS}:Billed", "ledger": str(ledger)}
        if self.executor is not None:
            engine["ids"] = False
        if self.served:
            engine = {
                "kind": "openai",
                "model": "billed",
                "base_url": f"http://127.0.0.1:{port}/v1",
                "api": "completions",
                "seed_bits": 63,
                "stream": self.streamed,
            }
        content: dict[str, Any] = {
            "name": "kills",
            "task": {"kind": f"{PARTS}:Digits", "count": 12 if self.command == "study" else 6},
            "engines": {"billed": engine},
            "generators": {"writer": {"engine": "billed", "temperature": 1.0, "max_tokens": 60}},
            "verifiers": {"judge": {"kind": f"{PARTS}:verifier", "ledger": str(ledger)}},
            "strategies": self.strategies,
            "grid": {},
            "executor": self.executor or {"kind": "local", "concurrency": 3},
        }
        if self.budget is not None:
            content["budget"] = {"generated": self.budget}
        if self.command == "study":
            content["study"] = STUDY
        file.write_text(yaml.safe_dump(content, sort_keys=False))


SCENES = (
    Scene("votes", VOTES, 16),
    Scene("rebase", REBASE, 12),
    Scene("rebase under a budget", REBASE, 6, budget=150),
    Scene("mcts", MCTS, 14),
    Scene("refinement", REFINEMENT, 12),
    Scene("votes over HTTP", VOTES, 8, served=True),
    Scene("votes over HTTP, streamed", VOTES, 6, served=True, streamed=True),
    Scene("refinement over HTTP", REFINEMENT, 6, served=True),
    Scene("study", VOTES, 8, command="study"),
    Scene("report", VOTES | REBASE, 6, command="report"),
    Scene("shards", VOTES | REFINEMENT, 6, executor=SHARDS),
)
