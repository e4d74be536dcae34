"""Flags of `albert-tf benchmark` for one or two topics."""

import dataclasses

from albert_tf.settings import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """Flags of `albert-tf benchmark`, in addition to those in `tools/benchmark.py`.

    Attributes:
        memory_megabytes: data: sizes of the texts whose peak memory is measured; add
            2000 for 2 GB.
        recording_dir: fidelity: folder of a recorded run of the original: init/,
            batches.npz, log.json.
        objective: objectives: names of those that are compared (default: all). step:
            those that are timed beside albert, instead of transformers.
        work_dir: objectives, pairs, sharing: folder of the study's text, runs and
            scores; the same command continues a study that was stopped.
        sst2_dir: objectives, sharing: folder with train.tsv and dev.tsv of SST-2.
        cola_dir: objectives: folder with train.tsv and dev.tsv of CoLA.
        scale: objectives, pairs, sharing, step with --backend: small takes minutes, and
            shows only that everything runs.
        sizes: costs, step with --backend=jax: some of base, large, xlarge, xxlarge.
        num_layers: depth: numbers of layers of the models that are trained.
        backend: step: some of jax, tensorflow, transformers, each in a process of its
            own, in turns. Without tensorflow, what docs/benchmarks/gpu.md shows is
            measured, which needs a GPU. depth: jax or tensorflow.
        parts: step with --backend=jax: some of sizes, table, packed, depth.
        batches_file: step with --backend: real rows, from --write_batches.
        write_batches: step: only write rows of --input_file to this .npz file, as many
            and as long as the first of --shapes, packed and not.
        memory_gigabytes: costs, depth: models whose estimates together are above it are
            not trained, only estimated.
    """

    group = "measurements"

    memory_megabytes: tuple[str, ...] = ("20", "200")
    recording_dir: str = setting("", common=True)
    objective: tuple[str, ...] = setting((), group="training", common=True)
    work_dir: str = setting("", common=True)
    sst2_dir: str = setting("", common=True)
    cola_dir: str = setting("", common=True)
    scale: str = setting("full", common=True, choices=("full", "small"))
    sizes: tuple[str, ...] = ("base", "large", "xlarge", "xxlarge")
    num_layers: tuple[str, ...] = ("6", "12", "24", "48")
    backend: tuple[str, ...] = setting((), group="devices", common=True)
    parts: tuple[str, ...] = setting(("sizes", "table", "packed", "depth"), common=True)
    batches_file: str = ""
    write_batches: str = ""
    memory_gigabytes: float = 12.0
