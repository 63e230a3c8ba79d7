"""Questions that a study has no parts for, and what its file would have to give to ask them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from metagen.runs.curves.study import StudyResult
from metagen.runs.declare import registry
from metagen.runs.declare.study import AlignmentSpec
from metagen.runs.note import Note

SIZES = "A small model with many samples, or a large one with few?"
REBASE = "Does REBASE dominate voting at equal compute?"
SATURATES = "Where does voting saturate?"
WEIGHTS = "Does weighting votes raise the limit of voting?"
OPTIMAL = "How far from the optimal trade-off of reward and KL is best-of-n?"
ADAPTIVE = "Does adaptive allocation pay?"
LONGER = "More samples, or longer thought?"
VERIFY = "Spend on more samples, or on verifying?"
WARMTH = "Which temperature is best for how many samples?"

#: Kinds of strategies that search with REBASE.
TREES = ("rebase", "async_rebase")


def missing_questions(
    result: StudyResult, extras: Mapping[str, StudyResult], aligned: AlignmentSpec | None = None
) -> dict[str, str]:
    """By question, what of the file asks it; of questions whose models, strategies or roles the study has not.

    What it has and could not measure is no matter of this: such a question is asked, and stays unanswered.
    """
    curves = [curve for curve in result.curves if not curve.oracle]
    knowing = {curve.verifier for curve in result.curves if curve.oracle}
    pools = [pool for pool in result.votes if pool.role == "test"]
    roles = {*extras, *result.facts}
    limits = any(pool.role == "limit" for pool in result.votes)

    votes, thinking = registry.saying("votes"), registry.saying("thinks")

    def models(kinds: Iterable[str]) -> set[str]:
        return {curve.model for curve in curves if curve.kind in kinds}

    asks = {
        SIZES: (
            any(len(models([kind])) > 1 for kind in votes),
            "two generators with a strategy of kind majority",
        ),
        REBASE: (models(TREES) & models(votes), "strategies of kinds rebase and majority"),
        SATURATES: (limits and models(["majority"]), "study.limit and a strategy of kind majority"),
        WEIGHTS: (limits and models(["weighted"]), "study.limit and a strategy of kind weighted"),
        OPTIMAL: (
            aligned is not None or any(set(pool.scores) - knowing for pool in pools),
            "study.alignment and a strategy with a verifier",
        ),
        ADAPTIVE: (
            pools or models(registry.saying("adaptive")),
            "strategies of kinds adaptive_consistency and majority",
        ),
        LONGER: (
            models(thinking) & models(["majority"]),
            "strategies of kinds budget_forcing and majority",
        ),
        VERIFY: ("splitting" in roles, "study.splitting"),
        WARMTH: ("temperature" in roles, "study.temperature"),
    }
    return {question: needs for question, (parts, needs) in asks.items() if not parts}


def note(lacking: Mapping[str, str]) -> tuple[Note, ...]:
    """One sentence of all that was not asked; none where everything was."""
    if not lacking:
        return ()
    every = "; ".join(f"{question} (give {needs})" for question, needs in lacking.items())
    return (Note("not asked", f"the study's file has no parts for: {every}"),)
