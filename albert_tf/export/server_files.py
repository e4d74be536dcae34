"""Writes the files with which servers are started, all for one model.

They lie beside the model's folder, which holds its versions:

    served/sentiment/1/     the SavedModel
    served/models.config    TensorFlow Serving's --model_config_file
    served/batching.config  its --batching_parameters_file
    served/Dockerfile       an image with the model and both files
    served/kserve.yaml      an InferenceService for KServe on Kubernetes
"""

import os
import re
import string

from albert_tf.errors import UsageError
from albert_tf.storage import files

# A release whose TensorFlow Text has every operation of the models: all since 2.13.
SERVING_VERSION = "2.20.0"
# Rows of a request, and of requests merged: a server refuses more.
MAX_BATCH_SIZE = 10_000
# KServe mounts a volume claim of this name; in a bucket the model's own path is used.
_CLAIM = "models"

_MODELS = """\
# tensorflow_model_server --model_config_file=models.config
model_config_list {
  config {
    name: "$name"
    base_path: "$base_path"
    model_platform: "tensorflow"
    model_version_policy { latest { num_versions: 1 } }
  }
}
"""
# Padding stays off: it repeats the first element of each input, whatever that means. So
# does enable_large_batch_splitting: it joins the answers of the parts without a look at
# their widths, and those of words, masks and tokens differ. The model itself answers a
# few rows at a time, so batches may be large and need no list of sizes.
_BATCHING = """\
# tensorflow_model_server --enable_batching --batching_parameters_file=batching.config
# Merges the texts of several requests. Requests with token_ids, choices or words are
# merged only if their rows are equally long: such clients pad them to one length.
max_batch_size { value: $max_batch_size }
batch_timeout_micros { value: 2000 }
num_batch_threads { value: 2 }
max_enqueued_batches { value: 2 }
"""
_DOCKERFILE = """\
# docker build -t $image .
# docker run -p 8500:8500 -p 8501:8501 $image
FROM tensorflow/serving:$serving_version
$copy_model
COPY models.config batching.config /models/
ENTRYPOINT ["tensorflow_model_server", "--port=8500", "--rest_api_port=8501", \\
    "--model_config_file=/models/models.config", "--enable_batching", \\
    "--batching_parameters_file=/models/batching.config"]
"""
_KSERVE = """\
# kubectl apply -f kserve.yaml
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: "$image"
spec:
  predictor:
    model:
      modelFormat:
        name: tensorflow
      protocolVersion: v1
      # The runtime's own default is older than the model's operations.
      runtimeVersion: "$serving_version"
      # The folder that holds the versions.
      storageUri: "$storage_uri"
      resources:
        requests:
          cpu: "1"
          memory: 2Gi
        limits:
          memory: 4Gi
"""
_TEMPLATES = {
    "models.config": _MODELS,
    "batching.config": _BATCHING,
    "Dockerfile": _DOCKERFILE,
    "kserve.yaml": _KSERVE,
}


def make_server_files(path: str | os.PathLike) -> dict[str, str]:
    """Returns the content of each file by its path, beside the model's folder.

    Args:
        path: str or path. The folder that holds the versions. Its last name becomes the
            model's.

    Raises:
        UsageError: If the name cannot be a model's, or a file of the same name with
            another content exists.
    """
    path = os.fspath(path).rstrip("/")
    remote = files.is_remote(path)
    if remote and not re.fullmatch(r"\w+://[^/]+/.+", path):
        raise UsageError(
            f"output_dir: expected a folder below the bucket, received {path}"
        )
    parent, name = os.path.split(path if remote else os.path.abspath(path))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UsageError(
            "output_dir: expected a last name of letters, digits, '.', '_' and '-', "
            f"which becomes the model's name, received {name!r}"
        )
    image = re.sub(r"[^a-z0-9]+", "-", name.lower())
    if not image[0].isalpha():
        image = f"model-{image}"
    values = {
        "name": name,
        # What Docker and Kubernetes accept, where KServe adds "-predictor-00001".
        "image": image[:47].strip("-"),
        "base_path": path if remote else f"/models/{name}",
        "storage_uri": path if remote else f"pvc://{_CLAIM}/{name}",
        "serving_version": SERVING_VERSION,
        "max_batch_size": MAX_BATCH_SIZE,
        "copy_model": "# The model is read from its bucket."
        if remote
        else f"COPY {name} /models/{name}",
    }
    made = {
        files.join(parent, file): string.Template(template).substitute(values)
        for file, template in _TEMPLATES.items()
    }
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
