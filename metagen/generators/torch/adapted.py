"""An adapter on an engine that runs its base, as an engine: the base and all its adapters share one batch."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from metagen.errors import UnsupportedError
from metagen.generators.engine import Engine
from metagen.generators.local import LocalEngine
from metagen.generators.torch.models.language_model import LanguageModel
from metagen.generators.torch.prefix_tree import PrefixTree
from metagen.generators.torch.requests import Requests
from metagen.generators.torch_options import AdaptedOptions


class AdaptedEngine(Requests, AdaptedOptions):
    """An adapter on an engine that runs its base (`TorchEngine.adapted`).

    It has the name, fingerprint, tokenizer and shape of the adapter, as an engine of its own would have. It can be used
    while the engine is open; `with` opens an engine that nobody has opened, and closes it then. `stats` are the
    engine's. Raises UnsupportedError for an engine that takes no adapters, InputError for an adapter of another base,
    and ModelError for files that do not fit.
    """

    def _load(self, engine: Engine, model: str | Path) -> None:
        host: Any = engine
        if not hasattr(host, "adopt"):
            raise UnsupportedError(
                f"{engine!r} takes no adapters by row; open the base with TorchEngine (kind: torch), or give "
                f"{str(model)!r} an engine of its own"
            )
        self._engine = host
        self._draft, self._opens = host.draft, False
        number, loaded = host.adopt(model)
        LocalEngine.__init__(
            self,
            loaded.name,
            loaded.tokenizer,
            context=host.max_context,
            shape=loaded.shape,
            fingerprint=loaded.fingerprint,
            stats=host.stats,
        )
        self._speak(loaded, adapter=number, max_batch=host.max_batch)

    def __repr__(self) -> str:
        return f"AdaptedEngine({self._engine!r}, {self._name!r})"

    async def _ask(self, make: Any) -> Any:
        return await self._engine._ask(make)

    def _parts(self) -> tuple[LanguageModel[Any], PrefixTree[Any]]:
        parts: tuple[LanguageModel[Any], PrefixTree[Any]] = self._engine._parts()
        return parts

    def __enter__(self) -> Self:
        if not self._engine.opened:
            self._engine.__enter__()
            self._opens = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opens:
            self._engine.__exit__(kind, error, trace)
