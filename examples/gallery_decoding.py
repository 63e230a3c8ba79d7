"""The pictures of docs/decoding: real distributions, searches and drafts, by the embedded models and models of text.

    python examples/gallery_decoding.py [FOLDER [NAME …]]

The pictures go to FOLDER (runs/decoding by default), one for each page, or those that are named; those of degeneration
are drawn by `degeneration.py`. Two minutes on two cores. What models say here is what they say: places were chosen at
which they are unsure.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import degeneration
import networkx as nx
import numpy as np
import torch
from figures.degeneration import Written, quality_lines
from figures.surprise import surprise_bars, surprise_lines
from figures.tokens import mask_bars, token_strips
from matplotlib.figure import Figure

import metagen as mg
from metagen.analysis.distributions import stage_bars
from metagen.analysis.figures import style
from metagen.analysis.trees import tree_diagram
from metagen.generators.decoding.adapters import Mirostat
from metagen.generators.decoding.healing import Boundaries, ForcedBytes
from metagen.generators.decoding.presets import PRESETS
from metagen.generators.decoding.search import (
    BeamSearch,
    ConstrainedBeamSearch,
    ContrastiveSearch,
    DiverseBeamSearch,
    SearchSpec,
    StochasticBeamSearch,
)
from metagen.generators.decoding.stages import pipeline
from metagen.generators.engine import EvaluateRequest, Sample
from metagen.generators.likelihood import NAT, likelihoods
from metagen.generators.models.recipes import (
    Contrastive,
    Ensemble,
    Experts,
    Function,
    Model,
    ProxyTuned,
    Table,
    Tilted,
)
from metagen.generators.models.sources import resolve
from metagen.generators.tokenizer import Tokenizer
from metagen.generators.torch.models.kgram import train
from metagen.generators.torch.search import Step, make_search
from metagen.generators.torch.speculation.drafter import look_up
from metagen.generators.torch.speculation.select import balance
from metagen.generators.torch.speculation.verify import Drafted, Rule, acceptance, verify
from metagen.runs.page.adapters import picture
from metagen.strategies.tree.particles import ParticleFilter

#: Of the pictures.
DPI = 130
#: A place at which the largest generator is unsure: the first digit of a numerator.
PLACE = mg.Sequence.of("Q:a=12/7;b=a*3;c=b-8;c?\nS:\n").extend("a=12/7=12/7\nb=12/7*3=36/7\nc=36/7-8=-")
#: A problem with more steps.
PROBLEM = "Q:a=36/8;b=a+3;c=b*4;d=c-11;e=d/a;e?\nS:\n"
#: A place in a text of words.
TEXT = mg.Sequence.of("A verifier scores the ")
#: What follows a word, as it is told of beams: the greedy path misses the most probable pair.
WORDS: Mapping[tuple[str, ...], Sequence[float]] = {
    (): (0.5, 0.4, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0),
    ("nice ",): (0.0, 0.0, 0.0, 0.4, 0.3, 0.3, 0.0, 0.0),
    ("dog ",): (0.0, 0.0, 0.0, 0.0, 0.0, 0.05, 0.9, 0.05),
    ("car ",): (0.0, 0.0, 0.0, 0.3, 0.0, 0.0, 0.4, 0.3),
}
VOCABULARY = ("nice ", "dog ", "car ", "woman ", "house ", "guy ", "has ", "$")


class Atlas:
    """The parts that pictures share; engines are opened when first asked for, and closed with the stack."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._engines: dict[str, mg.TorchEngine] = {}

    def engine(self, model: Model) -> mg.TorchEngine:
        if str(model) not in self._engines or not isinstance(model, str):
            engine = mg.TorchEngine(model, threads=1, max_batch=32)
            self._engines[str(model)] = self._stack.enter_context(engine)
        return self._engines[str(model)]

    @cached_property
    def folder(self) -> Path:
        return Path(self._stack.enter_context(TemporaryDirectory()))

    @cached_property
    def writer(self) -> mg.TorchEngine:
        """The model of text that `degeneration.py` is about."""
        return self.engine(degeneration.model(self.folder, degeneration.corpus()[0]))

    # -- adapters ----------------------------------------------------------------------------------

    def stages(self, engine: mg.TorchEngine, prefix: mg.Sequence, title: str, **params: Any) -> Figure:
        """One adapter behind the other."""
        return picture(pipeline(engine, prefix, mg.SamplingParams(**params)), title=title)

    def compared(
        self, engine: mg.TorchEngine, prefix: mg.Sequence, title: str, ways: Mapping[str, Mapping[str, Any]]
    ) -> Figure:
        """The model's distribution, and what each of several parameters makes of it by itself."""
        found = {name: pipeline(engine, prefix, mg.SamplingParams(**params)) for name, params in ways.items()}
        first = next(iter(found.values()))
        shown = first.best(12)
        panels = {"": first.stages[0].p[shown]} | {
            name: one.stages[-1].p[shown] for name, one in found.items()
        }
        return stage_bars(panels, [first.tokens[i] for i in shown], against_first=True, title=title)

    def adapters(self) -> Figure:
        params = {"temperature": 1.5, "top_k": 8, "top_p": 0.95, "min_p": 0.1}
        return self.stages(self.engine("tiny-2m"), PLACE, "A pipeline of adapters", **params)

    def penalties(self) -> Figure:
        greedy = {"temperature": 0.0}
        ways = {
            "greedy": greedy,
            "repetition 1.2": greedy | {"repetition_penalty": 1.2},
            "frequency 0.5": greedy | {"frequency_penalty": 0.5},
            "no 3-gram twice": greedy | {"no_repeat_ngram": 3},
        }
        return self.circles(ways, "Greedy decoding, with penalties and a ban")

    def circles(self, ways: Mapping[str, Mapping[str, Any]], title: str) -> Figure:
        """Behind a prompt that it has never seen, greedy decoding of the byte-pair model goes round in circles."""
        engine, lines = self.engine("tiny-bpe"), {}
        for name, params in ways.items():
            generator = engine.generator(max_tokens=36, ignore_eos=True, **params)
            (one,) = asyncio.run(generator.generate(mg.Sequence.of("abab"), scope=mg.Scope.root("gallery")))
            ids = one.tokens.ids if one.tokens else ()
            pairs = list(pairwise(ids))
            again = [False, *(pair in pairs[:i] for i, pair in enumerate(pairs))]
            lines[name] = [
                (engine.decode([i]), "again" if old else "new") for i, old in zip(ids, again, strict=True)
            ]
        kinds = {"new": "", "again": "this token has followed the one before it before"}
        return token_strips(lines, kinds, title=title)

    def truncation(self) -> Figure:
        ways = {
            "top_k=5": {"top_k": 5},
            "top_p=0.6": {"top_p": 0.6},
            "min_p=0.45": {"min_p": 0.45},
            "typical_p=0.4": {"typical_p": 0.4},
            "epsilon_cutoff=0.06": {"epsilon_cutoff": 0.06},
            "eta_cutoff=0.7": {"eta_cutoff": 0.7},
            "top_h=0.4": {"top_h": 0.4},
        }
        return self.compared(self.writer, TEXT, "What is kept behind “A verifier scores the ”", ways)

    def mirostat(self) -> Figure:
        panels, cuts, eta = dict[str, tuple[float, ...]](), dict[str, list[float]](), 0.1
        for tau in (1.0, 1.3, 1.6):
            generator = self.writer.generator(max_tokens=240, ignore_eos=True, mirostat=Mirostat(tau, eta))
            (text,) = asyncio.run(generator.generate(TEXT, scope=mg.Scope.root("mirostat")))
            name = f"τ = {tau:g}"
            panels[name] = likelihoods(self.writer, [text], entropies=False)[0].surprises
            cuts[name] = [2 * tau]
            for bits in panels[name][:-1]:
                cuts[name].append(cuts[name][-1] - eta * (bits - tau))
        title = "Mirostat: the cut (orange) follows what was drawn"
        return surprise_lines(panels, cuts=cuts, title=title)

    def presets(self) -> Figure:
        ways = {name: {"temperature": t, "top_p": p} for name, (t, p) in PRESETS.items()}
        return self.compared(self.writer, TEXT, "Presets, behind “A verifier scores the ”", ways)

    def stopping(self) -> Figure:
        """One sample, as far as each rule lets it come."""
        engine, prompt = self.engine("tiny-2m"), PLACE.prompt
        whole = self.sampled(engine, mg.Sequence(prompt))

        def line(text: str) -> list[tuple[str, str]]:
            return [(c, "kept" if i < len(text) else "left") for i, c in enumerate(whole)]

        lines = {
            "end of sequence": line(whole),
            "max_tokens=24": line(self.sampled(engine, mg.Sequence(prompt), max_tokens=24)),
            "stop='\\nc='": line(self.sampled(engine, mg.Sequence(prompt), stop=("\nc=",))),
            "Step('\\n')": line(self.sampled(engine, mg.Sequence(prompt), until=mg.Step("\n"))),
            "Tokens(9)": line(self.sampled(engine, mg.Sequence(prompt), until=mg.Tokens(9))),
        }
        return token_strips(
            lines, {"left": "not written", "kept": "written"}, title="Where a completion stops"
        )

    def sampled(self, engine: mg.TorchEngine, prefix: mg.Sequence, until: Any = None, **params: Any) -> str:
        generator = engine.generator(**{"max_tokens": 200, **params})
        (one,) = asyncio.run(generator.generate(prefix, until=until, scope=mg.Scope.root("gallery")))
        return one.text

    def likelihood(self) -> Figure:
        """A solution with a wrong step, read by the largest generator."""
        engine = self.engine("tiny-2m")
        text = "a=36/8=9/2\nb=(9/2)+3=17/2\nc=(17/2)*4=34\n"
        (found,) = likelihoods(engine, [mg.Sequence.of(PROBLEM).extend(text)])
        tokens = [engine.decode([i]) for i in found.ids]
        entropies = [NAT * nats for nats in found.entropies or ()]
        return surprise_bars(tokens, found.surprises, entropies, title="9/2 + 3 is 15/2, and 17/2 a surprise")

    # -- models made of models -----------------------------------------------------------------------

    def parts(self, models: Mapping[str, Model], title: str, *, prefix: mg.Sequence = PLACE) -> Figure:
        """The distributions of several models, the last of them made of the others."""
        found = {
            name: pipeline(self.engine(model), prefix, mg.SamplingParams()) for name, model in models.items()
        }
        first, last = next(iter(found.values())), list(found.values())[-1]
        best = np.argsort(-(first.stages[0].p + last.stages[0].p), kind="stable")[:10].tolist()
        panels = {name: one.stages[0].p[best] for name, one in found.items()}
        return stage_bars(panels, [first.tokens[i] for i in best], against_first=True, title=title)

    def contrastive(self) -> Figure:
        recipe = Contrastive("tiny-2m", "tiny-0.1m", alpha=0.1)
        models: dict[str, Model] = {"expert": "tiny-2m", "amateur": "tiny-0.1m", "contrastive": recipe}
        return self.parts(models, "Contrastive decoding: what the expert knows better")

    def experts(self) -> Figure:
        recipe = Experts("tiny-0.5m", expert="tiny-2m", anti="tiny-0.1m")
        models: dict[str, Model] = {
            "base": "tiny-0.5m", "expert": "tiny-2m", "anti-expert": "tiny-0.1m", "all three": recipe,
        }  # fmt: skip
        return self.parts(models, "Experts and anti-experts")

    def proxy_tuning(self) -> Figure:
        recipe = ProxyTuned("tiny-2m", "tiny-0.5m", "tiny-0.1m")
        models: dict[str, Model] = {
            "large": "tiny-2m", "small, tuned": "tiny-0.5m", "small, untuned": "tiny-0.1m", "proxy-tuned": recipe,
        }  # fmt: skip
        return self.parts(models, "Proxy tuning: the difference of the small ones moves the large one")

    def ensembles(self) -> Figure:
        pair = ("tiny-0.1m", "tiny-0.5m")
        models: dict[str, Model] = {
            pair[0]: pair[0], pair[1]: pair[1],
            "mean": Ensemble(pair), "product": Ensemble(pair, how="product"),
        }  # fmt: skip
        return self.parts(models, "Ensembles of two models")

    def value_tilted(self) -> Figure:
        even = np.zeros(self.engine("tiny-2m").vocabulary)
        even[[self.engine("tiny-2m").encode(d)[0] for d in "02468"]] = 1.0
        value = Function("tiny-2m", lambda ids: even, name="even digits")
        models: dict[str, Model] = {"λ = 0": "tiny-2m"} | {
            f"λ = {weight:g}": Tilted("tiny-2m", (value,), (weight,)) for weight in (1.0, 3.0, -3.0)
        }
        return self.parts(models, "Tilted by a value of 1 for even digits")

    def kgram(self) -> Figure:
        texts, held = degeneration.corpus()
        some = [mg.Sequence.of(text[:20]).extend(text[20:]) for text in held[:24]]
        points: dict[str, list[Written]] = {}
        for constant in (1.0, 0.1, 0.01):
            for k in range(1, 7):
                folder = train(
                    texts, self.folder / f"{k}-{constant}", tokenizer="tiny-0.1m", k=k, constant=constant
                )
                with mg.TorchEngine(folder, threads=1) as engine:
                    read = likelihoods(engine, some, entropies=False)
                bits = float(np.mean([bit for one in read for bit in one.surprises]))
                points.setdefault(f"c = {constant:g}", []).append(Written("", float(k), bits))
        title = "k-gram models of this documentation, on paragraphs kept out"
        return quality_lines({"surprise, bits a character": points}, x="k", title=title)

    # -- searches ----------------------------------------------------------------------------------

    def words(self) -> mg.TorchEngine:
        return self.engine(
            Table(VOCABULARY, lambda _, done: WORDS.get(done, [0.0] * 7 + [1.0]), name="nice dogs")
        )

    def greedy(self) -> Figure:
        graph = searched(self.words(), "The ", BeamSearch(width=1), 2, others=3)
        return tree_diagram(graph, title="Greedy takes “nice woman”, 0.20, and misses “dog has”, 0.36")

    def beam(self) -> Figure:
        graph = searched(self.words(), "The ", BeamSearch(width=2, alpha=0.0), 2, others=2)
        return tree_diagram(graph, title="Two beams find “dog has”")

    def search(self, spec: SearchSpec, title: str, steps: int = 7) -> Figure:
        graph = searched(self.writer, "A verifier scores the ", spec, steps)
        return tree_diagram(graph, title=title)

    def diverse_beam(self) -> Figure:
        spec = DiverseBeamSearch(width=4, groups=4, diversity=1.5, alpha=0.0)
        return self.search(spec, "Four groups of one beam, λ = 1.5")

    def constrained_beam(self) -> Figure:
        spec = ConstrainedBeamSearch(width=4, alpha=0.0, phrases=("step",))
        return self.search(spec, "Four beams; “step” must occur")

    def stochastic_beam(self) -> Figure:
        return self.search(StochasticBeamSearch(width=5), "Five texts without replacement")

    def contrastive_search(self) -> Figure:
        ways: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0.0}} | {
            f"α = {alpha:g}": {"search": ContrastiveSearch(k=4, alpha=alpha)} for alpha in (0.4, 0.6)
        }
        return self.circles(ways, "Contrastive search: away from what is like the text so far")

    # -- speculation -------------------------------------------------------------------------------

    def speculated(self, rule: Rule, draft: Drafting, gamma: int = 5, **how: Any) -> tuple[Line, float]:
        """A completion of `tiny-2m` in blocks of drafted tokens, and how many tokens a block has."""
        target = self.engine("tiny-2m")
        head = target.render(mg.Sequence.of(how.get("prompt", PROBLEM)))
        random = np.random.default_rng(how.get("seed", SEED))
        ids, line, blocks = list(head), list[tuple[str, str]](), 0
        while len(ids) < len(head) + 100 and ids[-1] not in target.ends:
            tokens, q = draft(ids, gamma, random)
            p = distributions(target, [*ids, *tokens], range(len(ids) - 1, len(ids) + len(tokens)))
            if how.get("greedy"):
                p = np.eye(p.shape[1])[p.argmax(1)]
            drafted = Drafted(
                torch.tensor([tokens], dtype=torch.int64).reshape(1, -1), torch.tensor([len(tokens)]),
                None if q is None else torch.from_numpy(q)[None].float(),
            )  # fmt: skip
            kept = verify(
                torch.from_numpy(p)[None].float(),
                drafted,
                torch.from_numpy(random.random((1, len(tokens)))),
                rule,
            )
            count, rest = int(kept.counts[0]), kept.rest[0].numpy()
            after = int(random.choice(len(rest), p=rest / rest.sum()))
            line += [(target.decode([i]), "kept" if k < count else "rejected") for k, i in enumerate(tokens)]
            blocks += 1
            if count and tokens[count - 1] in target.ends:
                ids += tokens[:count]
                break
            line.append((target.decode([after]), "next"))
            ids += [*tokens[:count], after]
        return line, (len(ids) - len(head)) / blocks

    def small(
        self, ids: Sequence[int], gamma: int, random: np.random.Generator
    ) -> tuple[list[int], np.ndarray]:
        """What the smallest generator drafts, and from which distributions."""
        engine, tokens, rows = self.engine("tiny-0.1m"), list[int](), []
        for _ in range(gamma):
            rows.append(distributions(engine, [*ids, *tokens], [len(ids) + len(tokens) - 1])[0])
            tokens.append(int(random.choice(len(rows[-1]), p=rows[-1])))
            if tokens[-1] in engine.ends:
                break
        return tokens, np.stack(rows)

    def looked_up(
        self, ids: Sequence[int], gamma: int, random: np.random.Generator
    ) -> tuple[list[int], None]:
        return look_up(np.array(ids), 3, gamma).tolist(), None

    def speculative(self) -> Figure:
        line, tokens = self.speculated("token", self.small)
        title = f"tiny-2m with drafts of tiny-0.1m: {tokens:.1f} tokens for each run of the large model"
        return token_strips({"": line}, SPECULATION, title=title)

    def block_verification(self) -> Figure:
        """What both rules keep of the same drafts on average, exactly for a pair of coins, and for the generators."""
        most = 8
        q, p = np.array([2 / 3, 1 / 3]), np.array([1 / 3, 2 / 3])
        coins = [
            (float(q[list(tokens)].prod()), list(tokens), np.tile(q, (most, 1)), np.tile(p, (most + 1, 1)))
            for tokens in product(range(2), repeat=most)
        ]
        panels = {
            "p = (1/3, 2/3), q = (2/3, 1/3)": coins,
            "tiny-2m, drafts of tiny-0.1m": list(self.drafts(most)),
        }
        curves: dict[str, dict[str, list[Written]]] = {}
        for name, drafts in panels.items():
            curves[name] = {}
            total = sum(weight for weight, *_ in drafts)
            rules: tuple[Rule, ...] = ("token", "block")
            for rule, gamma in product(rules, range(1, most + 1)):
                y = sum(w * expected(rule, tokens[:gamma], q, p) for w, tokens, q, p in drafts) / total
                curves[name].setdefault(f"by {rule}", []).append(Written("", float(gamma), y))
        return quality_lines(curves, x="γ, tokens drafted", title="Drafted tokens that are kept of a block")

    def drafts(
        self, gamma: int, count: int = 60
    ) -> Iterator[tuple[float, list[int], np.ndarray, np.ndarray]]:
        """Drafts of the smallest generator along solutions of the largest, of equal weight: tokens, q and p."""
        target, random = self.engine("tiny-2m"), np.random.default_rng(0)
        for ids in self.places(target, count, gamma, random):
            tokens, q = self.small(ids, gamma, random)
            if len(tokens) == gamma:
                yield (
                    1.0,
                    tokens,
                    q,
                    distributions(target, [*ids, *tokens], range(len(ids) - 1, len(ids) + gamma)),
                )

    def places(
        self, engine: mg.TorchEngine, count: int, room: int, random: np.random.Generator
    ) -> Iterator[list[int]]:
        """Places within the engine's own solutions of problems."""
        problems = mg.ArithmeticTask("validation", levels=[3, 4], per_level=count // 2, seed=1).problems()
        for problem in problems:
            prefix = mg.Sequence.of(problem.prompt)
            ids = engine.encode(self.sampled(engine, prefix))
            yield [*engine.render(prefix), *ids[: random.integers(0, max(1, len(ids) - room))]]

    def prompt_lookup(self) -> Figure:
        line, tokens = self.speculated("token", self.looked_up, gamma=4, greedy=True)
        title = f"Drafts looked up in the text itself: {tokens:.1f} tokens for each run of the model"
        return token_strips({"": line}, SPECULATION, title=title)

    def several_drafts(self) -> Figure:
        """1 − (1 − β)^k, the mean over places: with equal numbers for all pairs of models."""
        pairs = (("tiny-2m", "tiny-0.5m"), ("tiny-0.5m", "tiny-0.1m"), ("tiny-2m", "tiny-0.1m"))
        found = [*self.places(self.engine("tiny-2m"), 60, 1, np.random.default_rng(0))]
        curves: dict[str, list[Written]] = {}
        for target, draft in pairs:
            p, q = (
                torch.from_numpy(
                    np.concatenate([distributions(self.engine(name), ids, [len(ids) - 1]) for ids in found])
                )
                for name in (target, draft)
            )
            for k in (1, 2, 3, 4, 6, 8):
                many = torch.full((len(found),), float(k), dtype=torch.float64)
                beta = torch.minimum(q, p / balance(p, q, many)[:, None]).sum(-1)
                kept = float((1 - (1 - beta).clamp(min=0) ** k).mean())
                curves.setdefault(f"{target}, drafts of {draft}", []).append(Written("", float(k), kept))
        return quality_lines(
            {"chance that one is kept": curves}, x="k, drafts at a place", title="Several drafts"
        )

    # -- constraints -------------------------------------------------------------------------------

    def constrained(self) -> Figure:
        engine = self.engine("tiny-2m")
        schema = {
            "type": "object", "properties": {"c": {"type": "integer"}, "ok": {"type": "boolean"}},
            "required": ["c", "ok"], "additionalProperties": False,
        }  # fmt: skip
        text = '{"c": -12, "ok": false}'
        tokenizer = Tokenizer(resolve("tiny-2m"), engine.vocabulary)
        matcher = tokenizer.constraints().matcher(mg.Grammar.json(schema))
        counts, names = [], []
        for token in (*engine.encode(text), engine.ends[0]):
            counts.append(int(matcher.allowed_tokens().sum()))
            names.append(engine.decode([token]))
            matcher.consume([token])
        return mask_bars(names, counts, engine.vocabulary, title="What a JSON schema leaves at each place")

    def healing(self) -> Figure:
        """The next token behind a prompt as it is encoded, and behind the same prompt without its last token."""
        engine = self.engine("tiny-bpe")
        ids = engine.render(mg.Sequence.of("Q:a=12+7;b=a*3;b?\nS:\na=12+7=1"))
        tokens = [engine.decode([i]) for i in range(engine.vocabulary)]
        texts = [b"" if token.startswith("<") and token.endswith(">") else token.encode() for token in tokens]
        kept, dropped = Boundaries(texts).heal(ids)
        forced = ForcedBytes(Boundaries(texts), b"".join(texts[i] for i in dropped))
        typed, before = (distributions(engine, some, [len(some) - 1])[0] for some in (ids, kept))
        healed = np.where(forced.allowed_tokens(), before, 0.0)
        healed /= healed.sum()
        best = [*np.argsort(-typed, kind="stable")[:6].tolist()]
        best += [i for i in np.argsort(-healed, kind="stable").tolist() if i not in best][:6]
        panels = {
            "behind “…+7=1” as it is encoded": typed[best],
            f"behind “…+7”, with “{engine.decode(dropped)}” forced": healed[best],
        }
        names = [tokens[i] for i in best]
        return stage_bars(panels, names, apart=True, title="What comes next, before and after healing")

    def masses(self) -> Figure:
        """How the bytes "ab" are written: by the model given the bytes, under local masks, and weighed."""
        tokens, p = ("a", "b", "ab", "abc", "bc", "$"), (0.25, 0.2, 0.1, 0.05, 0.05, 0.35)
        ways = {("a", "b"): 0.05, ("a", "bc"): 0.0125, ("ab",): 0.1, ("abc",): 0.05}
        engine = self._stack.enter_context(mg.EnumerableEngine(tokens, lambda _, done: p, name="independent"))
        grammar = mg.Grammar.regex("ab(?s:.*)", canonical=False)
        writer = engine.generator(grammar=grammar, log_mass=True, max_tokens=32)
        drawn = asyncio.run(writer.generate(mg.Sequence.of("?"), n=2000, scope=mg.Scope.root("?")))
        cloud = ParticleFilter(writer, 2000, until=mg.Tokens(1), resampling="systematic").cloud("?", seed=1)

        def shares(weights: Mapping[mg.Sequence, float]) -> np.ndarray:
            texts = {s: tuple(tokens[i] for i in s.tokens.ids) for s in weights}
            found = np.array([sum(w for s, w in weights.items() if texts[s][: len(k)] == k) for k in ways])
            return found / found.sum()

        exact = np.array([*ways.values()])
        panels = {
            "the model, given the bytes": exact / exact.sum(),
            "drawn under local masks": shares(counted(drawn, lambda s: 1.0)),
            "the same draws, weighed": shares(counted(drawn, lambda s: float(np.exp(s.log_mass)))),
            "particles, resampled": shares({node.sequence: w for node, w in cloud.weights.items()}),
        }
        names = ["·".join(way) for way in ways]
        return stage_bars(panels, names, against_first=True, title="How the forced bytes “ab” are written")


Line = list[tuple[str, str]]
Drafting = Callable[[Sequence[int], int, np.random.Generator], tuple[list[int], np.ndarray | None]]
SEED = 1
SPECULATION = {
    "before": "", "kept": "drafted and kept", "rejected": "drafted and not kept", "next": "drawn by the large model",
}  # fmt: skip


def expected(rule: Rule, tokens: Sequence[int], q: np.ndarray, p: np.ndarray) -> float:
    """How many of these drafted tokens are kept on average, over the random numbers of verification."""
    gamma = len(tokens)
    drafted = Drafted(
        torch.tensor([list(tokens)]), torch.tensor([gamma]), torch.from_numpy(q[:gamma])[None].float()
    )
    chances = acceptance(torch.from_numpy(p[: gamma + 1])[None].float(), drafted, rule)[0][0].numpy()
    if rule == "token":
        return float(np.cumprod(chances).sum())
    last = np.cumprod((1 - chances)[::-1])[::-1]  # that no later token passes, this one among them
    return float(sum((i + 1) * h * (last[i + 1] if i + 1 < gamma else 1.0) for i, h in enumerate(chances)))


def counted(drawn: Sequence[mg.Sequence], weight: Callable[[mg.Sequence], float]) -> dict[mg.Sequence, float]:
    """The weights of equal sequences, added up."""
    found: dict[mg.Sequence, float] = {}
    for one in drawn:
        found[one] = found.get(one, 0.0) + weight(one)
    return found


def distributions(engine: mg.TorchEngine, ids: Sequence[int], places: Sequence[int]) -> np.ndarray:
    """[places, V]: the model's distributions, in float64."""
    labels = tuple(range(engine.vocabulary))
    (read,) = asyncio.run(engine.evaluate([EvaluateRequest(tuple(ids), tuple(places), labels)]))
    p = np.exp(np.array(read.values))
    return p / p.sum(-1, keepdims=True)


def searched(
    engine: mg.TorchEngine, prompt: str, spec: SearchSpec, limit: int, others: int = 0
) -> nx.DiGraph[str]:
    """The tree of what a search kept, step by step, and the best `others` that it did not; thick: what it returned.

    A node's value is the probability of its text so far; without others, of a token, the geometric mean.
    """
    head = engine.render(mg.Sequence.of(prompt))
    search = make_search(spec, engine.encode, engine.decode, engine.vocabulary, limit, seed=3)
    rows: list[tuple[tuple[int, ...], str, float]] = [((), "0", 0.0)]
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_node("0", step=prompt, value=None, state="expanded", multiplicity=1, chosen=True)
    names: dict[tuple[int, ...], str] = {(): "0"}
    labels = tuple(range(engine.vocabulary))

    def grown(parent: tuple[int, ...], token: int, logprob: float, state: str) -> str:
        name = f"{names[parent]}.{graph.out_degree(names[parent])}"
        names[(*parent, token)] = name
        value = float(np.exp(logprob if others else logprob / (len(parent) + 1)))
        shown = {"step": engine.decode([token]).replace(" ", "␣"), "value": value, "state": state}
        graph.add_node(name, **shown, multiplicity=1, chosen=False)
        graph.add_edge(names[parent], name)
        return name

    while rows:
        requests = [EvaluateRequest((*head, *ids), (len(head) + len(ids) - 1,), labels) for ids, _, _ in rows]
        read = asyncio.run(engine.evaluate(requests))
        logprobs = torch.tensor([answer.values[0] for answer in read])
        before = list(rows)

        def ends(row: int, token: int, before: Any = before, logprobs: Any = logprobs) -> Sample | None:
            ids, _, total = before[row]
            over = token in engine.ends or len(ids) + 1 >= limit
            whole = (*ids, token)
            return Sample("", whole, len(whole), total + float(logprobs[row, token])) if over else None

        chosen = search.select(Step(logprobs, logprobs, ends))
        pairs = list(zip(chosen.parents.tolist(), chosen.tokens.tolist(), strict=True))
        rows = []
        for row, token in pairs:
            ids, _, total = before[row]
            total += float(logprobs[row, token])
            rows.append(((*ids, token), grown(ids, token, total, "expanded"), total))
        for row, (ids, _, total) in enumerate(before):
            best = np.argsort(-logprobs[row].numpy(), kind="stable")[:others].tolist()
            for token in best:
                if (row, token) not in pairs and logprobs[row, token] > -np.inf:
                    grown(ids, token, total + float(logprobs[row, token]), "pruned")
    for place, (sample, _) in enumerate(search.results()):
        ids = sample.ids or ()
        if ids not in names:
            grown(ids[:-1], ids[-1], sample.logprob or 0.0, "finished")
        graph.nodes[names[ids]]["state"] = "finished"
        if place == 0:
            for length in range(1, len(ids) + 1):
                graph.nodes[names[ids[:length]]]["chosen"] = True
    for name in graph:
        if graph.nodes[name]["state"] == "expanded" and not graph.out_degree(name):
            graph.nodes[name]["state"] = "pruned"
    return graph


#: Pages whose picture is a method of the same name.
NAMES = (
    "adapters", "penalties", "truncation", "mirostat", "presets", "stopping", "likelihood",
    "contrastive", "experts", "proxy_tuning", "ensembles", "value_tilted", "kgram",
    "greedy", "beam", "diverse_beam", "constrained_beam", "stochastic_beam", "contrastive_search",
    "speculative", "block_verification", "several_drafts", "prompt_lookup", "constrained", "healing",
    "masses",
)  # fmt: skip


def main(folder: Path, *names: str) -> None:
    with ExitStack() as stack:
        atlas = Atlas(stack)
        for name in NAMES:
            if names and name not in names:
                continue
            draw: Callable[[], Figure] = getattr(atlas, name)
            with style():
                draw().savefig(folder / f"{name}.png", dpi=DPI, metadata={"Software": None})
            print(f"{name}: {(folder / f'{name}.png').stat().st_size // 1000} kB")


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/decoding")
    folder.mkdir(parents=True, exist_ok=True)
    main(folder, *sys.argv[2:])
