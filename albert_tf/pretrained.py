"""Lets classes of lower layers offer `from_pretrained` and `save_pretrained`.

Reading a folder is the work of `converters.load`, far above the config, the tokenizers
and the models. These must not import it; `albert_tf/__init__.py`, which runs before any
of them, hands it in here as a function that imports it on use.
"""

from collections.abc import Callable
from types import ModuleType

_load: Callable[[], ModuleType] | None = None


def provide(load: Callable[[], ModuleType]) -> None:
    """Sets the function that returns the module `converters.load`."""
    global _load
    _load = load


def loader() -> ModuleType:
    """Returns the module `converters.load`, which the first call imports."""
    return _load()
