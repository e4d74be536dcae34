"""Settings that say where the examples of a task are."""

import dataclasses

from albert_tf.settings import setting
from albert_tf.tables.settings import ReadingSettings
from albert_tf.tasks.own_files import OwnFileSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(ReadingSettings, OwnFileSettings):
    """The data of a task: official files, a prepared set, or files of one's own."""

    task: str = setting(
        "cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax, squad1, squad2, race, "
        "swag, codah, conll2003, wnut17, or table for files of your own. Default: the "
        "task of the model.",
        "",
    )
    data_dir: str = setting(
        "Folder with the official files of the task, or the name of a TensorFlow "
        "Datasets set, such as tfds:glue/mnli.",
        "",
    )
