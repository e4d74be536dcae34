"""Reads data sets of TensorFlow Datasets (TFDS) from a prepared folder.

Nothing is downloaded unless requested. TFDS is imported on first use.
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
# Versions of the sets whose features this package expects.
VERSIONS = {"glue": "2.0.0", "squad": "3.0.0", "race": "2.0.0", "conll2003": "1.0.0"}


@dataclasses.dataclass(frozen=True)
class TfdsRows:
    """The rows of a split.

    Attributes:
        name: Name as given, with the split, for error messages.
        class_names: Class names (tuple of str) of each feature, also of a feature that
            is a list of classes. Nested features are keyed as "a/b".
        rows: Plain Python values by feature: str, int, float, bool, lists and dicts.
            Classes are numbers.
    """

    name: str
    class_names: Mapping[str, tuple[str, ...]]
    rows: list[dict[str, Any]]


def is_tfds(name: str) -> bool:
    """Returns whether `--data_dir` names a TFDS set, such as `tfds:glue/ax`."""
    return name.startswith(PREFIX)


def read_tfds(
    name: str, split: str, data_dir: str | None = None, download: bool = False
) -> TfdsRows:
    """Returns all rows of a split, in the order in which they are stored.

    The name is `tfds:set` or `tfds:set/config`, each also with `:version`; the prefix
    is optional. Raises `DataError` if the set is not prepared in this version.
    """
    path = prepared_folder(name, data_dir, download)
    with opened(name, path, split) as (names, rows):
        return TfdsRows(f"{name} ({split})", names, [_plain(row) for row in rows])


@contextlib.contextmanager
def opened(
    name: str, path: str, split: str
) -> Iterator[tuple[Mapping[str, tuple[str, ...]], Iterator[dict[str, Any]]]]:
    """Opens a split and yields its class names and an iterator of its rows.

    Rows consist of NumPy values, in stored order. Raises `DataError` if there is no
    such split, or it cannot be read.
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
    except Exception as e:  # TFDS and TensorFlow raise many types of errors
        raise DataError(f"{name}: {path} cannot be read: {_reason(e)}") from None


def prepared_folder(name: str, data_dir: str | None, download: bool) -> str:
    """Returns the folder of one version of a prepared set.

    Without `data_dir` it is TFDS's own (`TFDS_DATA_DIR`, or `~/tensorflow_datasets`).
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
    message = f"{name}: expected tfds:set or tfds:set/config, with or without :version"
    require(len(parts) <= 2 and all(parts) and ".." not in parts, message)
    message = f"{name}: expected a version such as 1.0.0 after the colon"
    require(not version or _VERSION.fullmatch(version), message)
    data_dir = data_dir or str(tfds.core.constants.DATA_DIR)
    data_dir = data_dir if files.is_remote(data_dir) else os.path.expanduser(data_dir)
    folder = files.join(data_dir, *parts)
    present = _versions(folder)
    wanted = version or VERSIONS.get(parts[0], present[0] if len(present) == 1 else "")
    if wanted in present:
        return files.join(folder, wanted)
    if download:
        return _download(tfds, name, ":".join(filter(None, [title, wanted])), data_dir)
    need = (
        f"{name}: not prepared in {data_dir}: expected the folder {folder}/"
        f"{wanted or 'VERSION'} (--tfds_data_dir names another folder, --download "
        "downloads the set)"
    )
    require(present, need, error=DataError)
    available, last = ", ".join(present), f"{PREFIX}{title}:{present[-1]}"
    problem = f"{folder} has the versions {available}; name one, such as {last}"
    if wanted:
        problem = f"expected version {wanted}, but {folder} has {available}; prepare "
        problem += f"{wanted}, or name a version that is there: {last}"
    raise DataError(f"{name}: {problem}")


def _versions(folder: str) -> list[str]:
    """Returns the prepared versions, oldest first."""
    if not files.is_folder(folder):
        return []
    versions = [
        name
        for name in files.list_folder(folder)
        if _VERSION.fullmatch(name)
        and files.exists(files.join(folder, name, "dataset_info.json"))
    ]
    return sorted(versions, key=lambda version: [int(n) for n in version.split(".")])


def _download(tfds, name: str, title: str, data_dir: str) -> str:
    try:
        builder = tfds.builder(title, data_dir=data_dir)
        builder.download_and_prepare()
    except Exception as e:  # TFDS raises many types, also from its downloads
        raise DataError(f"{name}: cannot be prepared: {_reason(e)}") from None
    return str(builder.data_path)


def _class_names(tfds, feature, path: str = "") -> dict[str, tuple[str, ...]]:
    """Returns the class names of a feature and of all features nested in it."""
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
    """Converts NumPy and TensorFlow values to plain Python values."""
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
