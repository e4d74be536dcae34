"""The best weights of a run so far."""

import keras

from albert_tf.converters import safetensors_file
from albert_tf.converters.checkpoint import Tensor
from albert_tf.errors import DataError
from albert_tf.models.base import weight_names
from albert_tf.storage import files


class BestWeights:
    """Keeps weights of a run under the step they were reached at.

    Args:
        folder: str. Folder of the files; made when it is needed.
        model: Keras model of the run.
    """

    def __init__(self, folder: str, model: keras.Model):
        self.folder = folder
        self._weights = weight_names(model)

    def save(self, step: int) -> None:
        """Writes the weights of a step, completely or not at all."""
        files.make_folder(self.folder)
        tensors = {
            name: Tensor.of(name, keras.ops.convert_to_numpy(v.value))
            for name, v in self._weights.items()
        }
        with files.open_atomically(self._path(step)) as f:
            safetensors_file.write(f, tensors, {"format": "albert_tf"})

    def restore(self, step: int) -> None:
        """Gives the model the weights of a step.

        Raises:
            DataError: If there are none.
        """
        path = self._path(step)
        if not files.exists(path):
            raise DataError(f"{path}: the weights of the best evaluation are missing")
        tensors = safetensors_file.read(path)
        for name, variable in self._weights.items():
            variable.assign(tensors[name].read())

    def keep_only(self, step: int | None) -> None:
        """Removes the weights of all other steps."""
        if not files.is_folder(self.folder):
            return
        kept = None if step is None else self._path(step).rpartition("/")[2]
        for name in files.list_folder(self.folder):
            if name.endswith(".safetensors") and name != kept:
                files.remove(files.join(self.folder, name))

    def _path(self, step: int) -> str:
        return files.join(self.folder, f"step-{step}.safetensors")
