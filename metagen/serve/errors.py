"""What goes wrong with a request, as the OpenAI API says it."""

from __future__ import annotations

import re
from typing import Any

from metagen.errors import BudgetExhausted, InputError, MetagenError, PluginError, PromptError, SetupError

#: Of an absolute path, all but the name at its end.
_FOLDERS = re.compile(r"(?<![\w/:.])/(?:[\w.@+-]+/)+(?=[\w.@+-])")
#: Of an engine's server.
_ADDRESS = re.compile(r"https?://[^\s,;'\"]+")


class ApiError(MetagenError):
    """A request that is not answered. status: of HTTP. param: the field that is at fault. retry: seconds to wait."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry = status, message, param, code, retry

    @property
    def body(self) -> dict[str, Any]:
        """The answer's body."""
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
        kinds |= {402: "insufficient_quota", 429: "rate_limit_error", 503: "service_unavailable"}
        kind = kinds.get(
            self.status, "invalid_request_error" if self.status < 500 else "internal_server_error"
        )
        said = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": said}

    @property
    def headers(self) -> dict[str, str]:
        """The answer's headers."""
        made = {} if self.retry is None else {"Retry-After": str(self.retry)}
        return made | ({"WWW-Authenticate": "Bearer"} if self.status == 401 else {})


def refuse(param: str, message: str) -> ApiError:
    """A field whose value cannot be honoured."""
    return ApiError(400, f"{param}: {message}", param=param, code="invalid_value")


def of_error(error: MetagenError, asks: str | None = None) -> ApiError:
    """What an error of a solve tells a client. asks: the field that holds the prompt.

    Faults of the server's own stay in the log, and so do the folders of this machine and the addresses of engines.
    """
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BudgetExhausted):
        return ApiError(402, str(error), code="budget_exhausted")
    if isinstance(error, InputError) and not isinstance(error, PluginError | SetupError):
        param = asks if isinstance(error, PromptError) else None
        said = _FOLDERS.sub("", _ADDRESS.sub("its server", str(error)))
        return ApiError(400, said, param=param, code=type(error).__name__)
    what = "a part of this model" if isinstance(error, PluginError) else "the engine behind this model"
    return ApiError(503, f"{what} failed; the server's log says why", code=type(error).__name__)
