"""Settings of commands that answer files of any size."""

import dataclasses

from albert_tf.errors import UsageError
from albert_tf.reports.environment import num_cores
from albert_tf.settings import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class BulkSettings:
    """How the rows of a file are divided."""

    num_workers: int = setting(
        "Processes, each with the model in memory; the cores are shared out among "
        "them. The output does not depend on their number.",
        1,
    )
    rows_per_part: int = setting(
        "Rows that are sorted by length and saved together; a run that was stopped "
        "continues after the last saved part.",
        4096,
    )
    max_batch_tokens: int = setting(
        "Tokens per call of the model, padding included, at most.", 4096
    )

    def __post_init__(self):
        for field in dataclasses.fields(BulkSettings):
            value = getattr(self, field.name)
            if value < 1:
                raise UsageError(f"{field.name} must be positive, received {value}")

    def check_unused(self, model: str) -> None:
        """Checks that nothing is set for a model whose answers are made as a whole.

        Args:
            model: str. Its path.

        Raises:
            UsageError: If a value is not the default.
        """
        for field in dataclasses.fields(BulkSettings):
            value = getattr(self, field.name)
            if value != field.default:
                raise UsageError(
                    f"--{field.name}={value}: only text classifiers answer in parts, "
                    f"received {model}"
                )

    @property
    def threads_per_worker(self) -> int:
        """Number of calls of the model at a time in each process."""
        return max(1, num_cores() // self.num_workers)

    @property
    def cores(self) -> int:
        """Number of cores that compute."""
        return min(num_cores(), self.num_workers * self.threads_per_worker)
