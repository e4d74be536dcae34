"""The best weights of a run so far, and whether it is time to stop."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from albert_tf.converters.checkpoint import safetensors_file
from albert_tf.converters.checkpoint.checkpoint import Tensor
from albert_tf.errors import DataError
from albert_tf.models.base import weight_names
from albert_tf.storage import files

# Metrics of which less is better.
LOWER_IS_BETTER = frozenset({"mse"})


class Selection:
    """Decides between the evaluations of a run.

    All decisions follow from the metrics on record, so a resumed run makes those of an
    uninterrupted one.

    Args:
        metric: str. Name of the metric that decides.
        patience: int. Number of evaluations without a better value after which to stop;
            0 for never.
        lines: sequence of dict. Evaluations on record, each with its `step`.
    """

    def __init__(
        self, metric: str, patience: int, lines: Sequence[Mapping[str, Any]] = ()
    ):
        self.metric = metric
        self.patience = patience
        self.best_step: int | None = None
        self.best_value = math.nan
        self._last_step = -1
        self._waited = 0
        for line in lines:
            self.add(line["step"], line)

    def add(self, step: int, values: Mapping[str, Any]) -> bool:
        """Adds an evaluation; returns whether it is the best one so far."""
        if step <= self._last_step:
            return False
        self._last_step = step
        value = float(values[self.metric])
        if self._is_better(value):
            self.best_step, self.best_value, self._waited = step, value, 0
            return True
        self._waited += 1
        return False

    @property
    def should_stop(self) -> bool:
        """Whether there was no better value for too long."""
        return bool(self.patience) and self._waited >= self.patience

    def _is_better(self, value: float) -> bool:
        if self.best_step is None:
            return True
        if math.isnan(self.best_value):
            return not math.isnan(value)
        if self.metric in LOWER_IS_BETTER:
            return value < self.best_value
        return value > self.best_value


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
