"""Pictures and tables of reward against KL divergence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isfinite, isinf, isnan, nan

import numpy as np

from metagen.analysis.alignment import MARKS, kl_bound, win_rate_bound
from metagen.analysis.figures import Line
from metagen.analysis.intervals import SHARES, Support
from metagen.runs.curves.study import Curve, Floats, StudyResult
from metagen.runs.note import Note
from metagen.runs.questions.alignment.enumerable import ENSEMBLE, Reached, exact, frontier
from metagen.runs.questions.alignment.pools import Reach, mean_of, share
from metagen.runs.questions.alignment.studied import Studied
from metagen.runs.questions.section import Plot, Table
from metagen.runs.words import join_words, with_interval
from metagen.runs.words import share as percent

NATS = "KL(π ‖ p) in nats"
#: Policies of the exact picture, and the n of its table.
DRAWN = (
    "best-of-n", "soft best-of-16", "by one proxy", f"pessimistic, of {ENSEMBLE}", "blocks of 2",
    "token-wise, expected value",
)  # fmt: skip
TOLD = ("n = 4", "n = 16", "n = 64", "n = 1024")


def exact_plot() -> Plot:
    """Reward against KL on models that can be enumerated, below what is possible."""
    panels = {}
    for model, reached in exact():
        most = float(model.r.max()) - model.mean
        by: dict[str, list[Reached]] = {policy: [] for policy in DRAWN}
        for one in sorted(reached, key=lambda r: r.kl):
            by.setdefault(one.policy, []).append(one)
        x, y = frontier(model, max(one.kl for policy in DRAWN for one in by[policy]))
        panels[model.name] = [Line("tilt: the most possible", x, [v / most for v in y])] + [
            Line(policy, [r.kl for r in by[policy]], [r.reward / most for r in by[policy]])
            for policy in DRAWN
        ]
    return Plot(
        "alignment-exact", "Reward against KL, exactly",
        "Models that can be enumerated. A proxy is the reward with heavy-tailed noise. The pessimistic choice uses "
        f"{ENSEMBLE} of them.", NATS, "share of the largest gain", panels, "linear", marks=marks(panels),
    )  # fmt: skip


def exact_table() -> Table:
    """The same in numbers: reward over the model's, and of what the tilt gains at equal KL."""
    rows = [
        (
            model.name, r.policy, r.knob, nats(r.kl), nats(r.bound), f"{r.reward:+.3f}".replace("-", "−"),
            percent(r.reward / r.optimal if r.optimal > 0 else nan), percent(r.wins),
        )
        for model, reached in exact()
        for r in reached
        if r.knob in TOLD or not r.knob.startswith("n = ")
    ]  # fmt: skip
    return Table(
        "alignment_exact", "Exact figures on models that can be enumerated. sd is the reward's standard deviation "
        "under p.",
        ("model", "policy", "setting", "KL", "bound", "gain in reward", "of the tilt's", "wins against p"), tuple(rows),
        frozenset(range(3, 8)),
    )  # fmt: skip


def reach_plots(every: Sequence[Studied], meant: str, result: StudyResult) -> list[Plot]:
    """What is chosen by, and what is meant, against KL; a panel for each model.

    Beside the reward of policies on pools, hollow, that of policies of the real model that was measured.
    """
    by = join_words(sorted({one.pool.verifier for one in every}))
    plots = []
    for name, title, y, of in (
        ("alignment-reward", "Reward against KL", "reward", lambda r: r.reward),
        ("alignment-gold", f"{meant.capitalize()} against KL", meant, lambda r: r.gold),
    ):
        panels = {one.pool.model: _lines(one, of) for one in every}
        caption = f"Pools as models, means over problems. The reward is {by}, and the tilt uses it."
        points = beside(every, result) if name == "alignment-reward" else {}
        if any(points.values()):
            caption += (
                " Hollow marks are of the real model: blockwise decoding at the bound on its KL, and other "
                "temperatures, adapters and engines at their measured KL. The latter were sampled on other problems, "
                "so they are drawn at the pool's mean plus their gain over the model as written."
            )
        plots.append(
            Plot(
                name, title, caption, NATS, y, panels, "linear", marks=marks(panels, points), points=points
            )
        )  # fmt: skip
    return plots


def beside(every: Sequence[Studied], result: StudyResult) -> dict[str, dict[str, tuple[float, float]]]:
    """By model, what has a reward by the verifier of its panel and a finite KL, or a bound on it.

    What was sampled on other problems stands above the pool's mean by its gain over p, which needs p's own reward
    there.
    """
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for one in every:
        if result.facts.get("proxy") != one.pool.verifier:
            continue
        mine = found.setdefault(one.pool.model, {})
        for curve, point, name in _blockwise(result):
            if curve.model == one.pool.model:
                bound, (rewards, _) = _bound(result, curve, point), _rewards_and_wins(result, curve, point)
                mine[f"{name.partition('/')[2]}, at its bound"] = bound, _mean(rewards)
        for ratio in result.facts.get("ratios", ()):
            if ratio["model"] == one.pool.model and "plain" in ratio:
                gain = _mean(_floats(ratio["reward"]) - _floats(ratio["plain"]))
                mine[ratio["policy"]] = float(np.mean(ratio["kl"])), float(one.pool.reward.mean()) + gain
        found[one.pool.model] = {k: (x, y) for k, (x, y) in mine.items() if isfinite(x) and isfinite(y)}
    return found


def _lines(one: Studied, of: Callable[[Reach], Floats]) -> list[Line]:
    lines = []
    for policy in dict.fromkeys(r.policy for r in one.reached):
        ours = sorted((r for r in one.reached if r.policy == policy), key=lambda r: float(r.kl.mean()))
        lines.append(Line(policy, [float(r.kl.mean()) for r in ours], [float(of(r).mean()) for r in ours]))
    return lines


def proxy_plot(every: Sequence[Studied], meant: str) -> Plot:
    """The proxy's reward and what is meant, of the best of n by the proxy."""
    panels = {}
    for one in every:
        ns = [b.n for b in one.bests]
        lines = []
        for label, rows in (
            (f"{one.pool.verifier}, which chooses", [mean_of(b.reward) for b in one.bests]),
            (meant, [mean_of(b.gold, support=SHARES if one.pool.binary else None) for b in one.bests]),
        ):
            y, low, high = np.array(rows).T.tolist()
            lines.append(Line(label, ns, y) if one.few else Line(label, ns, y, low, high))
        panels[one.pool.model] = lines
    return Plot(
        "over-optimisation", "The reward that chooses, and the true goal", "The best of n, over subsets of the pool.",
        "samples n", "mean over problems", panels, "log2",
    )  # fmt: skip


def best_table(every: Sequence[Studied], meant: str) -> Table:
    """The best of n over subsets: how far, what it wins, and how often."""
    rows = [
        (
            one.pool.model, one.pool.verifier, str(b.n), nats(b.bound), nats(b.estimate), number(*mean_of(b.reward)),
            with_interval(*mean_of(b.gold, support=SHARES if one.pool.binary else None)), percent(mean_of(b.wins)[0]),
            percent(win_rate_bound(b.n)), percent(mean_of(b.gold_wins)[0]),
        )
        for one in every
        for b in one.bests
    ]  # fmt: skip
    return Table(
        "alignment_best_of_n",
        f"The best of n by a reward, over subsets. Wins are against one sample, by the reward and by {meant}.",
        ("model", "reward", "n", "KL: bound", "KL: estimate", "mean reward", meant, "wins", "n/(n + 1)",
         f"wins by {meant}"),
        tuple(rows), frozenset(range(2, 10)),
    )  # fmt: skip


def reach_table(every: Sequence[Studied], meant: str) -> Table:
    """Policies on pools as models, and how near they come to the tilt."""
    rows = []
    for one in every:
        for r in one.reached:
            found = share(one.pool, r)
            told = "" if r.policy == "tilt" else with_interval(found.estimate, found.low, found.high)
            rows.append(
                (
                    one.pool.model, r.policy, r.knob, nats(mean_of(r.kl)[0]), number(*mean_of(r.reward)),
                    with_interval(*mean_of(r.gold, support=SHARES if one.pool.binary else None)), told,
                )
            )  # fmt: skip
    return Table(
        "alignment_pools",
        "Policies on pools as models. The last column is the share of the tilt's gain at equal KL on each problem.",
        ("model", "policy", "setting", "KL", "mean reward", meant, "of the tilt's gain"), tuple(rows),
        frozenset(range(3, 7)),
    )  # fmt: skip


def blockwise_table(result: StudyResult) -> tuple[list[Table], list[Note]]:
    """Configurations of blockwise decoding, with the bound that their numbers of blocks make."""
    rows, notes = [], []
    for curve, point, name in _blockwise(result):
        plain = next(
            (c.accuracy[0] for c in result.curves if (c.model, c.kind) == (curve.model, "sample")), None
        )
        accuracy, blocks = curve.accuracy[point], _blocks(result, name)
        meant = accuracy * nan if plain is None else 0.5 * (1.0 + accuracy - plain)
        bound = _bound(result, curve, point)
        if isnan(blocks):
            notes.append(Note(name, "its KL has no bound, because its number of blocks is not recorded"))
        notes += far(name, bound, "may go up to")
        rewards, wins = _rewards_and_wins(result, curve, point)
        if why := result.facts.get("rewards", {}).get(name, {}).get("why"):
            notes.append(Note(name, f"its reward is not measured: {why}"))
        rows.append(
            (
                name, "–" if isnan(blocks) else f"{blocks:.1f}", nats(bound), number(*_mean_of_known(rewards)),
                with_interval(*_mean_of_known(wins, support=SHARES)),
                with_interval(*_mean_of_known(accuracy, support=SHARES)),
                percent(_mean_of_known(meant)[0]),
            )
        )  # fmt: skip
    table = Table(
        "alignment_blocks",
        f"Blockwise decoding. E[blocks] · (log n − (n − 1)/n) bounds its KL. The reward is by {_by(result)}. Wins are "
        "against one sample, by the reward and by right answers.",
        ("configuration", "blocks", "KL: bound", "mean reward", "wins", "accuracy", "wins by accuracy"), tuple(rows),
        frozenset(range(1, 7)),
    )  # fmt: skip
    return [table] if rows else [], notes


def _blockwise(result: StudyResult) -> Iterator[tuple[Curve, int, str]]:
    """Every configuration of blockwise decoding: its curve, the point of it, and its name."""
    for curve in (c for c in result.curves if c.kind == "blockwise"):
        yield from ((curve, point, curve.configuration(point)) for point in range(len(curve.ns)))


def _blocks(result: StudyResult, name: str) -> float:
    known: Mapping[str, float] = result.facts.get("blocks", {})
    return known.get(name, nan)


def _bound(result: StudyResult, curve: Curve, point: int) -> float:
    """On its KL; NaN where the blocks were not counted."""
    blocks = _blocks(result, curve.configuration(point))
    return nan if isnan(blocks) else kl_bound(int(curve.ns[point]), blocks)


def _rewards_and_wins(result: StudyResult, curve: Curve, point: int) -> tuple[Floats, Floats]:
    """The reward by problem, and the wins against one sample of the model's pool; NaN where it is not measured.

    As in pools, what is not eligible has the least reward there is, 0.
    """
    facts = result.facts.get("rewards", {}).get(curve.configuration(point), {})
    known: Mapping[str, float | None] = facts.get("reward", {})
    rewards = _floats([known.get(problem) for problem in result.problems])
    votes = next((v for v in result.votes if (v.model, v.role) == (curve.model, "test")), None)
    scores = None if votes is None else votes.scores.get(str(result.facts.get("proxy")))
    if votes is None or scores is None or not votes.sizes.any():
        return rewards, rewards * nan
    there = np.arange(scores.shape[1]) < votes.sizes[:, None]
    pool = np.where(votes.eligible, scores, 0.0)
    won = np.where(np.isfinite(pool), (rewards[:, None] > pool) + 0.5 * (rewards[:, None] == pool), nan)
    total = np.where(there, won, 0.0).sum(axis=1) / np.maximum(votes.sizes, 1)
    return rewards, np.where(np.isfinite(rewards) & (votes.sizes > 0), total, nan)


def _by(result: StudyResult) -> str:
    return str(result.facts.get("proxy") or "no verifier")


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array([nan if value is None else value for value in values], np.float64)


def _mean_of_known(values: Floats, *, support: Support | None = None) -> tuple[float, float, float]:
    """`mean_of` over the problems that have a value."""
    return mean_of(values[np.isfinite(values)], support=support)


def _mean(values: Floats) -> float:
    return _mean_of_known(values)[0]


def ratio_table(result: StudyResult) -> tuple[list[Table], list[Note]]:
    """Policies whose probabilities are known: KL measured by log-likelihood ratios of their own samples.

    `facts["ratios"]`: a `model`, a `policy`, and by problem `kl`, `gold` and, where they were scored, `reward`, `wins`
    against p and p's own reward, `plain`; or `why` it is not known. kl: +∞ where p rules out a sample; then the mean is
    infinite, and a note says on how many problems.
    """
    rows, notes = [], []
    for one in result.facts.get("ratios", ()):
        if "why" in one:
            notes.append(Note(f"{one['model']}, {one['policy']}", f"its KL is not measured: {one['why']}"))
            continue
        name, kl = f"{one['model']}, {one['policy']}", np.array(one["kl"], np.float64)
        gold = mean_of(np.array(one["gold"], np.float64), support=SHARES)
        if beyond := int(np.isposinf(kl).sum()):
            said = f"on {beyond} of {kl.size} problems the model as written excludes one of its samples"
            notes.append(Note(name, f"its KL is infinite: {said}"))
            gone = inf, nan, nan
        else:
            gone = mean_of(kl)
            notes += far(name, gone[0], "goes")
        if unscored := one.get("unscored"):
            notes.append(Note(name, f"its reward is not measured: {unscored}"))
        reward, wins = (_floats(one.get(what, ())) for what in ("reward", "wins"))
        told = number(*_mean_of_known(reward)), with_interval(*_mean_of_known(wins, support=SHARES))
        rows.append((one["model"], one["policy"], number(*gone), *told, with_interval(*gold)))
    table = Table(
        "alignment_ratios",
        f"Measured KL is the mean of log π(y) − log p(y) over samples of π. The reward is by {_by(result)}. Wins are "
        "by the reward, against one sample of p, if p is among the policies.",
        ("model", "policy", "KL", "mean reward", "wins", "accuracy"), tuple(rows), frozenset({2, 3, 4, 5}),
    )  # fmt: skip
    return [table] if rows else [], notes


def far(name: str, kl: float, goes: str) -> list[Note]:
    """A note where a divergence is past one of the literature's marks."""
    passed = [mark for mark in MARKS if kl > mark]
    return (
        [Note(name, f"{goes} {kl:.1f} nats from the model; {max(passed):g} nats, {MARKS[max(passed)]}")]
        if passed
        else []
    )


def marks(
    panels: Mapping[str, Sequence[Line]],
    points: Mapping[str, Mapping[str, tuple[float, float]]] | None = None,
) -> dict[float, str]:
    """Those of `MARKS` that a picture reaches."""
    last = max(x for lines in panels.values() for line in lines for x in line.x)
    last = max([last, *(x for some in (points or {}).values() for x, _ in some.values())])
    return {mark: words for mark, words in MARKS.items() if mark <= last}


def nats(value: float) -> str:
    """Two decimals; a dash for what is unknown."""
    return "–" if isnan(value) else f"{value:.2f}"


def number(value: float, low: float = nan, high: float = nan) -> str:
    """A mean with its interval."""
    if isnan(value) or isinf(value):
        return "–" if isnan(value) else "∞"
    return f"{value:z.3f}" + ("" if isnan(low) or isnan(high) else f" [{low:z.3f}, {high:z.3f}]")
