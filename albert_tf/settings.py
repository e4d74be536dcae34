"""Settings of a command: dataclasses whose fields describe themselves.

A field made by `setting` carries its help text, and `cli.flags.define_settings` turns
such a dataclass into flags. `load_experiment` reads the same fields from a Python file
in `configs/`.
"""

import dataclasses
import difflib
import importlib.util
import os
from collections.abc import Sequence
from typing import Any

from albert_tf.errors import DataError


def setting(
    text: str,
    *default,
    choices: Sequence[str] | None = None,
    repeated: bool = False,
):
    """Returns a dataclass field with a help text.

    Args:
        text: str. Help text of the field and of its flag.
        *default: Default value. Without one, the field is required.
        choices: Sequence. Values that the flag accepts; None for any.
        repeated: bool. Whether a field of type `tuple[str, ...]` takes one value per
            flag, which may be repeated, instead of one comma-separated list.
    """
    kwargs = {"default": default[0]} if default else {}
    metadata = {"help": text, "choices": choices, "repeated": repeated}
    return dataclasses.field(metadata=metadata, **kwargs)


def load_experiment(path: str | os.PathLike, settings: type) -> dict[str, Any]:
    """Reads settings from a Python file such as `configs/pretrain/demo.py`.

    The file defines `get_config() -> dict`, whose keys are fields of `settings`. Its
    docstring records the command, the hardware and the result. The file is executed:
    load only files that you trust.

    Args:
        path: str. Path of the file.
        settings: type. Dataclass that the keys must belong to.

    Returns:
        dict. Values by field name.

    Raises:
        DataError: If the file is missing, fails, or names an unknown setting.
    """
    path = os.fspath(path)
    if not os.path.isfile(path):
        hint = ""
        if path.startswith("configs/"):
            hint = "; configs/ is part of a checkout of the albert_tf repository"
        raise DataError(f"--config={path}: no such file{hint}")
    spec = importlib.util.spec_from_file_location("albert_tf_experiment", path)
    if spec is None or spec.loader is None:
        raise DataError(f"--config={path}: must be a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        values = module.get_config()
    except Exception as e:
        raise DataError(f"--config={path}: {type(e).__name__}: {e}") from None
    if not isinstance(values, dict):
        raise DataError(
            f"--config={path}: get_config() must return a dict, received "
            f"{type(values).__name__}"
        )
    known = {field.name for field in dataclasses.fields(settings)}
    unknown = sorted(set(values) - known)
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        listed = ", ".join(unknown)
        raise DataError(f"--config={path}: unknown settings {listed}{hint}")
    return values
