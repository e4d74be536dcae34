"""Settings of the commands that answer files of any size."""

import dataclasses

from albert_tf.environment import num_cores
from albert_tf.errors import UsageError, require
from albert_tf.jobs.folder import check_output
from albert_tf.settings import check_fields, setting
from albert_tf.storage import files


@dataclasses.dataclass(frozen=True, kw_only=True)
class BulkSettings:
    """The division of a file's rows, and the processes that compute the answers.

    Attributes:
        max_seq_length: Longer texts are cut. Default: as the model was trained, or else
            its maximum.
        layers: Compute only so many layers of the model, the first ones, under its
            head. Default: all.
        predict_batch_size: Rows per call of the model, at most.
        num_workers: Processes, each with the model in memory; the cores are shared out
            among them. The output does not depend on their number.
        rows_per_part: Rows that are sorted by length and saved together; a run that was
            stopped continues after the last saved part.
        max_batch_tokens: Tokens per call of the model, padding included, at most.
        runner: Apache Beam runner, such as DirectRunner or DaskRunner; empty: no Beam.
        beam_option: Option for Beam, as --beam_option=--name=value; may be repeated.
    """

    group = "devices"

    max_seq_length: int | None = setting(None, group="model", common=True)
    layers: int | None = setting(None, group="model", common=True)
    predict_batch_size: int = setting(32, minimum=1)
    num_workers: int = setting(1, common=True, minimum=1)
    rows_per_part: int = setting(4096, minimum=1)
    max_batch_tokens: int = setting(4096, minimum=1)
    runner: str | None = setting(None, common=True)
    beam_option: tuple[str, ...] = setting((), repeated=True)

    def __post_init__(self):
        check_fields(self)
        require(self.runner or not self.beam_option, "--beam_option requires --runner")
        if self.runner and self.num_workers > 1:
            raise UsageError(
                f"--num_workers={self.num_workers}: not with --runner, whose workers "
                "Beam starts"
            )

    def check_runner(self) -> None:
        """Raises `UsageError` if there is a runner that Beam cannot use."""
        if self.runner:
            from albert_tf.jobs.beam import check_runner

            check_runner(self.runner, self.beam_option)

    @property
    def sizes(self) -> dict:
        """Arguments of `files.RowWork` that limit layers, rows and batches."""
        return {
            "layers": self.layers,
            "max_seq_length": self.max_seq_length,
            "batch_size": self.predict_batch_size,
        }

    @property
    def threads_per_worker(self) -> int:
        """Number of concurrent calls of the model in each process."""
        return max(1, num_cores() // self.num_workers)

    @property
    def cores(self) -> int:
        """Number of cores that compute."""
        return min(num_cores(), self.num_workers * self.threads_per_worker)


def check_output_file(path: str, overwrite: bool) -> None:
    """Raises `UsageError` if an output is in the way, held, or cannot be written.

    The run checks this again, but only after TensorFlow has started.
    """
    files.check_new("output_file", path, overwrite=True)
    check_output(f"{path}.parts", [path] if files.exists(path) else [], overwrite)
