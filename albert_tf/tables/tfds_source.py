"""Reads data sets of TensorFlow Datasets (TFDS) from a prepared folder.

Nothing is downloaded unless requested. TFDS is imported when it is needed.
"""

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from albert_tf.errors import DataError, MissingFileError, UsageError, require
from albert_tf.storage import files

PREFIX = "tfds:"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
# The versions whose features this package was written for.
VERSIONS = {"glue": "2.0.0", "squad": "3.0.0", "race": "2.0.0", "conll2003": "1.0.0"}


@dataclasses.dataclass(frozen=True)
class TfdsRows:
    """The rows of a split.

    Attributes:
        name: str. As it was given, with the split, for error messages.
        class_names: dict. By name of a feature (nested ones as "a/b"), the names of its
            classes as tuple of str; for lists of classes, too.
        rows: list of dict. By name of the feature plain Python values: str, int, float,
            bool, lists and dicts. Classes are numbers.
    """

    name: str
    class_names: Mapping[str, tuple[str, ...]]
    rows: list[dict[str, Any]]


def is_tfds(name: str) -> bool:
    """Returns whether `--data_dir` names a TFDS set, such as `tfds:glue/ax`."""
    return name.startswith(PREFIX)


def read_tfds(
    name: str,
    split: str,
    data_dir: str | None = None,
    download: bool = False,
) -> TfdsRows:
    """Returns all rows of a split, in the order in which they are stored.

    Args:
        name: str. `tfds:set`, `tfds:set/config`, each also with `:version`; the prefix
            may be missing.
        split: str. Name of the split, such as "validation".
        data_dir: str or None. See `prepared_folder`; so is `download`.
        download: bool.

    Raises:
        UsageError: If tensorflow-datasets is not installed, or the name is malformed.
        DataError: If the set is not prepared, is of another version, has no such split,
            or cannot be read.
    """
    path = prepared_folder(name, data_dir, download)
    with opened(name, path, split) as (names, rows):
        return TfdsRows(f"{name} ({split})", names, [_plain(row) for row in rows])


@contextlib.contextmanager
def opened(
    name: str, path: str, split: str
) -> Iterator[tuple[Mapping[str, tuple[str, ...]], Iterator[dict[str, Any]]]]:
    """Opens a split inside a `with` statement, in which its rows can be read.

    Args:
        name: str. Name of the set, for messages.
        path: str. Result of `prepared_folder`.
        split: str. Name of the split.

    Yields:
        The names of the classes, and the rows of NumPy values, in stored order.

    Raises:
        DataError: If there is no such split, or it cannot be read.
    """
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder_from_directory(path)
        if split not in builder.info.splits:
            raise MissingFileError(
                f"{name}: no split {split!r} in {path}; its splits are "
                f"{', '.join(builder.info.splits)}"
            )
        data = builder.as_dataset(
            split=split,
            shuffle_files=False,
            read_config=tfds.ReadConfig(interleave_cycle_length=1),
        )
        features = builder.info.features
        yield _class_names(tfds, features), data.as_numpy_iterator()
    except DataError:
        raise
    except UnicodeDecodeError as e:
        raise DataError(f"{name}: {path}: a text is not UTF-8: {e}") from None
    except Exception as e:  # TFDS and TensorFlow raise many kinds
        raise DataError(f"{name}: {path} cannot be read: {_reason(e)}") from None


def prepared_folder(name: str, data_dir: str | None, download: bool) -> str:
    """Returns the folder of one version of a prepared set.

    Args:
        name: str. See `read_tfds`.
        data_dir: str or None. Folder of prepared sets. None: TFDS's own
            (`TFDS_DATA_DIR`, or `~/tensorflow_datasets`).
        download: bool. Whether to download and prepare what is missing.

    Raises:
        UsageError: If tensorflow-datasets is not installed, or the name is malformed.
        DataError: If the set is not prepared, or of another version.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise UsageError(
            f"{name}: reading TFDS sets needs tensorflow-datasets: "
            "pip install tensorflow-datasets"
        ) from None
    title, _, version = name.removeprefix(PREFIX).partition(":")
    parts = title.split("/")
    rule = f"{name}: expected tfds:set or tfds:set/config, with or without :version"
    require(len(parts) <= 2 and all(parts) and ".." not in parts, rule)
    rule = f"{name}: expected a version such as 1.0.0 after the colon"
    require(not version or _VERSION.fullmatch(version), rule)
    data_dir = data_dir or str(tfds.core.constants.DATA_DIR)
    data_dir = data_dir if files.is_remote(data_dir) else os.path.expanduser(data_dir)
    folder = files.join(data_dir, *parts)
    found = _versions(folder)
    wanted = version or VERSIONS.get(parts[0], found[0] if len(found) == 1 else "")
    if wanted in found:
        return files.join(folder, wanted)
    if download:
        return _download(tfds, name, ":".join(filter(None, [title, wanted])), data_dir)
    require(
        found,
        f"{name}: not prepared in {data_dir}: expected the folder {folder}/"
        f"{wanted or 'VERSION'} (--tfds_data_dir names another folder, --download "
        "downloads the set)",
        error=DataError,
    )
    known, last = ", ".join(found), f"{PREFIX}{title}:{found[-1]}"
    problem = f"{folder} has the versions {known}; name one, such as {last}"
    if wanted:
        problem = f"expected version {wanted}, but {folder} has {known}; prepare "
        problem += f"{wanted}, or name a version that is there: {last}"
    raise DataError(f"{name}: {problem}")


def _versions(folder: str) -> list[str]:
    """Returns the versions that are prepared, oldest first."""
    if not files.is_folder(folder):
        return []
    found = [
        name
        for name in files.list_folder(folder)
        if _VERSION.fullmatch(name)
        and files.exists(files.join(folder, name, "dataset_info.json"))
    ]
    return sorted(found, key=lambda version: [int(n) for n in version.split(".")])


def _download(tfds, name: str, title: str, data_dir: str) -> str:
    try:
        builder = tfds.builder(title, data_dir=data_dir)
        builder.download_and_prepare()
    except Exception as e:  # TFDS raises many kinds, also from its downloads
        raise DataError(f"{name}: cannot be prepared: {_reason(e)}") from None
    return str(builder.data_path)


def _class_names(tfds, feature, path: str = "") -> dict[str, tuple[str, ...]]:
    """Returns the names of the classes of all features below one."""
    if isinstance(feature, tfds.features.ClassLabel):
        return {path: tuple(feature.names or ())}
    if isinstance(feature, tfds.features.Sequence):
        return _class_names(tfds, feature.feature, path)
    names = {}
    if isinstance(feature, tfds.features.FeaturesDict):
        for key, part in feature.items():
            names |= _class_names(tfds, part, f"{path}/{key}".strip("/"))
    return names


def _plain(value: Any) -> Any:
    """Returns NumPy's and TensorFlow's values as Python's own."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, bytes):
        return value.decode()
    if hasattr(value, "to_list"):  # a ragged tensor
        return _plain(value.to_list())
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
