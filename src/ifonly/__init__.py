"""If only we had acted differently: exact counterfactual optima of recorded episodes, with proof.

Names are imported when they are first used, so that `import ifonly` and `ifonly --help` do not wait for torch. The stub
beside this module lists them.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {name.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for name in node.names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ifonly' has no attribute {name!r}")
    home = _HOMES[name]
    value = import_module(f"ifonly.{name}") if home == "ifonly" else getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
