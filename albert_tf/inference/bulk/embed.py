"""Turns a table of texts of any size into vectors.

Legend: `N` rows, `D` hidden.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from albert_tf.errors import DataError, UsageError
from albert_tf.inference.bulk import formats
from albert_tf.inference.bulk.engine import Summary, answer_file
from albert_tf.inference.bulk.environment import environment
from albert_tf.inference.bulk.forward import (
    LENGTH_STEP,
    ROWS,
    fused,
    use_one_thread_per_call,
)
from albert_tf.inference.bulk.model_digest import model_digest
from albert_tf.inference.bulk.settings import BulkSettings
from albert_tf.inference.embedder import Embedder
from albert_tf.inference.prediction_files import choose_format
from albert_tf.jobs.folder import Part
from albert_tf.jobs.run import Job
from albert_tf.tasks.batches import rounded_length
from albert_tf.tasks.outputs import in_threads, sorted_batches
from albert_tf.tasks.text_classification import are_numbers
from albert_tf.tasks.text_tables import Portions
from albert_tf.text import inputs

_WRITERS = {
    "npy": formats.write_vectors,
    "jsonl": formats.write_json_lines,
    "parquet": formats.write_parquet,
}


@dataclasses.dataclass(frozen=True)
class EmbedWork:
    """Vectors of texts; see `run.Work`.

    Attributes:
        model: str. Path; see `Embedder.from_pretrained`.
        layer: int. See `Embedder`; so is `pooling`.
        pooling: str.
        max_seq_length: int or None.
        batch_size: int. Rows of a batch, at most.
        max_batch_tokens: int. Tokens of a batch, at most.
        kind: str. Result of `choose_format`.
        named: bool. Whether a column names the rows.
    """

    model: str
    layer: int
    pooling: str
    max_seq_length: int | None
    batch_size: int
    max_batch_tokens: int
    kind: str
    named: bool

    def open(self, num_threads: int) -> Callable[[Job, Callable[[int], None]], Part]:
        use_one_thread_per_call(num_threads)
        embedder = Embedder.from_pretrained(
            self.model, max_seq_length=self.max_seq_length
        )
        embedder.tokenizer.num_threads = num_threads
        layer = embedder.layer_number(self.layer, self.pooling)
        forward = fused(
            embedder.model,
            lambda batch: embedder.vectors(batch, layer, self.pooling),
            ROWS,
        )

        def compute(job: Job, on_rows: Callable[[int], None]) -> Part:
            vectors = self._vectors(job, embedder, forward, num_threads, on_rows)
            about = {
                "rows": len(vectors),
                "width": vectors.shape[1],
                "numbered": are_numbers(job.rows.ids, job.first),
            }
            return Part(self._content(job, vectors, about["numbered"]), about)

        return compute

    def _vectors(self, job, embedder, forward, num_threads, on_rows) -> np.ndarray:
        """Returns float32 `[N, D]`."""
        longest, pad_id = embedder.max_seq_length, embedder.tokenizer.pad_id
        encoded = inputs.encode_texts(
            embedder.tokenizer, job.rows.texts, max_seq_length=longest
        )
        lengths = encoded.lengths
        batches = sorted_batches(
            lengths, self.batch_size, self.max_batch_tokens, LENGTH_STEP
        )

        def compute(rows: np.ndarray) -> np.ndarray:
            length = rounded_length(int(lengths[rows].max()), longest, LENGTH_STEP)
            return forward(inputs.padded_inputs(encoded, rows, length, pad_id))

        vectors = np.zeros((len(lengths), embedder.model.config.hidden_size), "<f4")
        found = in_threads(compute, batches, num_threads)
        for rows, values in zip(batches, found, strict=True):
            vectors[rows] = values
            on_rows(len(rows))
        if not np.isfinite(vectors).all():
            raise DataError(
                f"{self.model}: its vectors are not finite; its weights are damaged"
            )
        return vectors

    def _content(self, job: Job, vectors: np.ndarray, numbered: bool) -> bytes:
        if self.kind == "npy":
            return vectors.tobytes()
        if self.kind == "jsonl":
            return _json_lines(job, vectors, numbered)
        import pyarrow as pa

        flat = pa.array(vectors.reshape(-1), pa.float32())
        columns = {
            "index": formats.index_column(job.rows.ids, self.named),
            "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        }
        return formats.table_content(columns)


def embed_texts(
    model: str,
    source: Portions,
    output_file: str,
    *,
    layer: int = -1,
    pooling: str = "mean",
    max_seq_length: int | None = None,
    batch_size: int = 32,
    named: bool = False,
    settings: Mapping[str, Any] | None = None,
    bulk: BulkSettings | None = None,
    overwrite: bool = False,
) -> Summary:
    """Writes the vectors of the texts of a table of any size.

    Args:
        model: str. Path of the model.
        source: `Portions`. The table.
        output_file: str. The file to write: `.npy` for float32 `[N, D]`, `.jsonl` or
            `.parquet` for an index and a vector per row.
        layer: int. See `Embedder`; so is `pooling`.
        pooling: str.
        max_seq_length: int or None. Longer texts are cut.
        batch_size: int. Rows of a batch, at most.
        named: bool. Whether a column names the rows.
        settings: dict. What determines the table, ready for JSON.
        bulk: `BulkSettings`.
        overwrite: bool. Whether an existing output may be replaced.

    Raises:
        UsageError: If something is in the way of the output, or the model has no such
            vectors.
        DataError: If a row cannot be used.
    """
    bulk = bulk or BulkSettings()
    kind = choose_format(output_file, "vectors", _WRITERS)
    if kind == "npy" and named:
        raise UsageError(
            "id_column: an .npy file holds vectors alone; write .jsonl or .parquet"
        )
    if kind == "parquet":
        formats.import_parquet(output_file)
    digest = model_digest(model)
    use_one_thread_per_call(bulk.threads_per_worker)
    options = {
        "layer": layer,
        "pooling": pooling,
        "max_seq_length": max_seq_length,
        "batch_size": batch_size,
    }
    work = EmbedWork(
        model,
        max_batch_tokens=bulk.max_batch_tokens,
        kind=kind,
        named=named,
        **options,
    )
    recorded = {"command": "embed", "model": digest, **options}
    recorded |= environment() | (settings or {})
    write = _WRITERS[kind]
    return answer_file(work, source, output_file, write, recorded, bulk, overwrite)


def _json_lines(job: Job, vectors: np.ndarray, numbered: bool) -> bytes:
    lines = []
    for i, (name, row) in enumerate(zip(job.rows.ids, vectors.tolist(), strict=True)):
        index = job.first + i if numbered else json.dumps(name, ensure_ascii=False)
        # Nine digits give the same float32 again.
        numbers = ", ".join(f"{value:.9g}" for value in row)
        lines.append(f'{{"index": {index}, "vector": [{numbers}]}}\n')
    return "".join(lines).encode()
