"""How the strategies of a file are served to other programs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from metagen.runs.declare.specs.fields import Name
from metagen.runs.declare.specs.limits import BudgetSpec
from metagen.runs.declare.specs.parts import Spec
from metagen.values import Count, Expects, Filled, Quantity, Switch

Variable = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), Expects("the name of an environment variable")
]
Port = Annotated[int, Field(ge=0, le=65535), Expects("a port from 0 to 65535")]


def _check_lasting(budget: BudgetSpec) -> BudgetSpec:
    if budget.seconds is not None:
        raise ValueError("seconds would end all requests at once; give a deadline, for each request")
    return budget


class KeySpec(Spec):
    """A client's key, which an environment variable holds.

    env: the name of the variable. budget: for all requests with this key together, since the server began. per_minute:
    requests at most.
    """

    env: Variable
    budget: Annotated[BudgetSpec, AfterValidator(_check_lasting)] | None = None
    per_minute: Count | None = None


class EffortSpec(Spec):
    """The meaning of a `reasoning_effort`. strategy: replaces the model's. n: its samples. budget: of a request."""

    strategy: Name | None = None
    n: Count | None = None
    budget: BudgetSpec | None = None


class ServeSpec(Spec):
    """A server of the OpenAI API, with every configuration of the grid as a model.

    host: the address it listens on; any address but this machine's own needs keys. port: 0 takes a free one. keys:
    of clients; without any, every program on this machine is served. concurrency: prompts in work at a time, one
    of each request at least; more of the same request have the places that no request waits for. waiting: requests
    that may wait; more are refused. deadline: seconds for a request, its wait for a place included. max_n: choices
    of a request, and `metagen.n`, each at most. max_samples: of a request, at most: prompts × choices × samples of
    the strategy; one choice of a model of this file may have more. max_tokens: of a sample, at most. max_body: bytes
    of a request, at most. effort: by `reasoning_effort`. own_sampling: ignores temperature and other sampling
    parameters of requests. aliases: other names of models. origins: web pages that may send requests (CORS).
    exhausted: a request whose budget ends gets its best answer so far, or an error.
    """

    host: Filled = "127.0.0.1"
    port: Port = 8000
    keys: dict[Name, KeySpec] = Field(default={})
    concurrency: Count = 64
    waiting: Count = 256
    deadline: Quantity | None = None
    max_n: Count = 128
    max_samples: Count = 1024
    max_tokens: Count = 16384
    max_body: Count = 1_000_000
    effort: dict[Literal["none", "minimal", "low", "medium", "high", "xhigh"], EffortSpec] = Field(default={})
    own_sampling: Switch = False
    aliases: dict[Filled, Filled] = Field(default={})
    origins: tuple[Filled, ...] = ()
    exhausted: Literal["answer", "error"] = "answer"
