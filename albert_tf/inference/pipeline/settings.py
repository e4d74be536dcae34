"""Settings of predict_beam."""

import dataclasses

from albert_tf.errors import UsageError
from albert_tf.settings import setting


@dataclasses.dataclass(frozen=True)
class PipelineSettings:
    """One run of `predict_beam`; the fields are described by their help texts."""

    saved_model: str = setting("SavedModel that export wrote, such as served/films/1.")
    input_file: str = setting(
        "Texts: comma-separated files or globs. .txt: a text per line. .jsonl, "
        ".parquet, .csv, .tsv: a row per text. gzip is recognized."
    )
    output_file: str = setting(
        "Prefix of the JSON Lines files to write, or one file that ends in .jsonl."
    )
    signature: str = setting(
        "Signature to call; it must take strings, such as embed or tag.",
        "serving_default",
    )
    columns: tuple[str, ...] = setting(
        "Columns of the signature's inputs, as text=sentence,text_pair=other. "
        "Default: the columns with the inputs' names.",
        (),
    )
    copy_columns: tuple[str, ...] = setting(
        "Columns to copy to the answers, such as an identifier.", ()
    )
    block_size: int = setting(
        "Neighbouring texts of a file that one worker answers together. Another "
        "number may change the last digits of the answers.",
        1024,
    )
    batch_size: int = setting(
        "Texts of a block that the model sees at once, sorted by length.", 32
    )
    num_shards: int | None = setting(
        "Number of files to write. Default: one per 100,000 texts.", None
    )
    runner: str = setting(
        "Apache Beam runner: DirectRunner, DaskRunner, ...", "DirectRunner"
    )
    beam_option: tuple[str, ...] = setting(
        "Option for Beam, as --beam_option=--name=value; may be repeated.",
        (),
        repeated=True,
    )
    overwrite: bool = setting("Replace existing output.", False)

    def __post_init__(self):
        for name in ("block_size", "batch_size", "num_shards"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name}: must be positive, received {value}")
        if self.output_file.endswith(".jsonl") and self.num_shards not in (None, 1):
            raise UsageError(
                f"num_shards: {self.num_shards}, but output_file names one file"
            )

    def chosen_columns(self) -> dict[str, str]:
        """Returns the columns by input, as the user gave them."""
        pairs = [part.partition("=") for part in self.columns]
        if wrong := [name for name, equals, column in pairs if not (name and column)]:
            raise UsageError(
                f"columns: expected input=column, received {wrong[0]!r} without it"
            )
        return {name: column for name, _, column in pairs}
