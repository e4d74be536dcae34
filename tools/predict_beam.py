"""Answers many texts with an exported model, on a cluster or on this machine.

Example: `albert-tf predict_beam --saved_model=served/films/1
--input_file='reviews/*.jsonl' --output_file=answers/reviews`

The work is an Apache Beam pipeline (extra `beam`; `dask` for a Dask cluster). Its
files, `answers/reviews-00000-of-00001.jsonl` and so on, have the same bytes with any
runner and any number of workers.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from albert_tf.cli.flags import define_settings, read_settings
from albert_tf.cli.run import run
from albert_tf.inference.pipeline.settings import PipelineSettings

define_settings(PipelineSettings)


def main() -> None:
    """Runs the pipelines and prints the files that they wrote."""
    settings = read_settings(PipelineSettings)
    from albert_tf.inference.pipeline.beam import predict_with_beam

    print("\n".join(predict_with_beam(settings)))


if __name__ == "__main__":
    run(main)
