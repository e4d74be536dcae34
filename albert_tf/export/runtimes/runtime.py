"""What the export knows of a runtime: how a model is written for it, and run."""

import abc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from albert_tf.export.runtimes.tokens_graph import TokensGraph

# Threads with which exported models are checked and measured.
NUM_THREADS = 2

Run = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


class Runtime(abc.ABC):
    """A program that runs exported models.

    Attributes:
        name: str. What `--format` calls it; the extra that installs it has this name.
        packages: tuple of str. Python packages that writing and running a model need.
        model_files: tuple of str. What `write` writes.
        example_needs: str. The package that the example runs the model with.
    """

    name: str
    packages: tuple[str, ...]
    model_files: tuple[str, ...]
    example_needs: str

    @abc.abstractmethod
    def write(self, graph: TokensGraph, folder: str, quantization: str) -> None:
        """Writes `model_files` into a local folder.

        Args:
            graph: `TokensGraph`. The model.
            folder: str. The folder.
            quantization: str. One of `settings.QUANTIZATIONS[name]`.
        """

    @abc.abstractmethod
    def runner(self, folder: str, quantization: str) -> Run:
        """Returns a function from the inputs of a written model to its outputs.

        Args:
            folder: str. A local folder that `write` has filled.
            quantization: str. As given to `write`.
        """

    @abc.abstractmethod
    def example(self, quantization: str) -> tuple[str, str]:
        """Returns two parts of a program: how to import the runtime, and to run it.

        The second part may use `here`, a `pathlib.Path` of the folder, and `inputs`, a
        dict of arrays, and sets `outputs`, a dict of arrays.
        """

    def options(self, quantization: str) -> dict[str, Any]:
        """Returns what whoever runs the model must set, for the manifest."""
        del quantization
        return {}
