"""Gives blocks of rows to a SavedModel inside Beam's `RunInference`."""

from collections.abc import Iterator, Sequence
from typing import Any

from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from albert_tf.inference.pipeline.outputs import Block
from albert_tf.inference.pipeline.saved_model import ServedModel

# A block with its rows, as `rows.read_blocks` makes them.
Example = tuple[Block, dict[str, Any]]


class BlockHandler(ModelHandler[Example, PredictionResult, ServedModel]):
    """Answers each block of a sequence on its own.

    Beam does not batch: how it does depends on the runner and on time, and the last
    batch of every bundle is lost with the Dask runner of release 2.77. An element of
    the collection is therefore a list of blocks. The model is loaded once per process.

    Args:
        path: str. Folder of the SavedModel.
        signature: str. Name of the signature.
        batch_size: int. Maximum number of rows that the model sees at once.
    """

    def __init__(self, path: str, signature: str, batch_size: int):
        super().__init__()
        self._path = path
        self._signature = signature
        self._batch_size = batch_size

    def load_model(self) -> ServedModel:
        return ServedModel(self._path, self._signature)

    def run_inference(
        self,
        batch: Sequence[Example],
        model: ServedModel,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterator[PredictionResult]:
        for example in batch:
            answers = model.answer(example[1]["inputs"], self._batch_size)
            yield PredictionResult(example, answers)

    def should_skip_batching(self) -> bool:
        return True

    def get_num_bytes(self, batch: Sequence[Example]) -> int:
        return sum(
            len(text)
            for _, content in batch
            for values in content["inputs"].values()
            for value in values
            for text in ([value] if isinstance(value, str) else value)
        )

    def get_metrics_namespace(self) -> str:
        return "albert_tf"
