"""The pictures of docs/strategies: real runs, on the embedded models where these can do it, a few minutes in all.

    python examples/gallery.py [FOLDER [NAME …]]

The pictures go to FOLDER (runs/gallery by default), one for each strategy, or those that are named; those of the
studies are drawn by `study_picture.py`. Models that follow instructions do not ship: where one is to criticise in
words, to reflect, or to choose among responses, a function of a few lines writes, and the strategy is real.
(`tiny-critic` goes through the lines of one solution, and can be asked nothing else.)
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import groupby, pairwise
from pathlib import Path

import networkx as nx
import numpy as np
from figures.adaptive import Confided, confidence_traces, spending
from figures.chains import program_diagram
from figures.votes import draw_bars, vote_bars
from matplotlib.figure import Figure

import metagen as mg
from metagen.analysis.figures import save
from metagen.analysis.matrix import matrix_diagram
from metagen.analysis.particles import effective_sizes
from metagen.analysis.trees import tree_diagram
from metagen.journal import Row
from metagen.strategies.adaptive.confidence import Confidence, groups
from metagen.strategies.adaptive.filtered import threshold
from metagen.strategies.adaptive.online import OnlineConfidence
from metagen.strategies.adaptive.stopping import Decided
from metagen.strategies.aggregators import Majority
from metagen.strategies.chain.interleaved import Interleaved
from metagen.strategies.parallel import PessimisticBestOfN, SoftBestOfN
from metagen.strategies.rejection import RejectionSampling
from metagen.strategies.tree.blockwise import Blockwise
from metagen.strategies.tree.node import Tree
from metagen.strategies.tree.treefinement import Treefinement
from metagen.strategies.universal import UniversalSelfConsistency
from metagen.tasks.programs.task import PROGRAM, ProgramTask, interpret
from metagen.tasks.programs.trace import strip_comments
from metagen.tasks.programs.verifier import PublicExamples, corrector_prompt
from metagen.verifiers.code.codet import dual_agreement
from metagen.verifiers.utility.edit import EditSimilarity
from metagen.verifiers.utility.execution import ExecutionAgreement

#: A problem that the models solve now and then.
PROBLEM = "Q:a=36/8;b=a+3;c=b*4;d=c-11;d?\nS:\n"
#: One on which the most frequent answer is wrong and the process model knows better.
LEVELS, SAMPLES = [4, 5], 24
#: One on which samples differ, and the right answer.
DISPUTED, RIGHT = "Q:a=9-(-4);b=a-8;c=a+b;d=5*c;e=d/b;e?\nS:\n", "18"


class Gallery:
    """The parts that all pictures share, while the engines are open."""

    def __init__(self, model: mg.TorchEngine, small: mg.TorchEngine, judge: mg.TorchEngine) -> None:
        self.generator = model.generator(max_tokens=200)
        self.small = small.generator(max_tokens=200)
        self.task = mg.ArithmeticTask("validation", levels=LEVELS, per_level=12, seed=5)
        self.prm = mg.ProcessRewardModel(judge)
        self.parts = {"verifier": self.prm, "answer": self.task.answer}

    def trees(self) -> Iterator[tuple[str, Callable[[], Figure]]]:
        g, parts = self.generator, self.parts
        searches: dict[str, mg.TreeSearch] = {
            "rebase": mg.Rebase(g, n=12, **parts),
            "async_rebase": mg.AsyncRebase(g, n=12, **parts),
            "beam": mg.BeamSearch(g, n=12, m=4, **parts),
            "dvts": mg.DVTS(g, n=12, m=4, **parts),
            "best_first": mg.BestFirst(g, n=3, m=4, **parts),
            "depth_first": mg.DepthFirst(g, n=1, m=4, threshold=0.5, **parts),
            "lookahead": mg.Lookahead(g, n=8, m=4, ahead=1, **parts),
            "mcts": mg.MCTS(g, n=8, width=3, **parts),
        }
        for name, search in searches.items():
            yield (
                name,
                lambda search=search: tree_diagram(
                    search.tree(PROBLEM, seed=7).graph(), title=type(search).__name__
                ),
            )

    def particles(self) -> Figure:
        filters = {
            f"temperature {t:g}": mg.ParticleFilter(self.small, 16, temperature=t, **self.parts)
            for t in (0.5, 1.0, 2.0)
        }
        problems = list(self.task.problems())[:8]
        clouds = {
            name: [[level.effective for level in f.cloud(p.prompt).levels] for p in problems]
            for name, f in filters.items()
        }
        return effective_sizes({"16 particles": clouds}, title="How many particles there really are")

    def best_of_n(self) -> Figure:
        """A weak verifier, lest best-of-n be right: candidates by score, by the soft choice, and by a lower bound."""
        problem, right = "Q:a=3+7;b=a-(-10);c=b+a;d=8-c;e=d-a;e?\nS:\n", "-32"
        n, beta, answer, journal = 8, 0.1, self.task.answer, mg.MemoryJournal()
        with mg.TorchEngine("tiny-prm-weak") as steps, mg.TorchEngine("tiny-prm") as whole:
            one, other = mg.ProcessRewardModel(steps), mg.OutcomeRewardModel(whole)
            strategies = {
                "best-of-n: score": mg.BestOfN(self.small, n, verifier=one, answer=answer),
                "soft: chance": SoftBestOfN(self.small, n, verifier=one, beta=beta, answer=answer),
                "pessimistic: bound": PessimisticBestOfN(
                    self.small, n, verifiers=[one, other], answer=answer
                ),
            }
            results = {name: s.solve(problem, seed=2, journal=journal) for name, s in strategies.items()}
        pool = results["best-of-n: score"].candidates
        copies, names = Counter(c.sequence.text for c in pool), dict[str, str]()
        for i, c in enumerate(pool, 1):  # equal texts are one bar
            names.setdefault(c.sequence.text, f"y{i}: {c.key}  ×{copies[c.sequence.text]}")
        panels = {
            title: {names[c.sequence.text]: c.value or 0.0 for c in result.candidates}
            for title, result in results.items()
        }
        odds = {
            name: copies[text] * np.exp(panels["soft: chance"][name] / beta) for text, name in names.items()
        }
        panels["soft: chance"] = {name: odd / sum(odds.values()) for name, odd in odds.items()}
        return vote_bars(
            panels,
            right=[names[c.sequence.text] for c in pool if c.key == right],
            chosen={title: names[result.text] for title, result in results.items()},
            title=f"One problem, {n} samples, two verifiers",
        )

    def mbr(self) -> Figure:
        """How like each other eight solutions are; the best on average first."""
        result = mg.MBR(self.small, 8, utility=EditSimilarity()).solve(DISPUTED)
        drawn = [c.sequence for c in result.candidates]
        utility = asyncio.run(EditSimilarity().matrix(drawn, scope=mg.Scope.root("gallery")))
        order = np.argsort(-utility.mean(axis=1), kind="stable")
        utility = utility[np.ix_(order, order)]
        answers = [drawn[i].text.split("A:")[-1].strip() for i in order]
        return matrix_diagram(
            utility,
            [f"{answer}  {mean:.3f}" for answer, mean in zip(answers, utility.mean(axis=1), strict=True)],
            answers,
            chosen=next(k for k, i in enumerate(order) if drawn[i].text == result.text),
            labels=("if this were right", "answer, mean utility"),
            title="MBR: which is most like the others",
        )

    def rejection(self) -> Figure:
        """Problems of three kinds, the first of each: accepted at once, after more than two draws, and never."""
        most, least = 10, 0.9
        sampling = RejectionSampling(
            self.small, most, verifier=self.prm, threshold=least, answer=self.task.answer
        )
        found: dict[str, tuple[list[tuple[str, float, bool]], int]] = {}
        for problem in self.task.problems():
            result = sampling.solve(problem.prompt)
            right = asyncio.run(self.task.answer.key(problem.reference))
            drawn = [(c.key or "–", c.value or 0.0, c.key == right) for c in result.candidates]
            never = all(score < least for _, score, _ in drawn)
            kind = "never" if never else "at once" if len(drawn) == 1 else "later" if len(drawn) > 2 else ""
            place = next(i for i, c in enumerate(result.candidates) if c.sequence.text == result.text)
            found.setdefault(kind, (drawn, place))
            if {"at once", "later", "never"} <= found.keys():
                break
        panels = {kind: found[kind][0] for kind in ("at once", "later", "never") if kind in found}
        chosen = {kind: place for kind, (_, place) in found.items()}
        return draw_bars(
            panels, least, chosen=chosen, title=f"Draws until a score of {least:g}, {most} at most"
        )

    def blockwise(self) -> Figure:
        """The tree that its candidates make: those that were not committed to are pruned."""
        n, kept = 4, list[mg.Sequence]()
        strategy = Blockwise(self.small, n, verifier=self.prm, block=mg.Step("\n"), answer=self.task.answer)
        result = strategy.solve(PROBLEM, seed=2, emit=kept.append)
        values = {
            row.content: row.payload["value"]
            for row in result.trace.rows
            if row.kind == "score" and row.payload
        }
        tree = Tree(mg.Sequence.of(PROBLEM))
        node = tree.root
        for i, best in enumerate(kept):
            block = [c.sequence for c in result.candidates[i * n : (i + 1) * n]]
            scores = [mg.Score(values[s.digest]) if s.digest in values else None for s in block]
            children = tree.add(node, 0, block, scores)
            node = next(child for child in children if child.sequence.text == best.text)
            for child in children:
                if child is not node:
                    child.prune()
        tree.chosen = result.sequence
        return tree_diagram(tree.graph(), title=f"Blockwise, n = {n}")

    def confidence(self) -> Figure:
        """Whole samples set the threshold; those after them are given up where they fall below it."""
        warmup, keep, n, window = 7, 0.5, 14, 8
        generator = self.small.replace(logprobs=True)
        strategy = OnlineConfidence(
            generator, n, answer=self.task.answer, warmup=warmup, keep=keep, window=window, block=4
        )
        traces, measure = [], Confidence("lowest", window)
        for c in strategy.solve(DISPUTED).candidates:
            tokens = measure.of_tokens(c.sequence)
            means = np.exp(groups(np.array(tokens), window)).tolist()
            right = c.key == RIGHT if c.sequence.finish else None
            traces.append(Confided(range(len(tokens) - len(means) + 1, len(tokens) + 1), means, right))
        least = threshold([min(trace.groups) for trace in traces[:warmup]], keep)
        panels = {f"first {warmup}, whole": traces[:warmup], f"then {n - warmup}, watched": traces[warmup:]}
        return confidence_traces(panels, least, title="Confidence along the tokens")

    def universal(self) -> Figure:
        """Samples of a model, and how often a judge names each: a function that looks at a few of them at a time."""
        seen: list[str] = []

        def read(prefix: mg.Sequence, seed: int, index: int) -> str:
            seen[:] = [str(Fraction(said)) for said in re.findall(r"\nA:(.*)", prefix.prompt.text or "")]
            some = random.Random(seed).sample(range(len(seen)), 4)
            answers = [seen[i] for i in some]
            return f"Response {1 + max(some, key=lambda i: answers.count(seen[i]))}"

        n, votes, judge = 8, 16, mg.FunctionGenerator(read, name="judge")
        strategy = UniversalSelfConsistency(self.small, n, judge=judge, votes=votes, answer=self.task.answer)
        result = strategy.solve(DISPUTED)
        said = Counter(written(row)[1] for row in result.trace.rows if "consistent" in row.path)
        names = {f"Response {i}": f"response {i}: {answer}" for i, answer in enumerate(seen, 1)}
        agree = {name: float(seen.count(answer)) for name, answer in zip(names.values(), seen, strict=True)}
        named = {name: float(said[i]) for i, name in names.items()}
        panels = {"responses with its answer": agree, f"named by the judge, of {votes}": named}

        def saying(answer: str | None) -> list[str]:
            return [name for name in named if name.endswith(f": {answer}")]

        best = max(saying(result.answer.key if result.answer else None), key=named.__getitem__)
        chosen = dict.fromkeys(panels, best)
        return vote_bars(panels, right=saying(RIGHT), chosen=chosen, title="Universal self-consistency")

    def patterns(self) -> Figure:
        """A calculator inside of a text: what the model writes up to a call, and what the tool writes behind it."""

        def calculate(left: int, op: str, right: int) -> str:
            return str({"+": left + right, "-": left - right, "*": left * right}[op])

        helped = Interleaved(
            self.small.replace(temperature=0.0), calculate,
            call=r"=(?P<left>\d+)(?P<op>[-+*])(?P<right>\d+)=", result="{result}\n", until=mg.Step("="),
        )  # fmt: skip
        pieces = map(written, helped.solve("Q:a=12+7;b=a*3;b?\nS:\n").trace.rows)
        steps: dict[str, str] = {}
        for i, (role, run) in enumerate(groupby(pieces, key=lambda piece: piece[0].partition("/")[0])):
            who = "model" if role == "text" else "calculator"
            steps[f"{who} {i // 2 + 1}"] = "".join(text for _, text in run)
        graph: nx.DiGraph[str] = nx.DiGraph(pairwise(steps))
        return program_diagram(graph, steps, output=list(steps)[-1], title="A model with a calculator")

    def votes(self) -> Figure:
        """The first problem on which weights change the vote for the better; else the first of all."""
        journal, found = mg.MemoryJournal(), None
        for problem in self.task.problems():
            weighted = mg.WeightedVote(self.small, SAMPLES, **self.parts).solve(
                problem.prompt, journal=journal
            )
            pool = [c for c in weighted.candidates if c.key is not None and c.sequence.finish == "eos"]
            plain = Counter(c.key for c in pool)
            heavy = {key: sum(c.value or 0.0 for c in pool if c.key == key) for key in plain}
            right = asyncio.run(self.task.answer.key(problem.reference))
            panels = {"majority: votes": dict(plain), "weighted: Σ score": heavy}
            found = found or (panels, right)
            if plain and max(plain, key=plain.__getitem__) != right == max(heavy, key=heavy.__getitem__):
                found = panels, right
                break
        assert found is not None
        return vote_bars(found[0], right=[found[1] or ""], title=f"One problem, {SAMPLES} samples")

    def adaptive(self) -> Figure:
        """Samples that stopping rules draw, by level. The full vote draws first, and they find its samples recorded."""
        levels, most = [5, 4, 3, 2, 1], 16
        task = mg.ArithmeticTask("validation", levels=levels, per_level=16, seed=5)
        problems, journal, answer = list(task.problems()), mg.MemoryJournal(), task.answer
        rules: dict[str, mg.Strategy] = {
            "Decided": mg.Adaptive(self.small, most, Majority(answer), Decided(most)),
            "Adaptive-Consistency": mg.AdaptiveConsistency(self.small, most, answer=answer),
            "ESC": mg.EarlyStopping(self.small, most, answer=answer, window=4),
        }

        async def drawn(rule: mg.Strategy) -> list[int]:
            results = await asyncio.gather(*(rule.asolve(p.prompt, journal=journal) for p in problems))
            return [len(result.candidates) for result in results]

        asyncio.run(drawn(mg.MajorityVote(self.small, most, answer=answer)))
        samples = {name: asyncio.run(drawn(rule)) for name, rule in rules.items()}
        groups = [levels.index(p.level) for p in problems if p.level is not None]
        names = [f"level {level}" for level in levels]
        return spending(groups, samples, names, title=f"Samples drawn, of {most} at most")

    def chain(self) -> Figure:
        chain = mg.chain_of_thought(self.generator, cue="A:", thought=150, answer=self.task.answer)

        async def outputs() -> dict[str, str]:
            made = await chain.outputs(mg.Sequence.of(PROBLEM), mg.Scope.root("gallery"))
            return {name: one.sequence.text for name, one in made.items() if one.sequence}

        return program_diagram(
            chain.graph, asyncio.run(outputs()), output=chain.output, title="Chain of thought"
        )


def written(row: Row) -> tuple[str, str]:
    """Where a record stands in its problem, and what a model or a tool wrote there."""
    made = row.payload or {}
    return row.path.removeprefix("0/"), str(made["text"] if row.kind == "generate" else made["value"])


def rounds(strategy: mg.Refinement, prompt: str, names: dict[str, str], title: str) -> Figure:
    """What was written in a run of a few rounds, one after the other; names: of the roles in its records."""
    result = strategy.solve(prompt)
    texts = {}
    for place, text in [written(row) for row in result.trace.rows if row.kind == "generate"]:
        role, _, number = place.partition("/")
        texts[f"{names[role]} {number}".strip()] = text
    graph: nx.DiGraph[str] = nx.DiGraph(pairwise(texts))
    best = next(name for name, text in reversed(texts.items()) if text == result.text)
    return program_diagram(graph, texts, output=best, title=title)


def self_refine() -> Figure:
    def write(prefix: mg.Sequence, seed: int, index: int) -> str:
        said = prefix.prompt.text or ""
        if not said.rstrip().endswith("again.") and "Check this answer" not in said:
            return "it rains"
        last = next(line for line in reversed(said.splitlines()) if line.lower().startswith("it rains"))
        if said.rstrip().endswith("again."):
            return last.capitalize() if last[0].islower() else last + "."
        if last[0].islower():
            return "A sentence begins with a capital."
        return "NOTHING TO MEND" if last.endswith(".") else "The full stop is missing."

    strategy = mg.SelfRefine(mg.FunctionGenerator(write, name="writer"), rounds=3)
    names = {"sample": "draft", "feedback": "critique", "revise": "revision"}
    return rounds(strategy, "Describe the weather.\n", names, "Self-Refine: it stops when it is content")


def reflexion() -> Figure:
    parts = ("sorted(x)", "[::-1]")

    def write(prefix: mg.Sequence, seed: int, index: int) -> str:
        said = prefix.prompt.text or ""
        if "his attempt" in said.rstrip().splitlines()[-1]:
            return f"The test wants {said.split('failing test: ')[-1].split(';')[0]}: I should add that."
        return "def f(x): return" + "".join(f" {part}" for part in parts if part in said)

    def test(sequence: mg.Sequence) -> mg.Score:
        missing = [part for part in parts if part not in sequence.text]
        return mg.Score(0.0, feedback=f"failing test: {missing[0]};") if missing else mg.Score(1.0)

    model, tests = mg.FunctionGenerator(write, name="coder"), mg.FunctionVerifier(test, name="tests")
    names = {"sample": "attempt 0", "feedback": "reflection", "revise": "attempt"}
    title = "Reflexion: each attempt reads the reflections before it"
    return rounds(mg.Reflexion(model, verifier=tests, rounds=4), "Sort downwards.\n", names, title)


class Programs:
    """Programs of `tiny-code-2m`, and their corrections by `tiny-code-corrector`, on problems solved now and then."""

    def __init__(self, writer: mg.TorchEngine, corrector: mg.TorchEngine) -> None:
        self.writer, self.corrector = (engine.generator(max_tokens=192) for engine in (writer, corrector))
        self.mending = {"corrector": self.corrector, "verifier": PublicExamples(), "ask": corrector_prompt}
        self.task = ProgramTask("validation", levels=[2, 3, 4], per_level=12)
        problems = {problem.id: problem for problem in self.task.problems()}
        self.often, self.refined, self.mended = (
            problems[f"programs/validation/{k}"] for k in ("2/7", "3/3", "4/9")
        )

    def drawn(self, n: int) -> list[mg.Sequence]:
        """The samples of every strategy on one of the problems."""
        place = mg.Scope.root(self.often.id).child("0").child("sample")
        return asyncio.run(self.writer.generate(mg.Sequence.of(self.often.prompt), n=n, scope=place))

    def named(self, drawn: list[mg.Sequence], scores: np.ndarray) -> list[str]:
        """Number, whether it is right by the hidden tests, and score."""
        grades = asyncio.run(self.task.grade(self.often, drawn))
        verdicts = ["right" if grade else "wrong" for grade in grades]
        return [f"y{i}: {v}  {x:.2f}" for i, (v, x) in enumerate(zip(verdicts, scores, strict=True), 1)]

    def treefinement(self) -> Figure:
        graph = Treefinement(self.writer, n=4, rounds=3, **self.mending).tree(self.refined.prompt).graph()
        steps = {node: body(step) for node, step in graph.nodes(data="step") if step}
        nx.set_node_attributes(graph, steps, "step")
        return tree_diagram(graph, title="Treefinement: each node is a whole program")

    def correction(self) -> Figure:
        """A chain of corrections: what was written, and the example that it fails."""
        scope = mg.Scope.root(self.mended.id)
        chain = mg.Refinement(self.writer, rounds=3, **self.mending)
        trajectory = asyncio.run(chain.trajectory(mg.Sequence.of(self.mended.prompt), scope))
        texts: dict[str, str] = {}
        for k, one in enumerate(trajectory.rounds):
            texts[f"correction {k}" if k else "program"] = strip_comments(one.candidate.sequence.text)
            if one.remark is not None:
                texts[f"fails {k + 1}"] = one.remark.text or ""
        graph: nx.DiGraph[str] = nx.DiGraph(pairwise(texts))
        return program_diagram(graph, texts, output=list(texts)[-1], title="Refinement: a program is mended")

    def mbr_exec(self) -> Figure:
        """On how many inputs two programs give the same."""

        async def run(programs: Sequence[mg.Sequence], scope: mg.Scope) -> list[list[str | None]]:
            inputs = self.often.prompt.public["inputs"]
            return [await interpret(PROGRAM.read(program) or "", inputs) for program in programs]

        utility = ExecutionAgreement(run)
        result = mg.MBR(self.writer, 8, utility=utility).solve(self.often.prompt)
        drawn = [c.sequence for c in result.candidates]
        agree = asyncio.run(utility.matrix(drawn, scope=mg.Scope.root("gallery")))
        return matrix_diagram(
            agree,
            self.named(drawn, agree.mean(axis=1)),
            [f"y{i}" for i in range(1, len(drawn) + 1)],
            chosen=next(i for i, one in enumerate(drawn) if one.text == result.text),
            labels=("if this were right", "programs, with their mean utility"),
            title="MBR by execution: which does what the others do",
        )

    def codet(self) -> Figure:
        """A test is an input with what another sample gives for it, which may be wrong."""
        n, drawn = 8, self.drawn(16)
        inputs = self.often.prompt.public["inputs"][-n:]  # those without known outputs
        said = [asyncio.run(interpret(PROGRAM.read(one) or "", inputs)) for one in drawn]
        claims = [said[n + k][k] for k in range(n)]
        passed = np.array(
            [[a is not None and a == b for a, b in zip(row, claims, strict=True)] for row in said[:n]]
        )
        names = self.named(drawn[:n], dual_agreement(passed))
        right = passed[next(i for i, name in enumerate(names) if "right" in name)]
        return matrix_diagram(
            passed,
            names,
            [f"t{k} {'✓' if ok else '✗'}" for k, ok in enumerate(right, 1)],
            words=lambda ok: "pass" if ok else "–",
            labels=("tests, right and wrong", "programs, with their scores"),
            title="Programs and tests vouch for each other",
        )


def body(program: str) -> str:
    """What a program does, in short."""
    lines = strip_comments(program).splitlines()[1:]
    return "; ".join(re.sub(r"^x=|^return | for \w in x", "", line.strip()) for line in lines)


def main(folder: Path, *names: str) -> None:
    with (
        mg.TorchEngine("tiny-2m") as model,
        mg.TorchEngine("tiny-0.5m") as small,
        mg.TorchEngine("tiny-prm") as judge,
        mg.TorchEngine("tiny-code-2m") as writer,
        mg.TorchEngine("tiny-code-corrector") as corrector,
    ):
        gallery, programs = Gallery(model, small, judge), Programs(writer, corrector)
        pictures = [
            *gallery.trees(),
            ("best_of_n", gallery.best_of_n),
            ("voting", gallery.votes),
            ("mbr", gallery.mbr),
            ("rejection", gallery.rejection),
            ("universal", gallery.universal),
            ("blockwise", gallery.blockwise),
            ("treefinement", programs.treefinement),
            ("correction", programs.correction),
            ("mbr_exec", programs.mbr_exec),
            ("codet", programs.codet),
            ("confidence", gallery.confidence),
            ("adaptive", gallery.adaptive),
            ("particles", gallery.particles),
            ("chains", gallery.chain),
            ("patterns", gallery.patterns),
            ("self_refine", self_refine),
            ("reflexion", reflexion),
        ]
        for name, draw in pictures:
            if names and name not in names:
                continue
            _, svg = save(draw(), folder / name)
            print(f"{name}: {svg.stat().st_size // 1000} kB")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/gallery")
    folder.mkdir(parents=True, exist_ok=True)
    main(folder, *sys.argv[2:])
