"""An experiment whose engines stay closed: everything is read, made and checked, and nothing can be called.

Stand-ins take the place of engines. They tokenise and count as the engines would, where the model lies on this
machine, have the fingerprints that a run noted, or that the engines would have here, and refuse every request.
"""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from metagen.cost import ModelShape, Price
from metagen.errors import EngineError, InputError, ModelError
from metagen.generators.declared import Declared
from metagen.generators.decoding.draft import Draft
from metagen.generators.decoding.parameters import BEYOND
from metagen.generators.engine import CHAT_API, EngineStats, EvaluateRequest, GenerateRequest, SamplingParams
from metagen.generators.models import sources
from metagen.generators.models.recipes import Recipe
from metagen.generators.openai.dialects import DIALECTS
from metagen.runs.declare import registry
from metagen.runs.declare.specs import (
    AdapterSpec,
    ExecutorSpec,
    Experiment,
    OpenAISpec,
    PartSpec,
    PluginSpec,
    PluginVerifierSpec,
)
from metagen.runs.declare.specs.parts import ValueSpec
from metagen.scope import Scope
from metagen.sequence import Score, Sequence
from metagen.verifiers.base import Verifier

if TYPE_CHECKING:
    from metagen.generators.tokenizer import Tokenizer

ENGINE, UNKNOWN = registry.STAND_INS


def with_stand_ins(
    experiment: Experiment, *, fingerprints: bool, noted: Mapping[str, str] | None = None
) -> Experiment:
    """The experiment on this machine alone, with stand-ins for its engines, and for reward models that are not here.

    fingerprints: the stand-ins have those of the engines. noted: by name of the engine, what a run called them; of
    others the files of the weights are read, and the engine is taken to run on this machine's hardware.
    """
    engines = {
        name: _stand_in(name, spec, _base(spec, experiment), fingerprints, (noted or {}).get(name))
        for name, spec in experiment.engines.items()
    }
    verifiers = {
        name: _unknown(spec) if _is_remote(spec, experiment) else spec
        for name, spec in experiment.verifiers.items()
    }
    executor = ExecutorSpec(concurrency=experiment.executor.concurrency)
    return experiment.model_copy(update={"engines": engines, "verifiers": verifiers, "executor": executor})


def _unknown(spec: PartSpec) -> PluginVerifierSpec:
    return PluginVerifierSpec.model_validate({"kind": UNKNOWN, "whole": spec.kind == "orm"})


def _base(spec: PartSpec, experiment: Experiment) -> PartSpec:
    """The engine that says how the model of an engine is run: of an adapter, the one that it is on."""
    return experiment.engines[spec.engine] if isinstance(spec, AdapterSpec) else spec


def _stand_in(name: str, spec: PartSpec, base: PartSpec, fingerprints: bool, noted: str | None) -> PluginSpec:
    options = {
        key: value
        for key in (
            "dtype",
            "device",
            "quantization",
            "draft",
            "max_context",
            "price",
            "shape",
            "api",
            "dialect",
        )
        if (value := _option(base, key))
    }
    given = {"name": name, "model": _model(spec), "needed": base.kind == "torch", "options": options}
    own = {**base.options(), **spec.options()}
    given |= {"fingerprints": fingerprints, "noted": noted, "of": base.kind, "given": own}
    given["tells_ids"] = not isinstance(base, OpenAISpec) or _option(spec, "tokenizer") is not None
    return PluginSpec.model_validate({"kind": ENGINE, **given})


def _option(spec: PartSpec, name: str) -> Any:
    said = getattr(spec, name, None)
    return said.value if isinstance(said, ValueSpec) else said or (spec.model_extra or {}).get(name)


def _model(spec: PartSpec) -> str | Recipe | None:
    """The directory of an engine's model, or of its tokenizer, if it lies on this machine; or its recipe."""
    model = _option(spec, "tokenizer" if isinstance(spec, OpenAISpec) else "model")
    if isinstance(model, Recipe):
        return model
    try:
        if isinstance(model, str):
            sources.resolve(model)
            return model
    except ModelError:
        return None
    return None


def _is_remote(spec: PartSpec, experiment: Experiment) -> bool:
    """Whether a reward model has no tokenizer here to count with."""
    if spec.kind not in ("prm", "orm"):
        return False
    model = _model(experiment.engines[spec.names_in("engines")[0]])
    return model is None or _tokenizer(model, needed=False) is None


class ClosedEngine:
    """Stands for an engine that is not opened, and can do what that one's class declares.

    model: its directory or recipe, if there is one here. needed: a fault of it is an error, as it is for the engine.
    of, given: the engine's kind and options. tells_ids: whether it will have token ids, by a tokenizer that may not be
    on this machine.
    noted: its fingerprint, if a run has noted it; what ran is not checked again.
    """

    def __init__(
        self,
        name: str,
        model: str | Recipe | None,
        *,
        needed: bool,
        fingerprints: bool,
        options: dict[str, Any],
        of: str,
        given: dict[str, Any],
        tells_ids: bool = True,
        noted: str | None = None,
    ) -> None:
        self.name, self._options, self.tells_ids = name, options, tells_ids
        self.draft: Draft | None = options.get("draft")
        self._checks = noted is None
        self._tokenizer = None if model is None else _tokenizer(model, needed)
        self.directory = sources.resolve(model) if isinstance(model, str) else None
        if self._tokenizer is not None:
            self.directory = self._tokenizer.directory
        self.tokenizer_fingerprint = self._tokenizer.fingerprint if self._tokenizer else None
        declares = getattr(registry.declaration("engines", of), "declares", None)
        self._declared: Declared | None = declares(self._tokenizer, **given) if declares else None
        if self._checks and needed and model is not None and self._tokenizer is not None:
            _check_vocabularies(name, model, self.draft)
        self.shape = None if model is None else _shape(model, self.draft, needed)
        if options.get("shape") is not None:
            self.shape = ModelShape.from_config(options["shape"])
        self.max_context: int | None = options.get("max_context")
        self.price = _price(name, options.get("price"))
        self.stats = EngineStats()
        self.fingerprint = f"closed/{name}"
        if noted is not None:
            self.fingerprint = noted
        elif fingerprints and needed and model is not None and self._tokenizer:
            self.fingerprint = _fingerprint(model, options)

    def __repr__(self) -> str:
        return f"engines.{self.name}"

    @property
    def chat(self) -> str | None:
        if self._options.get("api") == "chat":
            return CHAT_API
        return self._tokenizer.chat if self._tokenizer is not None else None

    @property
    def supports(self) -> frozenset[str]:
        """What the engine does; whatever is asked of one whose class does not say."""
        return BEYOND if self._declared is None else self._declared.supports

    @property
    def reads_labels(self) -> bool:
        """Whether the engine would tell the probabilities of given tokens."""
        ids = self._tokenizer is not None
        if "dialect" not in self._options:
            return ids
        return DIALECTS[self._options["dialect"]].reads_labels(self._options["api"], ids)

    def check(self, params: SamplingParams) -> None:
        """InputError for what the engine would refuse as well, whatever the prompt."""
        if self._checks and self._declared is not None:
            self._declared.check(params)

    def render(self, prefix: Sequence) -> tuple[int, ...] | None:
        return self._tokenizer.render(prefix)[0] if self._tokenizer else None

    def encode(self, text: str) -> tuple[int, ...]:
        return self._tokenizer.encode(text) if self._tokenizer else self._refuse()

    async def generate(self, request: GenerateRequest) -> NoReturn:
        self._refuse()

    async def evaluate(self, requests: list[EvaluateRequest]) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise EngineError(f"{self!r} is not opened: nothing is generated or scored here; use metagen run")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Unknown(Verifier):
    """Stands for a reward model that is not on this machine."""

    def __init__(self, name: str, *, whole: bool = False) -> None:
        self.name, self._whole = name, whole

    @property
    def whole(self) -> bool:
        return self._whole

    @property
    def fingerprint(self) -> str:
        return f"closed/{self.name}"

    async def score(self, sequences: abc.Sequence[Sequence], *, scope: Scope) -> list[Score]:
        raise EngineError(f"verifiers.{self.name} is not opened: nothing is scored here; use metagen run")


def _price(name: str, given: Any) -> Price | None:
    if given is None or isinstance(given, Price):
        return given
    try:
        return Price(**given)
    except (TypeError, InputError):
        raise InputError(
            f"engines.{name}.price = {given!r}: expected a mapping with prompt: and generated:, per million tokens"
        ) from None


def _tokenizer(model: str | Recipe, needed: bool) -> Tokenizer | None:
    """The engine's own tokenizer; None where its packages, or its file, are missing."""
    try:
        from metagen.generators.models.describe import tokenizer_of

        return tokenizer_of(model)
    except ImportError:
        return None
    except ModelError:
        if needed:
            raise
        return None


def _check_vocabularies(name: str, model: str | Recipe, draft: Draft | None) -> None:
    from metagen.generators.models.describe import check_drafted

    try:
        check_drafted(model, draft)
    except InputError as error:
        raise type(error)(f"engines.{name}: {error}") from None


def _shape(model: str | Recipe, draft: Draft | None, needed: bool) -> ModelShape | None:
    try:
        from metagen.generators.models.describe import drafted_shape

        return drafted_shape(model, draft)
    except ImportError:
        return None
    except ModelError:
        if needed:
            raise
        return None


def _fingerprint(model: str | Recipe, options: dict[str, Any]) -> str:
    """What the torch engine would call itself on this machine."""
    import torch

    from metagen.generators.models.describe import drafted_fingerprint, fingerprint_of, shape_of
    from metagen.generators.models.quantization import number_format
    from metagen.generators.torch.numbers import default_dtype

    device = torch.device(options.get("device") or ("cuda" if torch.cuda.is_available() else "cpu"))
    quantization, name = options.get("quantization"), options.get("dtype")
    dtype = getattr(torch, name) if name else default_dtype(shape_of(model), device, quantization)
    numbers = number_format(str(dtype), quantization)
    return drafted_fingerprint(fingerprint_of(model, numbers), options.get("draft"), numbers)
