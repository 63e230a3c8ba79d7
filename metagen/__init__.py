"""metagen: meta-generation, or inference-time scaling, with strategies that nest.

A strategy is a generator that calls generators. The public names are listed in `__init__.pyi` and
imported when first asked for, so that `import metagen` costs next to nothing and needs no torch.
"""

import ast
import sys
from importlib import import_module
from pathlib import Path

__version__ = "0.1.0.dev0"

#: Public names, each with the module that defines it; read from the stub, which type checkers read too.
_HOMES = {
    alias.name: node.module
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _HOMES:
        module = sys.modules[__name__]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=module)
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    """The names that `import metagen` offers, imported yet or not."""
    return sorted({*globals(), *__all__})
