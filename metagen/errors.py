"""The error tree: everything metagen raises on purpose is a `MetagenError`.

A message says what was wrong, the value, what was expected and how to mend it. `InputError` and its
children are what the user can mend (exit code 2); the rest are faults of the system (exit code 1).
"""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that brings what an extra of metagen's needs. It is on no index: the clone is where it comes from."""
    return f"pip install -e '.[{extra}]' in the clone of metagen"


def lacks(error: ImportError) -> str:
    """What an import needs, for a sentence: it may be a package that is there and broken, or of another version."""
    name, first = absent(error), error
    while isinstance(first.__cause__, ImportError):
        first = first.__cause__
    return f"{name}, which is not installed" if name else f"a package that cannot be imported ({first})"


def absent(error: BaseException) -> str | None:
    """The module that is not there, if that is why an import failed, also one within another package's import."""
    found = None if error.__cause__ is None else absent(error.__cause__)
    return found or (error.name if isinstance(error, ModuleNotFoundError) else None)


class MetagenError(Exception):
    """Root of all errors that metagen raises.

    through: the plug-in inside of which it was raised, if in one. path: of the part of an experiment that it is about.
    """

    through: str = ""
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{super().__str__()} (raised in {self.through})" if self.through else super().__str__()


class InputError(MetagenError, ValueError):
    """Something given by the user is wrong: a value, a file, a combination."""


class ConfigError(InputError):
    """An experiment file is wrong; the message lists every fault with file, line and field."""


class PromptError(InputError):
    """A prompt is empty, or does not fit the model's context."""


class ModelError(InputError):
    """A model directory is missing, or its config, weights and tokenizer do not fit together."""


class DataError(InputError):
    """A data set is empty, has duplicate ids, or holds a reference that cannot be read."""


class UnsupportedError(InputError):
    """A part was asked for something that it declares it cannot do."""


class SetupError(InputError):
    """A server that an engine asks does not take its key, its account, its address or its name of the model."""


class PluginError(InputError):
    """A part or a function that somebody gave metagen raised an error, or broke its contract.

    The message names object, method and line. What was raised is its `__cause__`.
    """


class PoolExhausted(InputError):
    """A recorded pool was asked for more samples than it holds."""


class BudgetExhausted(MetagenError):
    """A call did not fit what is left of a budget, or came after its deadline.

    Strategies need not catch it: the base class returns the best offer made so far.
    """

    def __init__(self, dimension: str, limit: float, needed: float, left: float, owner: str = "") -> None:
        self.dimension, self.limit, self.needed, self.left, self.owner = (
            dimension, limit, needed, left, owner,
        )  # fmt: skip
        where = f" of {owner!r}" if owner else ""
        super().__init__(
            f"the budget{where} of {limit:g} {dimension} is spent: a call needs {needed:g} more and "
            f"{left:g} are left; raise the budget's {dimension!r} to go on"
        )


class ScopeError(MetagenError):
    """A contract of `Scope` was broken: a repeated child name, a call outside of a scope."""


class JournalError(MetagenError):
    """The journal cannot be written or read."""


class JournalLocked(JournalError, InputError):
    """Another process writes this journal."""


class JournalCorrupt(JournalError, InputError):
    """The file is not a journal, is torn, or was written under another schema."""


class JournalMismatch(JournalError, InputError):
    """The journal belongs to another run seed or other data."""


class EngineError(MetagenError):
    """An engine failed, or was used before it was opened or after it was closed."""


class NumericsError(EngineError):
    """A model returned NaN where probabilities were needed."""
