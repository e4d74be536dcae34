"""Runs code around the import of another package, without importing it early."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType


def around_import(
    name: str, run: Callable[[Callable[[ModuleType], None], ModuleType], None]
) -> None:
    """Has the first import of a package executed by a function.

    Args:
        name: str. Name of a package that is not imported yet.
        run: callable. Called once with a function that executes the module, which it
            must call, and with the module.
    """
    sys.meta_path.insert(0, _Finder(name, run))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the package as usual, once."""

    def __init__(self, name: str, run: Callable):
        self._name = name
        self._run = run

    def find_spec(self, fullname, path, target=None):
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: self._run(execute, module)
        return spec
