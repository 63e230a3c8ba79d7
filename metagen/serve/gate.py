"""Who may ask, how often, how much, and when: keys, rates, budgets, and a fair queue."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import math
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter

from metagen.budget import Account
from metagen.errors import ConfigError
from metagen.runs.declare.specs.serve import KeySpec, ServeSpec
from metagen.serve.errors import ApiError

#: Hosts that only this machine reaches.
LOCAL = ("127.0.0.1", "localhost", "::1")
#: Seconds that a request takes, until some have been seen.
GUESS = 1.0


@dataclass(eq=False)
class Client:
    """Who asks. account: of its budget, made in the event loop of the server."""

    name: str
    spec: KeySpec | None = None
    account: Account | None = None
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class Keys:
    """The clients by their keys, of which only digests are kept. Raises ConfigError for variables that hold none."""

    def __init__(self, keys: Mapping[str, KeySpec], environment: Mapping[str, str] | None = None) -> None:
        found = os.environ if environment is None else environment
        self._clients: dict[bytes, Client] = {}
        for name, spec in keys.items():
            key = found.get(spec.env, "").strip()
            if not key:
                raise ConfigError(
                    f"serve.keys.{name}.env: the variable {spec.env} is not set; export {spec.env}=… with the key, or "
                    "leave it out"
                )
            if not (key.isascii() and key.isprintable()):
                raise ConfigError(
                    f"serve.keys.{name}.env: the variable {spec.env} holds a key that no header can carry; expected "
                    "letters, digits and signs of ASCII"
                )
            if _digest(key) in self._clients:
                raise ConfigError(
                    f"serve.keys.{name}.env: the variable {spec.env} holds the key of another client"
                )
            self._clients[_digest(key)] = Client(name, spec)
        self._anybody = Client("")
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    @property
    def wanted(self) -> bool:
        """Whether requests need keys."""
        return bool(self._clients)

    def client(self, header: str | None) -> Client:
        """Who sends this `Authorization` header. Raises ApiError (401) for nobody who is known."""
        if not self.wanted:
            return self._anybody
        kind, _, key = (header or "").partition(" ")
        given, found = _digest(key.strip()), None
        for known, client in self._clients.items():  # all of them, so that the time tells nothing
            if hmac.compare_digest(known, given):
                found = client
        if kind.lower() != "bearer" or found is None:
            raise ApiError(
                401, "expected a key that this server knows: Authorization: Bearer …", code="invalid_api_key"
            )
        if found.account is None and found.spec is not None and found.spec.budget is not None:
            found.account = Account(found.spec.budget, None, f"the key {found.name!r}")
        return found

    def count(self, client: Client) -> None:
        """Count one request of a client. Raises ApiError (429) for one too many within a minute."""
        rate = client.spec.per_minute if client.spec is not None else None
        if rate is None:
            return
        item = RateLimitItemPerMinute(rate)
        if not self._limiter.hit(item, client.name):
            free = self._limiter.get_window_stats(item, client.name).reset_time - time.time()
            raise ApiError(
                429,
                f"more than {rate} requests within a minute",
                code="rate_limit_exceeded",
                retry=max(1, math.ceil(free)),
            )


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


class Gate:
    """Lets so many requests work at a time; the others wait, and the clients among them have their turns one by one.

    running: places that are taken at this moment. waiting: requests that wait for one.
    """

    def __init__(self, concurrency: int, waiting: int) -> None:
        self._most, self._room = concurrency, waiting
        self.running = self.waiting = 0
        self._turns: deque[Client] = deque()
        self._spare: deque[asyncio.Future[None]] = deque()
        self._seconds = GUESS

    @asynccontextmanager
    async def enter(self, client: Client, seconds: float | None = None) -> AsyncIterator[None]:
        """Wait for a place, and have it for the block.

        seconds: to wait at most. Raises ApiError (429) where too many wait already, and for who has waited so long.
        """
        try:
            async with asyncio.timeout(seconds):
                await self._wait(client)
        except TimeoutError:
            raise self._refusal(f"no place was free within {seconds:g} seconds") from None
        began = time.monotonic()
        try:
            yield
        finally:
            self.running -= 1
            # A moving mean, by which those who are refused are told when to come again.
            self._seconds += 0.1 * (time.monotonic() - began - self._seconds)
            self._go_on()

    @asynccontextmanager
    async def spare(self) -> AsyncIterator[None]:
        """Wait for a place that no request wants, and have it for the block: for more prompts of a request at work."""
        if self.running < self._most:  # so that no request waits
            self.running += 1
        else:
            await self._wait_for_spare()
        try:
            yield
        finally:
            self.running -= 1
            self._go_on()

    async def _wait_for_spare(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spare.append(place)

        def forget() -> None:
            if place in self._spare:
                self._spare.remove(place)

        await self._turn_of(place, forget)

    async def _wait(self, client: Client) -> None:
        if self.running < self._most and not self.waiting:
            self.running += 1
            return
        if self.waiting >= self._room:
            raise self._refusal(f"{self.waiting} requests wait already")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not client.waiting:
            self._turns.append(client)
        client.waiting.append(place)
        self.waiting += 1

        def forget() -> None:
            if place in client.waiting:
                client.waiting.remove(place)
                self.waiting -= 1
                if not client.waiting:
                    self._turns.remove(client)

        await self._turn_of(place, forget)

    async def _turn_of(self, place: asyncio.Future[None], forget: Callable[[], None]) -> None:
        """Wait for a turn; `forget` takes back a wait that is cancelled before it comes."""
        try:
            await place
        except asyncio.CancelledError:
            if place.cancelled():
                forget()
            else:
                self.running -= 1  # its turn came at the same moment
                self._go_on()
            raise

    def _refusal(self, why: str) -> ApiError:
        soon = max(1, math.ceil(self._seconds * (self.waiting + 1) / self._most))
        return ApiError(429, f"{why}; come again in {soon} s", code="overloaded", retry=soon)

    def _go_on(self) -> None:
        while self._turns and self.running < self._most:
            client = self._turns.popleft()
            place = client.waiting.popleft()
            self.waiting -= 1
            if client.waiting:
                self._turns.append(client)
            self._give(place)
        while self._spare and self.running < self._most:
            self._give(self._spare.popleft())

    def _give(self, place: asyncio.Future[None]) -> None:
        if not place.done():  # else who waited has gone at this very moment
            self.running += 1
            place.set_result(None)


def check_host(spec: ServeSpec) -> None:
    """ConfigError for a server that others can reach and nobody needs a key for."""
    if spec.host not in LOCAL and not spec.keys:
        raise ConfigError(
            f"serve.host = {spec.host!r}: other machines could ask, and no key is needed; give serve.keys, such as "
            "{me: {env: MY_KEY}}, or listen at 127.0.0.1"
        )
