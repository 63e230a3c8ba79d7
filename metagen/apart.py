"""An object in a process of its own, such as one of another library.

There it has the main thread, which alarms need, and random numbers, logs and a standard output of its own.
"""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from importlib import import_module
from tempfile import TemporaryFile
from typing import IO, Any, Final

from metagen.errors import MetagenError, PluginError

#: Characters of what an ended process has written that an error quotes.
TAIL: Final = 300
#: Seconds in which a process ends whose pipes are closed.
GRACE: Final = 5.0


class Apart:
    """Makes `module:Class` with these options in another process, which ends with this object.

    what: the name of the object in errors.
    """

    def __init__(self, what: str, target: str, options: dict[str, Any]) -> None:
        self._what, self._lock = what, threading.Lock()
        self._log = TemporaryFile()  # noqa: SIM115 - closed at the end of the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # an interrupt is not for it
        )
        self._end = weakref.finalize(self, _end, self._process, self._log)
        self.call(target, **options)

    def call(self, method: str, **arguments: Any) -> Any:
        """What a method returns.

        Raises a MetagenError or OSError that the method raises, and PluginError where the process has ended.
        """
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None and answers is not None
        request = pickle.dumps((method, arguments))
        with self._lock:
            try:
                asked.write(request)
                asked.flush()
                said = pickle.load(answers)
            except (EOFError, OSError, ValueError, pickle.UnpicklingError):  # of a pipe that is closed, too
                raise PluginError(f"the process of {self._what} ended ({self._last()})") from None
        if isinstance(said, MetagenError | OSError):
            raise said
        return said

    def close(self) -> None:
        """End the process, and with an error whatever waits for it."""
        self._end()

    def _last(self) -> str:
        if not self._end.alive:
            return "it was closed"
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:  # it lives, and nobody can talk with it
            self._process.kill()
            status = self._process.wait()
        self._log.seek(0)
        return f"status {status}: {self._log.read().decode(errors='replace').strip()[-TAIL:] or 'it said nothing'}"


def _end(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout, log):
        assert pipe is not None
        with suppress(OSError):  # what was not read
            pipe.close()


def main() -> None:
    """The other process: it makes the object, calls its methods, and ends with its input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # for what libraries print
    logging.disable(logging.WARNING)
    made: Any = None
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        said = None
        try:
            if made is None:
                module, _, attribute = name.partition(":")
                made = getattr(import_module(module), attribute)(**arguments)
            else:
                said = getattr(made, name)(**arguments)
        except (MetagenError, OSError) as error:
            said = error
        pickle.dump(said, answers)
        answers.flush()


if __name__ == "__main__":
    main()
