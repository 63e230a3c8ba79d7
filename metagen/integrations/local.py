"""A service in this process: the strategies of a file, or strategies by name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from metagen.errors import InputError
from metagen.runs.declare import schema
from metagen.runs.declare.specs.serve import ServeSpec
from metagen.serve import answers, protocol
from metagen.serve.errors import ApiError, refuse
from metagen.serve.models import Models, open_models
from metagen.serve.solve import Job, Service, check_tools
from metagen.strategies.base import Strategy

#: A strategy, strategies by name, or the path of a file with a grid of them.
Served: TypeAlias = Strategy | Mapping[str, Strategy] | str | PathLike[str]
#: The name of a strategy that was given without one.
ALONE = "strategy"


class Local:
    """Requests of the OpenAI API in, answers out. Its engines are open until `close`, if a file named them.

    own_sampling: ignore temperature and other sampling parameters of requests; None leaves it to `serve.own_sampling`
    of the file.
    """

    def __init__(self, served: Served, *, own_sampling: bool | None = None) -> None:
        self._stack = ExitStack()
        change = {} if own_sampling is None else {"own_sampling": own_sampling}
        if isinstance(served, str | PathLike):
            experiment = schema.load(Path(served))
            spec = experiment.serve or ServeSpec()
            models = self._stack.enter_context(open_models(experiment))
        else:
            spec, models = ServeSpec(), Models(_named(served))
        self.service = Service(models, spec.model_copy(update=change))

    def close(self) -> None:
        """Close the engines of the file."""
        self._stack.close()

    def name(self, model: str | None) -> str:
        """The model that is asked; the only one, where none is named. Raises ApiError where there are several."""
        names = self.service.models.names
        if model is None and len(self.service.models.strategies) > 1:
            raise refuse("model", f"missing, and there are several; expected one of {', '.join(names)}")
        return names[0] if model is None else model

    def takes_tools(self, name: str) -> bool:
        """Whether this model may call tools. Raises ApiError for a model that there is not."""
        models = self.service.models
        known = models.find(name)
        try:
            check_tools(name, models.strategy(known, None, {}))
        except ApiError:
            return False
        return True

    def jobs(
        self, kind: answers.Kind, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> tuple[protocol.Request, list[Job]]:
        """A request and its jobs. Where there is one model only, `model` may be left out. Raises ApiError."""
        body = {**fields, "model": self.name(fields.get("model"))}
        request: type[protocol.ChatRequest | protocol.CompletionRequest]
        request = protocol.ChatRequest if kind == "chat" else protocol.CompletionRequest
        beside = {name.lower(): value for name, value in (headers or {}).items()}
        asked = protocol.parse(request, body, beside)
        return asked, self.service.jobs(asked)

    async def answer(
        self, kind: answers.Kind, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The answer to a request that is not streamed, as the API has it. Raises ApiError and errors of its parts."""
        asked, jobs = self.jobs(kind, fields, headers)
        solutions = await self.service.solve(jobs, self.service.limit(jobs))
        return answers.Form(kind, asked.model).whole(solutions)


def given(file: Served | None, option: str) -> Served:
    """What is served. Raises InputError where nothing is. option: by which a command gives it."""
    if file is None:
        raise InputError(f"file is missing; give the path of an experiment file, such as {option}")
    return file


def _named(served: Strategy | Mapping[str, Strategy]) -> dict[str, Strategy]:
    found: dict[str, Any] = dict(served) if isinstance(served, Mapping) else {ALONE: served}
    wrong = next((name for name, one in found.items() if not isinstance(one, Strategy)), None)
    if wrong is not None:
        raise InputError(
            f"{wrong!r} is {found[wrong]!r:.60}; expected a strategy, such as Sample(generator), strategies by name, "
            "or the path of an experiment file"
        )
    if not found:
        raise InputError("there are no strategies; expected at least one, such as {'vote': MajorityVote(…)}")
    return found
