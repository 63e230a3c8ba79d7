"""A study of two made-up models: what is true of it is known, so that findings can be checked."""

from __future__ import annotations

import numpy as np

from metagen.analysis.estimators import best_of_k, majority_at_k, pass_at_k, weighted_at_k
from metagen.runs.curves.study import Curve, Floats, Model, StudyResult, Tuned, Votes
from metagen.runs.note import Note

SIZES = {"small": 1e5, "large": 1e6}
TOKENS = 50


def _votes(model: str, role: str, skill: Floats, samples: int, rng: np.random.Generator) -> Votes:
    """Right with probability `skill` of the problem; wrong answers share three classes; the score tells a little."""
    correct = rng.random((len(skill), samples)) < skill[:, None]
    classes = np.where(correct, 0, rng.integers(1, 4, size=correct.shape))
    score = np.clip(rng.normal(0.35 + 0.3 * correct, 0.2), 0.0, 1.0)
    full = np.full(correct.shape, float(TOKENS))
    return Votes(
        model, role, classes, correct, np.ones_like(correct), {"prm": score}, full, -0.5 * full,
        np.full(len(skill), samples),
    )  # fmt: skip


def made(problems: int = 60, samples: int = 32, seed: int = 0) -> StudyResult:
    """Pools of both models with a limit pool each, a search of each, an oracle; levels 1–3, hardest last."""
    rng = np.random.default_rng(seed)
    levels = np.arange(problems) % 3 + 1
    curves, votes = [], []
    for model, base in (("small", 0.35), ("large", 0.6)):
        skill = np.clip(base + 0.15 * (2 - levels) + rng.normal(0, 0.15, problems), 0.02, 0.98)
        pool = _votes(model, "test", skill, samples, rng)
        votes += [pool, _votes(model, "limit", skill, 4 * samples, rng)]
        ks = [2**i for i in range(samples.bit_length())]
        every = {
            "majority": majority_at_k(pool.classes, pool.correct, ks, np.random.default_rng(0)),
            "weighted": weighted_at_k(
                pool.classes, pool.scores["prm"], pool.correct, ks, np.random.default_rng(0)
            ),
            "best": best_of_k(pool.scores["prm"], pool.correct, ks),
        }
        for strategy, found in every.items():
            verifier = None if strategy == "majority" else "prm"
            kind = "best_of_n" if strategy == "best" else strategy
            made_costs, judged = _costs(model, ks, problems, verifier is not None)
            curves.append(
                Curve(model, strategy, kind, np.array(ks), found.accuracy, found.error, made_costs, judged,
                      verifier=verifier)
            )  # fmt: skip
        covered = np.stack([pass_at_k(samples, pool.correct.sum(axis=1), k) for k in ks])
        made_costs, judged = _costs(model, ks, problems, False)
        curves.append(
            Curve(model, "pass", "best_of_n", np.array(ks), covered, np.zeros_like(covered), made_costs, judged,
                  verifier="oracle", oracle=True)
        )  # fmt: skip
        search = [4, 16]
        found_right = np.clip(np.stack([skill + 0.05, skill + 0.15]), 0.0, 1.0)
        right = (rng.random((2, problems)) < found_right).astype(float)
        made_costs, judged = _costs(model, search, problems, True)
        curves.append(
            Curve(model, "rebase", "rebase", np.array(search), right, np.zeros_like(right), made_costs, judged,
                  source="run", verifier="prm", setting="temperature=0.2")
        )  # fmt: skip
    tuned = tuple(Tuned(m, "rebase", {"temperature=0.1": 0.5, "temperature=0.2": 0.6}, "temperature=0.2", 24, 1e9)
                  for m in SIZES)  # fmt: skip
    return StudyResult(
        "made", seed, tuple(f"p{i}" for i in range(problems)), levels,
        tuple(Model(m, n, 1.0) for m, n in SIZES.items()), tuple(curves), tuple(votes), tuned,
        (Note("money", "prices are unknown: give engines.NAME.price"),), {"flops": (1e8, 1e9)}, {"dev": 24},
    )  # fmt: skip


def _costs(model: str, ns: list[int], problems: int, judged: bool) -> tuple[dict[str, Floats], Floats]:
    """Costs in proportion to n; a verifier of 3·10⁵ parameters reads every token."""
    n = np.repeat(np.array(ns, dtype=float)[:, None], problems, axis=1)
    verifying = n * 2 * 3e5 * TOKENS * judged
    flops = n * 2 * SIZES[model] * TOKENS + verifying
    return {
        "samples": n, "generated": n * TOKENS, "tokens": n * TOKENS * (2 if judged else 1), "flops": flops,
        "flops_2n": flops, "money": np.full(n.shape, np.nan), "seconds": flops / 1e9,
        "roofline:h200": flops / 1e12, "latency:h200": np.full(n.shape, SIZES[model] * TOKENS / 1e9),
    }, verifying  # fmt: skip
