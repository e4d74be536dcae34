"""Flags of `albert-tf benchmark` for some of its topics."""

import dataclasses

from albert_tf.settings import setting


@dataclasses.dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """Flags of `albert-tf benchmark`, in addition to those in `tools/benchmark.py`.

    Attributes:
        max_bytes: data, serving, predict, embeddings: bytes of text.
        rounds: data, predict, embeddings: runs; medians are compared.
        seconds: data: time to measure masking.
        minutes: gpu_run: time of pretraining on an H100, which decides its steps.
        shapes: step, costs, depth: rows x tokens.
        imitate_bfloat16: serving: bfloat16 also on a CPU without it; slow.
        memory_megabytes: data: sizes of the texts whose peak memory is measured; add
            2000 for 2 GB.
        recording_dir: fidelity: folder of a recorded run of the original: init/,
            batches.npz, log.json.
        objective: objectives: names of those that are compared (default: all). step:
            those that are timed beside albert, instead of transformers.
        work_dir: objectives, pairs, sharing, vectors, folding, gpu_run: folder of the
            study's text, runs and scores; the same command continues a study that was
            stopped.
        sst2_dir: objectives, sharing, gpu_run: folder with train.tsv and dev.tsv of
            SST-2.
        cola_dir: objectives, gpu_run: folder with train.tsv and dev.tsv of CoLA.
        stsb_dir: vectors, folding: folder with train.tsv and dev.tsv of STS-B.
        squad_train_file: vectors: file of SQuAD whose questions and paragraphs are
            trained on.
        squad_dev_file: vectors, folding: file of SQuAD whose paragraphs are searched.
        models: embeddings: folder of sentence-transformers whose weights are used
            (default: random ones). vectors: folders of the encoders.
            folding: folder of the teacher, an encoder of vectors.
        scale: objectives, pairs, sharing, vectors, folding, gpu_run, step with
            --backend: small takes minutes, and shows only that everything runs.
        sizes: costs, step with --backend=jax: some of base, large, xlarge, xxlarge.
        num_layers: depth: numbers of layers of the models that are trained.
        backend: step: some of jax, tensorflow, transformers, each in a process of its
            own, in turns. Without tensorflow, what docs/benchmarks/gpu.md shows is
            measured, which needs a GPU. depth: jax or tensorflow.
        compile_for: step: GPUs, such as h100, for which JAX's step is compiled, without
            having one, to show the memory traffic of a layer by kind of work.
        depth: step with --compile_for: some of unrolled, loop, loop_remat, as for
            pretrain.
        parts: step with --backend=jax: some of sizes, table, packed, depth.
        batches_file: step with --backend: real rows, from --write_batches, for the part
            packed; the part sizes takes their tokens.
        write_batches: step: only write rows of --input_file to this .npz file, as many
            and as long as the first of --shapes, packed and not.
        memory_gigabytes: costs, depth: models whose estimates together are above it are
            not trained, only estimated.
    """

    group = "measurements"

    max_bytes: int = 5_000_000
    rounds: int = setting(3, common=True)
    seconds: float = 20.0
    minutes: float = 10.0
    shapes: tuple[str, ...] = setting(("8x128", "2x512"), common=True)
    imitate_bfloat16: bool = False
    memory_megabytes: tuple[str, ...] = ("20", "200")
    recording_dir: str = setting("", common=True)
    objective: tuple[str, ...] = setting((), group="training", common=True)
    work_dir: str = setting("", common=True)
    sst2_dir: str = setting("", common=True)
    cola_dir: str = setting("", common=True)
    stsb_dir: str = ""
    squad_train_file: str = ""
    squad_dev_file: str = ""
    models: tuple[str, ...] = setting((), common=True)
    scale: str = setting("full", common=True, choices=("full", "small"))
    sizes: tuple[str, ...] = ("base", "large", "xlarge", "xxlarge")
    num_layers: tuple[str, ...] = ("6", "12", "24", "48")
    backend: tuple[str, ...] = setting((), group="devices", common=True)
    compile_for: str = setting("", group="devices", common=True)
    depth: tuple[str, ...] = setting(("unrolled",), group="devices")
    parts: tuple[str, ...] = ("sizes", "table", "packed", "depth")
    batches_file: str = ""
    write_batches: str = ""
    memory_gigabytes: float = 12.0
