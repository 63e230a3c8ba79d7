"""metagen: meta-generation, or inference-time scaling, with strategies that nest.

A strategy is a generator that calls generators. The public names are listed in `__init__.pyi` and
imported when first asked for, so that `import metagen` costs next to nothing and needs no torch.
"""

__version__ = "0.2.0"

#: Public names, each with the module that defines it.
_HOMES: dict[str, str] = {}


def _homes() -> dict[str, str]:
    """Read from the stub, which type checkers read too, when the first name is asked for."""
    if not _HOMES:
        import ast
        from pathlib import Path

        stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8"))
        named = (node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module)
        _HOMES.update({alias.name: str(node.module) for node in named for alias in node.names})
    return _HOMES


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for (PEP 562)."""
    if name == "__all__":
        return ["__version__", *_homes()]
    if name.startswith("__") or name not in _homes():
        import sys

        module = sys.modules[__name__]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=module)

    from importlib import import_module

    value = globals()[name] = getattr(import_module(_homes()[name]), name)
    return value


def __dir__() -> list[str]:
    """The names that `import metagen` offers, imported yet or not."""
    return sorted({*globals(), "__all__", "__version__", *_homes()})
