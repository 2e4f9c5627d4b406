"""A script that calls a function, for launchers, which start scripts.

What the function uses of its notebook, or of the script that defines it, is written into the script: the source of
functions and classes, imports, and plain values.
"""

from __future__ import annotations

import dis
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ddpdoctor.cli.errors import UsageError

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MAIN = "__main__"
_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")


def script_of_function(function: Callable[..., object], args: Sequence[object], folder: Path) -> Path:
    """Write the script.

    Args:
        function: of a notebook, of the script that runs, or of a module that ranks can import.
        args: what it is given; plain values, and lists, tuples, sets and dicts of them.

    Raises:
        UsageError: its source, or a value that it uses, cannot be written into a script.
    """
    name = getattr(function, "__name__", "")
    if not inspect.isfunction(function) or not name.isidentifier():
        raise UsageError(f"{function!r} is not a function with a name")
    values = ", ".join(_literal(value, f"an argument of {name}") for value in args)
    if function.__module__ == _MAIN:
        definitions = _Definitions()
        definitions.add(name, function)
        text = "\n".join(definitions.texts)
    else:
        path = str(Path(inspect.getfile(function)).parents[function.__module__.count(".")])
        text = f"import sys\n\nsys.path.insert(0, {path!r})\nfrom {function.__module__} import {name}\n"
    script = folder / f"{name}.py"
    script.write_text(f'{text}\nif __name__ == "__main__":\n    {name}({values})\n', encoding="utf-8")
    return script


def _literal(value: object, what: str) -> str:
    if isinstance(value, _PLAIN):
        return f"float({str(value)!r})" if isinstance(value, float) else repr(value)
    if isinstance(value, dict):
        items = (f"{_literal(key, what)}: {_literal(item, what)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        items = (f"{_literal(item, what)}, " for item in value)
        return f"[{''.join(items)}]" if isinstance(value, list) else f"({''.join(items)})"
    kind = type(value).__name__
    raise UsageError(
        f"{what} is of type {kind}, which cannot be written into a script; make it in the function"
    )


class _Definitions:
    """What a function uses, each after what it uses itself."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._names: set[str] = set()

    def add(self, name: str, value: Any) -> None:
        """Define a name, and before it what its definition uses.

        Raises:
            UsageError: it cannot be written into a script.
        """
        if name in self._names:
            return
        self._names.add(name)
        module = getattr(value, "__module__", None)
        if isinstance(value, ModuleType):
            self.texts.append(f"import {value.__name__} as {name}")
        elif module == _MAIN and (inspect.isfunction(value) or inspect.isclass(value)):
            source = _source(name, value)
            for used in _globals(source):
                if used in vars(sys.modules[_MAIN]):
                    self.add(used, vars(sys.modules[_MAIN])[used])
            self.texts.append(f"\n{source}")
        elif module and hasattr(value, "__qualname__") and value.__qualname__.isidentifier():
            self.texts.append(f"from {module} import {value.__qualname__} as {name}")
        else:
            self.texts.append(f"{name} = {_literal(value, f'the global {name}')}")


def _source(name: str, value: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError):
        raise UsageError(f"the source of {name} is not known; put it into a file") from None


def _globals(source: str) -> Iterator[str]:
    """The names that a definition reads from its module."""
    codes = [compile(source, "<definition>", "exec", dont_inherit=True)]
    for code in codes:
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        for instruction in dis.get_instructions(code):
            if instruction.opname in _READS:
                yield instruction.argval
