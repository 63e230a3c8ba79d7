"""The key of a server: read from the environment, sent to that server, and shown nowhere else."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from metagen.errors import InputError

HOSTED: Final = "https://api.openai.com/v1"
#: Holds the key of HOSTED, and goes nowhere else unless it is named.
VARIABLE: Final = "OPENAI_API_KEY"
#: In place of what may be a key, so that no message repeats it.
HIDDEN: Final = "(not shown)"
#: What logs requests and responses below an engine; with 2, the successors.
LIBRARIES: Final = ("aiohttp",)
#: Shorter keys are words that local servers ignore; to look for them in texts would find them by chance.
SECRET: Final = 8


class Key:
    """A key and where it was read. Shown, it is the name of the variable.

    variable: None is that of the hosted server for that server, and no key for any other. withheld: whether VARIABLE is
    set, and was not read for a server elsewhere, since nobody named it. Raises InputError for a name that is no
    variable's, and for a variable that is not set.
    """

    __slots__ = ("_value", "variable", "withheld")

    def __init__(self, variable: str | None, base_url: str) -> None:
        if variable is not None and not is_variable(variable):
            raise InputError(
                f"api_key_env, of {len(variable)} characters, is no name of capitals, digits and _, and may be a key "
                "itself, so it is not shown; put the key in an environment variable and give that variable's name"
            )
        self.variable = variable if variable is not None else VARIABLE if is_openai_host(base_url) else None
        self._value = os.environ.get(self.variable, "").strip() if self.variable is not None else ""
        self.withheld = self.variable is None and VARIABLE in os.environ and not loopback(base_url)
        if self.variable is not None and not self._value:
            raise InputError(
                f"api_key_env={self.variable!r}: this environment variable is not set; set it to the key of "
                f"{redact(base_url)}, or leave api_key_env out for a server that wants none"
            )
        if not all("!" <= letter <= "~" for letter in self._value):
            raise InputError(
                f"api_key_env={self.variable!r}: what the environment variable holds is no key, since it has spaces or "
                "letters beyond ASCII within; set it to the key alone"
            )

    def __repr__(self) -> str:
        return f"Key({self.variable!r})"

    @property
    def set(self) -> bool:
        return bool(self._value)

    def reveal(self) -> str:
        """The key itself, for the header that carries it alone; empty if there is none."""
        return self._value

    def within(self, text: str) -> bool:
        """Whether a text tells the key."""
        return len(self._value) >= SECRET and self._value in text

    def hide(self, text: str) -> str:
        """A text with the name of the variable in place of the key."""
        return text.replace(self._value, f"[{self.variable}]") if self.within(text) else text


def names_key(name: object) -> bool:
    """Whether a field is named as keys are."""
    plain = str(name).lower().replace("-", "_")
    return plain in ("key", "token", "authorization") or plain.endswith(
        ("api_key", "apikey", "password", "secret", "access_token", "auth_token", "hf_token")
    )


def without_keys(value: Any) -> Any:
    """Data with what may be keys taken out, at any depth."""
    if isinstance(value, Mapping):
        return {k: HIDDEN if names_key(k) else without_keys(v) for k, v in value.items()}
    return [without_keys(v) for v in value] if isinstance(value, list) else value


_PLAIN = logging.Formatter()


class Hiding(logging.Filter):
    """Takes a key out of what the client's libraries log: a server that sends it back has it in its headers."""

    def __init__(self, key: Key) -> None:
        super().__init__()
        self._key = key
        self._loggers: list[logging.Logger] = []

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        if record.exc_info:
            said += "\n" + _PLAIN.formatException(record.exc_info)
        if self._key.within(said):
            record.msg, record.args, record.exc_info = self._key.hide(said), (), None
        return True

    def start(self) -> None:
        """On each logger of its own: a filter of a logger does not see what those below it log."""
        for name in (*logging.root.manager.loggerDict, *LIBRARIES):
            if name.partition(".")[0] in LIBRARIES:
                logging.getLogger(name).addFilter(self)
                self._loggers.append(logging.getLogger(name))

    def stop(self) -> None:
        while self._loggers:
            self._loggers.pop().removeFilter(self)


def address(base_url: str | None) -> str:
    """The address to ask, checked. InputError for one that is no address, or that holds a secret."""
    url = base_url or HOSTED
    parts = urlsplit(url)
    where = f"base_url={redact(url)!r}"
    if parts.scheme not in ("http", "https") or not parts.hostname or not _port(parts):
        raise InputError(f"{where}: expected an address such as http://localhost:8000/v1")
    if parts.username is not None or parts.password is not None:
        raise InputError(
            f"{where}: a name or password stands before the host; put the key in an environment variable and name "
            "it by api_key_env"
        )
    if parts.query or parts.fragment:
        raise InputError(
            f"{where}: something follows the path, where keys are often put; give the address alone, and name the "
            "environment variable with the key by api_key_env"
        )
    return url.rstrip("/")


def is_openai_host(url: str) -> bool:
    """Whether an address is that of OpenAI's own server, by a connection that hides what is sent."""
    parts, own = urlsplit(url), urlsplit(HOSTED)
    return (parts.scheme, parts.hostname, parts.port or 443) == (own.scheme, own.hostname, 443)


def loopback(url: str) -> bool:
    """Whether an address is on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_variable(name: str) -> bool:
    """Whether a text is the name of an environment variable, and nothing that may be a key."""
    return re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) is not None


def _port(parts: SplitResult) -> bool:
    """Whether the port is one, or there is none."""
    try:
        return parts.port != 0
    except ValueError:
        return False


def redact(url: str) -> str:
    """An address without what may be secret: a name, a password, a query."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if host else "…"
