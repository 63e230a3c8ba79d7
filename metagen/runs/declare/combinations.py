"""What the parts of an experiment must be to each other; none of it can be seen in one field."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path as Directory
from typing import Annotated, Any, cast

from pydantic import TypeAdapter, ValidationError

from metagen.errors import ConfigError, ModelError
from metagen.generators.models import sources
from metagen.runs.declare import registry
from metagen.runs.declare.registry import Section
from metagen.runs.declare.source import Fault, Path, Source, nearest, spell_assignment, spell_path
from metagen.runs.declare.specs import (
    AdapterSpec,
    AllocationSpec,
    Context,
    Definition,
    EngineGeneratorSpec,
    LocalSpec,
    OpenAISpec,
    OptionSpec,
    PartSpec,
    PluginSpec,
    PoolSpec,
    ReplaySpec,
    model_of,
)
from metagen.runs.declare.specs.derived import DerivedSpec
from metagen.verifiers.published import layout_of


class Combinations:
    """The definitions that are sound by themselves, and the faults between them."""

    def __init__(self, source: Source, context: Context) -> None:
        self.source, self.context = source, context
        self.engines = self._sound("engines")
        self.generators = self._sound("generators")
        self.verifiers = self._sound("verifiers")
        self.strategies = self._sound("strategies")

    def faults(self) -> Iterator[Fault]:
        yield from self._plugins()
        yield from self._reward_models()
        yield from self._contexts()
        yield from self._adapters()
        yield from self._pools()
        yield from self._circles()
        yield from self._numbers()
        yield from self._conflicts()
        yield from self._check_allocation()
        for generator, strategy in self._cells():
            yield from self._pair(generator, strategy)

    # -- what there is -------------------------------------------------------------------------------

    def _sound(self, section: Section) -> dict[str, PartSpec]:
        """The definitions of a section that nothing is wrong with."""
        adapter = TypeAdapter(Annotated[PartSpec, Definition(section)])
        sound = {}
        for name in self.context.names[section]:
            try:
                value = json.dumps(self.source.data[section][name])
                sound[name] = adapter.validate_json(value, context=self.context)
            except ValidationError:
                continue
        return sound

    def _names_in_grid(self, section: Section) -> list[str]:
        """The sound definitions that the grid runs."""
        grid = self.source.data.get("grid")
        names = grid.get(section) if isinstance(grid, dict) else None
        sound = self.generators if section == "generators" else self.strategies
        return [name for name in sound if isinstance(names, list) and name in names]

    def _cells(self) -> Iterator[tuple[str, str]]:
        """Generators, each with the strategies that the grid runs on it."""
        grid = self.source.data.get("grid")
        pairs = grid.get("pairs") if isinstance(grid, dict) else None
        for cell in product(self._names_in_grid("generators"), self._names_in_grid("strategies")):
            if not isinstance(pairs, list) or list(cell) in pairs:
                yield cell

    def _fault(self, path: Path, expected: str, *, value: object = None) -> Fault:
        path = self.source.path_in_file(path)
        field = spell_path(path) if value is None else spell_assignment(path, value)
        return Fault(self.source.place(path), field, expected)

    # -- the checks ----------------------------------------------------------------------------------

    def _plugins(self) -> Iterator[Fault]:
        """Parts of other packages can be imported, and take the options that they are given."""
        data = self.source.data
        found: list[tuple[Path, Any]] = [(("task",), data.get("task"))]
        for section in ("engines", "generators", "verifiers", "strategies"):
            found += [((section, name), data[section][name]) for name in self.context.names[section]]
        for path, part in found:
            kind = part.get("kind") if isinstance(part, dict) else None
            told = model_of(cast(Section, path[0]), kind)
            if isinstance(kind, str) and told is not None and issubclass(told, PluginSpec):
                yield from self._plugin(path, kind, part)

    def _plugin(self, path: Path, kind: str, part: Mapping[str, Any]) -> Iterator[Fault]:
        section = cast(Section, path[0])
        try:
            takes = registry.parameters(section, kind)
        except ConfigError as error:
            yield self._fault((*path, "kind"), str(error), value=kind)
            return
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in takes.values()):
            return
        for name in part:
            if name != "kind" and name not in takes:
                known = ", ".join(takes) or "nothing"
                yield self._fault(
                    (*path, name), f"{kind} takes no such option; it takes {known}{nearest(name, list(takes))}",
                    value=part[name],
                )  # fmt: skip
        for name, parameter in takes.items():
            needed = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
            if needed and name not in part and name not in registry.PROVIDED[section]:
                yield self._fault((*path, name), f"missing; {kind} needs it")

    def _reward_models(self) -> Iterator[Fault]:
        """A reward model's tags are known, and it is of the kind that it is used as."""
        verifiers: dict[str, Any] = self.verifiers
        for name, verifier in verifiers.items():
            if verifier.kind not in ("prm", "orm") or (verifier.tags or verifier.layout) is not None:
                continue
            engine = self.engines.get(verifier.engine)
            if engine is None:
                continue
            if not isinstance(engine, LocalSpec) or not isinstance(engine.model, str):
                reason = "missing; this engine names none, expected {tag: …, positive: …, negative: …}, or a layout"
                yield self._fault(("verifiers", name, "tags"), reason)
                continue
            try:
                layout_of(sources.resolve(engine.model), verifier.kind)
            except ModelError as error:
                reason = f"{engine.model!r} is no reward model: {error}, in this verifier's definition"
                yield self._fault(("verifiers", name, "engine"), reason, value=verifier.engine)

    def _contexts(self) -> Iterator[Fault]:
        """A local model's context has room for a prompt beside the longest sample."""
        for name, generator in self.generators.items():
            if not isinstance(generator, EngineGeneratorSpec):
                continue
            engine = self.engines.get(generator.engine)
            if not isinstance(engine, LocalSpec) or not isinstance(engine.model, str):
                continue
            known = [_context(sources.resolve(engine.model)), getattr(engine, "max_context", None)]
            context = min((size for size in known if isinstance(size, int)), default=None)
            if context is not None and generator.params.max_tokens >= context:
                reason = (
                    f"the context of {engine.model!r} has {context:,} tokens, prompt included; expected fewer"
                )
                yield self._fault(
                    ("generators", name, "max_tokens"), reason, value=generator.params.max_tokens
                )

    def _adapters(self) -> Iterator[Fault]:
        """An adapter stands on a torch engine of this process."""
        executor = self.source.data.get("executor")
        kind = executor.get("kind") if isinstance(executor, dict) else executor
        for name, spec in self.engines.items():
            if not isinstance(spec, AdapterSpec):
                continue
            base = self.engines.get(spec.engine)
            if base is not None and base.kind != "torch":
                reason = f"engine {spec.engine!r} is of kind {base.kind}; expected one of kind torch, over the base"
                yield self._fault(("engines", name, "engine"), reason, value=spec.engine)
            elif kind == "ray":
                reason = (
                    "a pool of replicas runs one model; expected kind: torch, without engine, so that the adapter has "
                    "a pool of its own"
                )
                yield self._fault(("engines", name, "kind"), reason, value=spec.kind)

    def _pools(self) -> Iterator[Fault]:
        """What replicas need is said where an engine takes it from."""
        executor = self.source.data.get("executor")
        if not isinstance(executor, dict):
            return
        pools, engines = executor.get("pools"), self.context.names["engines"]
        if not isinstance(pools, dict) or not engines or not pools.keys() >= set(engines):
            return
        for name, field in PoolSpec.model_fields.items():
            default = field.get_default(call_default_factory=True)
            if (value := executor.get(name, default)) != default:
                reason = "every engine has a pool of its own, which takes nothing from here; repeat it there"
                yield self._fault(("executor", name), reason, value=value)

    def _circles(self) -> Iterator[Fault]:
        """No verifier is made of itself, and no strategy stands over itself."""
        sections: tuple[tuple[Section, dict[str, PartSpec]], ...] = (
            ("verifiers", self.verifiers), ("strategies", self.strategies),
        )  # fmt: skip
        for section, parts in sections:
            for name, spec in parts.items():
                seen, waiting = set[str](), list(spec.names_in(section))
                while waiting:
                    member = waiting.pop()
                    if member not in seen:
                        seen.add(member)
                        waiting += parts[member].names_in(section) if member in parts else ()
                if name in seen:
                    fields = (f for f, of in spec.uses.items() if of == section and getattr(spec, f))
                    field = next(fields, "then")  # the ways to go on are named within
                    reason = f"{name!r} is made of itself, by way of {', '.join(sorted(seen))}; leave one out"
                    yield self._fault((section, name, field), reason)

    def _numbers(self) -> Iterator[Fault]:
        """Strategies over n samples have their n."""
        for name in self._names_in_grid("strategies"):
            then = enumerate(getattr(self.strategies[name], "then", None) or ())
            places = {place: way for place, way in then if isinstance(way, OptionSpec)}
            for place, way in places.items():
                if (
                    way.n is not None
                    and way.strategy in self.strategies
                    and not self._takes(way.strategy, "n")
                ):
                    kind = self.strategies[way.strategy].kind
                    reason = f"{way.strategy!r} ({kind}) draws no n samples; leave n out"
                    yield self._fault(("strategies", name, "then", place, "n"), reason, value=way.n)
            ways = list(places.values())
            given = {w.strategy for w in ways if w.n is not None} - {w.strategy for w in ways if w.n is None}
            over = getattr(self.strategies[name], "over", None)
            for below in self.strategies[name].names_in("strategies"):
                if below not in self.strategies or (below in given and below != over):
                    continue
                if isinstance(own := getattr(self.strategies[below], "n", None), tuple):
                    reason = f"{name!r} runs it with one n; expected one integer, or n of the option"
                    yield self._fault(("strategies", below, "n"), reason, value=list(own))
                elif self._takes(below, "n") and own is None:
                    how = "stands over it" if below == over else "goes on with it"
                    reason = f"missing; {name!r} {how}, so it needs an n of its own, such as n: 4"
                    yield self._fault(("strategies", below, "n"), reason)
        grid = self.source.data.get("grid")
        if isinstance(grid, dict) and grid.get("n"):
            return
        over_n = [
            name
            for name in self._names_in_grid("strategies")
            if self._takes(name, "n") and not self._own_n(name)
        ]
        if over_n:
            yield self._fault(
                ("grid", "n"),
                f"missing; {', '.join(over_n)} need a list of integers ≥ 1, such as n: [1, 4, 16]",
            )

    def _conflicts(self) -> Iterator[Fault]:
        """What fields of a strategy cannot be to an n of the grid; those with an n of their own were asked before."""
        grid = self.source.data.get("grid")
        sizes = (grid.get("n") if isinstance(grid, dict) else None) or ()
        for name in self._names_in_grid("strategies"):
            spec = self.strategies[name]
            if not isinstance(spec, DerivedSpec) or not self._takes(name, "n") or self._own_n(name):
                continue
            for n in sizes if isinstance(sizes, list) else ():
                if isinstance(n, int) and (odd := spec.conflict_of(n=n)):
                    yield self._fault(("strategies", name), f"with n = {n} of the grid: {odd}")
                    break

    def _check_allocation(self) -> Iterator[Fault]:
        """Shares by difficulty are for plain votes over at least the first samples."""
        section, grid = self.source.data.get("allocation"), self.source.data.get("grid")
        try:
            allocation = AllocationSpec.model_validate_json(json.dumps(section), context=self.context)
        except ValidationError:
            return
        of_grid = (grid.get("n") if isinstance(grid, dict) else None) or ()
        for place, name in enumerate(allocation.strategies):
            spec = self.strategies.get(name)
            if spec is None:
                continue
            if (run := self._names_in_grid("strategies")) and name not in run:
                reason = f"the grid does not run it; expected one of {', '.join(run)}"
                yield self._fault(("allocation", "strategies", place), reason, value=name)
                continue
            if not registry.says(spec.kind, "votes") or not spec.plain:
                votes = " or ".join(registry.saying("votes"))
                reason = (
                    f"expected a strategy of kind {votes}, over no other and with the task's answers: their curves can "
                    "be learned"
                )
                yield self._fault(("allocation", "strategies", place), reason, value=name)
                continue
            own = getattr(spec, "n", None)
            sizes = of_grid if own is None else [own] if isinstance(own, int) else own
            if few := [n for n in sizes if isinstance(n, int) and n < allocation.first]:
                reason = f"{name!r} draws {few[0]} at most; expected that or fewer first samples"
                yield self._fault(("allocation", "first"), reason, value=allocation.first)

    def _own_n(self, strategy: str) -> bool:
        return getattr(self.strategies[strategy], "n", None) is not None

    def _takes(self, strategy: str, parameter: str) -> bool:
        try:
            return parameter in registry.parameters("strategies", self.strategies[strategy].kind)
        except ConfigError:
            return False

    def _pair(self, generator: str, strategy: str) -> Iterator[Fault]:
        """A strategy of the grid can run on a generator of the grid."""
        g, s = self.generators[generator], self.strategies[strategy]
        path: Path = ("strategies", strategy)
        if isinstance(g, ReplaySpec) and s.kind == "greedy":
            reason = f"generator {generator!r} replays samples and cannot decode greedily; leave it out of the grid"
            yield self._fault((*path, "kind"), reason, value=s.kind)
        if self._takes(strategy, "n") and not self._independent(g):
            yield self._fault(
                (*path, "kind"),
                f"pools independent draws, and generator {generator!r} ({g.kind}) draws jointly; "
                "leave one out of the grid",
                value=s.kind,
            )
        engine, task = self.engines.get(getattr(g, "engine", None) or ""), self.source.data.get("task")
        plain = isinstance(task, dict) and task.get("form") == "text"
        if plain and isinstance(engine, OpenAISpec) and engine.api == "chat":
            reason = (
                f"generator {generator!r} asks a server's chat API, which knows turns only; expected chat or auto, "
                "or api: completions in its engine"
            )
            yield self._fault(("task", "form"), reason, value="text")
        verifier: Any = self.verifiers.get(getattr(s, "verifier", None) or "")
        if verifier is not None and verifier.kind == "recorded":
            recorded = isinstance(g, ReplaySpec) and f"scores.{verifier.score}" in g.fields
            if not recorded:
                yield self._fault(
                    (*path, "verifier"),
                    f"needs the recorded score {verifier.score!r}, which generator {generator!r} has not; "
                    f"map it there, fields: {{scores.{verifier.score}: …}}, or leave one out of the grid",
                    value=getattr(s, "verifier", None),
                )
        by_mass = verifier is not None and verifier.kind == "constraint_mass"
        if by_mass and isinstance(g, EngineGeneratorSpec) and not g.params.log_mass:
            yield self._fault(
                (*path, "verifier"),
                f"weighs by what masks left, which generator {generator!r} does not keep; set log_mass: true there, or "
                "leave one out of the grid",
                value=getattr(s, "verifier", None),
            )

    def _independent(self, spec: PartSpec) -> bool:
        if isinstance(spec, EngineGeneratorSpec) and spec.searches:
            return False
        if not registry.external("generators", spec.kind):
            return True
        try:
            return bool(getattr(registry.find("generators", spec.kind), "independent", True))
        except ConfigError:
            return True


def _context(directory: Directory) -> int | None:
    """A model's context by its config.json; None where that is torn, which its engine will say."""
    try:
        own = json.loads((directory / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return own.get("max_position_embeddings") if isinstance(own, dict) else None
