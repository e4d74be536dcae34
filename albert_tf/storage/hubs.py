"""Downloads models by name from Hugging Face and Kaggle, and uploads to Hugging Face.

Only a name with a prefix, `hf://owner/name` or `kaggle://owner/model/keras/variation`,
is ever looked up. Hugging Face's oldest models had no owner; the hub forwards a name
without one, such as `hf://albert-base-v2`, to the present owner's repository. The hubs'
own libraries, imported on use, cache their downloads and read their settings from
environment variables (`HF_HOME`, `HF_TOKEN`, `HF_HUB_OFFLINE`, `HF_ENDPOINT`;
`KAGGLEHUB_CACHE`, `KAGGLE_API_TOKEN`).
"""

import contextlib
import functools
import logging
import os
import re
import sys
from typing import NamedTuple

from albert_tf.errors import DataError, UsageError, require
from albert_tf.storage import folders

HUGGING_FACE = "hf://"
KAGGLE = "kaggle://"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
# Requested if there are no others: only tensors are read from this pickle.
TORCH_WEIGHTS = "pytorch_model.bin"
# Files requested from a Hugging Face repository: none of them could run code.
SAFE_FILES = (
    *WEIGHTS,
    *folders.TOKENIZER_FILES,
    "model-*-of-*.safetensors",
    "config.json",
    "manifest.json",
    "README.md",
    # Of sentence-transformers, whose modules have folders such as `1_Pooling`.
    "modules.json",
    "*sentence_*.json",
    *(f"[0-9]_*/*.{ending}" for ending in ("json", "model", "safetensors", "txt")),
)
_WEIGHED = re.compile(r"[0-9]_(Transformer|Dense)")
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_HF_NAME = re.compile(rf"((?:{_PART}/)?{_PART})(?:@([\w.-]+(?:/[\w.-]+)*))?")
_KAGGLE_NAME = re.compile(rf"{_PART}/{_PART}/keras/{_PART}(?:/[1-9][0-9]*)?")
_REQUEST = re.compile(r"\d{3} (Client|Server) Error")


class Download(NamedTuple):
    """A model in the cache of a hub's library.

    Attributes:
        origin: str. The name with the commit or version that the folder holds.
    """

    folder: str
    origin: str


def is_name(path: str) -> bool:
    """Returns whether a path is the name of a model on a hub."""
    return path.startswith((HUGGING_FACE, KAGGLE))


def download(name: str) -> Download:
    """Downloads a model, unless the cache has it.

    Its name is `hf://owner/name`, or `hf://name` for a model that the hub knows without
    its owner, each with or without `@revision`; or
    `kaggle://owner/model/keras/variation`, which a version may follow. Raises
    `UsageError` if the name is malformed or the hub's library is missing, and
    `DataError` if the download fails or has no file that is safe to read.
    """
    if name.startswith(KAGGLE):
        return _from_kaggle(name)
    return _from_hugging_face(name, *_parse(name))


def check_upload(name: str) -> None:
    """Raises `UsageError` if nothing can be uploaded under a name."""
    repository, revision = _parse(name) if name.startswith(HUGGING_FACE) else ("", None)
    fits = "/" in repository and revision is None
    require(fits, "push_to: expected hf://owner/name", name)
    _hugging_face(name)


def upload(folder: str, name: str, message: str) -> str:
    """Uploads the files of a folder, without inner folders, in one commit.

    A repository that does not exist is created as a private one. Files of an earlier
    model that are not in the folder are removed from it, but no others. Returns the
    name with the new commit. Raises `UsageError` if the name is malformed, or the
    library is not installed, and `DataError` if the upload fails.
    """
    check_upload(name)
    hub = _hugging_face(name)
    repository = _parse(name)[0]
    names = sorted(os.listdir(folder))
    with _one_line(name, f"the model is in {folder}"):
        api = hub.HfApi(library_name="albert_tf")
        api.create_repo(repository, private=True, exist_ok=True)
        stale = folders.OWN_NAMES & set(api.list_repo_files(repository)) - set(names)
        changes = [hub.CommitOperationDelete(file) for file in sorted(stale)]
        for file in names:
            changes.append(hub.CommitOperationAdd(file, os.path.join(folder, file)))
        commit = api.create_commit(repository, changes, commit_message=message)
    return f"{name}@{commit.oid}"


def _parse(name: str) -> tuple[str, str | None]:
    match = _HF_NAME.fullmatch(name.removeprefix(HUGGING_FACE))
    expected = f"{name}: expected hf://owner/name or hf://name, and perhaps @revision"
    require(match is not None and ".." not in name, expected)
    return match[1], match[2]


def _hugging_face(name: str):
    try:
        import huggingface_hub
    except ImportError:
        raise _missing(name, "huggingface_hub") from None
    # Its HTTP client logs every request as information, which commands show.
    for client in ("httpx", "httpx2"):
        if logging.getLogger(client).level == logging.NOTSET:
            logging.getLogger(client).setLevel(logging.WARNING)
    return huggingface_hub


def _missing(name: str, package: str) -> UsageError:
    return UsageError(f"{name}: needs {package}; pip install 'albert_tf[hub]'")


def _from_hugging_face(name: str, repository: str, revision: str | None) -> Download:
    hub = _hugging_face(name)
    with _one_line(name, "run it again; complete files are kept"):
        fetch = functools.partial(
            hub.snapshot_download,
            repository,
            revision=revision,
            library_name="albert_tf",
        )
        folder = fetch(allow_patterns=SAFE_FILES)
        if places := _without_weights(folder):
            folder = fetch(allow_patterns=[f"{p}{TORCH_WEIGHTS}" for p in places])
    expected = f"{name}: has neither {WEIGHTS[0]} nor {TORCH_WEIGHTS}"
    require(not _without_weights(folder), expected, error=DataError)
    return Download(folder, f"{HUGGING_FACE}{repository}@{os.path.basename(folder)}")


def _without_weights(folder: str) -> list[str]:
    """Returns the places of a download that need weights and have none."""
    places = [f"{n}/" for n in os.listdir(folder) if _WEIGHED.fullmatch(n)]
    if not any("Transformer" in place for place in places):
        places.append("")
    names = {*WEIGHTS, TORCH_WEIGHTS}
    return [p for p in places if names.isdisjoint(os.listdir(f"{folder}/{p}"))]


@contextlib.contextmanager
def _one_line(name: str, hint: str):
    """Converts errors of huggingface_hub to one line, with a hint if the hub fails."""
    from huggingface_hub import errors

    try:
        yield
    except errors.HFValidationError as e:
        raise UsageError(f"{name}: {_line(e)}") from None
    # The library passes on any error of its HTTP client and the disk.
    except Exception as e:
        status = getattr(getattr(e, "response", None), "status_code", None)
        if status in (401, 403):
            hint = "set HF_TOKEN to a token that may do this"
        is_clear = status == 404 or isinstance(e, errors.LocalEntryNotFoundError)
        hint = "" if is_clear else f"; {hint}"
        raise DataError(f"{name}: {_line(e)}{hint}") from None


def _line(error: BaseException) -> str:
    """Returns a message without its line about the HTTP request, as one line."""
    lines = [line for line in str(error).split("\n") if not _REQUEST.match(line)]
    text = " ".join(" ".join(lines).split()) or str(error) or type(error).__name__
    return text.rstrip(".")[:400]


def _from_kaggle(name: str) -> Download:
    handle = name.removeprefix(KAGGLE)
    expected = f"{name}: expected kaggle://owner/model/keras/variation or "
    expected += "kaggle://owner/model/keras/variation/version"
    require(_KAGGLE_NAME.fullmatch(handle) and ".." not in handle, expected)
    # kagglehub logs to stdout, where commands write their results.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            import kagglehub
        except ImportError:
            raise _missing(name, "kagglehub") from None
        # KerasHub may have imported it before.
        for handler in logging.getLogger("kagglehub").handlers:
            if type(handler) is logging.StreamHandler:
                handler.stream = sys.stderr
        try:
            folder = kagglehub.model_download(handle)
        # The library passes on any error of its HTTP client and the disk.
        except Exception as e:
            raise DataError(f"{name}: {_kaggle_reason(e)}") from None
    version = os.path.basename(folder)
    pinned = handle if handle.endswith(f"/{version}") else f"{handle}/{version}"
    return Download(folder, f"{KAGGLE}{pinned}")


def _kaggle_reason(error: Exception) -> str:
    from kagglehub import exceptions

    if isinstance(error, exceptions.DataCorruptionError):
        return "a file was damaged on its way; run it again"
    if not isinstance(error, exceptions.KaggleApiHTTPError):
        reason = f"Kaggle cannot be reached: {_line(error)}; run it again; "
        return reason + "a name with a version needs no network once the cache has it"
    if getattr(error.response, "status_code", None) in (401, 403, 404):
        return (
            "no such model or version, or one that asks for a login or for consent on "
            "its page; for such a one, set KAGGLE_API_TOKEN"
        )
    return f"Kaggle failed: {_line(error)}; run it again"
