"""Writes the files that start servers with one model.

They are next to the model's folder, which contains its versions:

    served/sentiment/1/     the SavedModel
    served/models.config    TensorFlow Serving's --model_config_file
    served/batching.config  its --batching_parameters_file
    served/Dockerfile       an image with the model and both files
    served/kserve.yaml      an InferenceService for KServe on Kubernetes
"""

import os
import re
from typing import Any

from albert_tf.errors import UsageError, require
from albert_tf.storage import files
from albert_tf.storage.templates import templates

# A release whose TensorFlow Text has every operation of the models: any since 2.13.
SERVING_VERSION = "2.20.0"
# Maximum number of rows of a request, and of merged requests, that a server accepts.
MAX_BATCH_SIZE = 10_000
# KServe mounts a volume claim of this name; in a bucket the model's own path is used.
_CLAIM = "models"
_FILES = ("models.config", "batching.config", "Dockerfile", "kserve.yaml")


def fill(file: str, /, **values: Any) -> str:
    """Renders the template of a file with these values."""
    return templates("export/templates").get_template(f"{file}.j2").render(values)


def make_server_files(path: str | os.PathLike) -> dict[str, str]:
    """Returns the content of each file by its path next to the model's folder.

    The path is the folder that holds the versions; its last name becomes the model's.
    Raises `UsageError` if the name cannot be a model's, or a file of the same name with
    another content exists.
    """
    path = os.fspath(path).rstrip("/")
    remote = files.is_remote(path)
    below = not remote or re.fullmatch(r"\w+://[^/]+/.+", path)
    require(below, f"output_dir: expected a folder below the bucket, received {path}")
    parent, name = os.path.split(path if remote else os.path.abspath(path))
    need = (
        "output_dir: expected a last name of letters, digits, '.', '_' and '-', which "
        "becomes the model's name"
    )
    require(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name), need, name)
    image = re.sub(r"[^a-z0-9]+", "-", name.lower())
    if not image[0].isalpha():
        image = f"model-{image}"
    values = {
        "name": name,
        # Accepted by Docker and Kubernetes, where KServe adds "-predictor-00001".
        "image": image[:47].strip("-"),
        "base_path": path if remote else f"/models/{name}",
        "storage_uri": path if remote else f"pvc://{_CLAIM}/{name}",
        "serving_version": SERVING_VERSION,
        "max_batch_size": MAX_BATCH_SIZE,
        "copy_model": "# The model is read from its bucket."
        if remote
        else f"COPY {name} /models/{name}",
    }
    # Paths are shown relative or absolute, as the folder was given.
    shown = str if remote or os.path.isabs(path) else os.path.relpath
    made = {shown(files.join(parent, f)): fill(f, **values) for f in _FILES}
    for file, content in made.items():
        if files.exists(file) and files.read_bytes(file) != content.encode():
            raise UsageError(
                f"{file}: exists already with another content; move it, or leave "
                "--server_files out"
            )
    return made


def write_server_files(path: str | os.PathLike) -> list[str]:
    """Writes the files of `make_server_files`; returns their paths."""
    made = make_server_files(path)
    for file, content in made.items():
        files.write_text(file, content)
    return list(made)
