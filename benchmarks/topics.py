"""The topics of `albert-tf benchmark`, computed from the values of its flags."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from albert_tf.errors import UsageError, require
from benchmarks.report import Report, Row

# The flags of every study of the paper's claims.
_STUDIES = ("work_dir", "input_file", "spm_model_file", "scale")


def measure(
    topic: str,
    values: Mapping[str, Any],
    save: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Measures a topic.

    Args:
        topic: str. "data", "convert", "finetune", "step", "serving", "predict",
            "embeddings", "fidelity", "objectives", "pairs", "sharing", "vectors",
            "folding", "costs", "depth" or "gpu_run".
        values: dict. Values of the command's flags by name.
        save: callable. Called with reports of the results so far, by topics that may be
            cut off.

    Raises:
        UsageError: If a value is out of its range.
    """
    if topic == "data":
        return Report("Benchmark of the data engine", _measure_data(values))
    if topic == "finetune":
        return Report("Benchmark of fine-tuning", _measure_finetuning(values))
    if topic == "step":
        return _measure_step(values, save)
    if topic == "serving":
        return _measure_serving(values)
    if topic == "predict":
        return _measure_prediction(values)
    if topic == "embeddings":
        return _measure_embeddings(values)
    if topic == "vectors":
        return _measure_vectors(values)
    if topic == "folding":
        return _measure_folding(values)
    if topic == "fidelity":
        return _measure_fidelity(values)
    if topic == "objectives":
        return _measure_objectives(values)
    if topic == "pairs":
        return _measure_pairs(values)
    if topic == "sharing":
        return _measure_sharing(values)
    if topic == "costs":
        return _measure_costs(values)
    if topic == "depth":
        return _measure_depth(values)
    if topic == "gpu_run":
        return _measure_gpu_run(values)
    from benchmarks import convert_speed

    preset = values["preset"] or "albert_xxlarge_v2"
    return Report("Benchmark of the conversion", convert_speed.run(preset))


def _measure_data(values: Mapping[str, Any]) -> list[Row]:
    from albert_tf.text.load import load_tokenizer
    from benchmarks import data_speed

    for name in ("max_bytes", "rounds", "seconds"):
        if not 0 < values[name] < float("inf"):
            raise UsageError(f"--{name}: must be positive, received {values[name]}")
    length = values["max_seq_length"]
    if length < 8:
        raise UsageError(f"--max_seq_length: must be at least 8, received {length}")
    if values["spm_model_file"]:
        load_tokenizer(values["spm_model_file"])  # fails now, not after minutes
    sizes = values["memory_megabytes"]
    if not sizes or not all(size.isdecimal() and int(size) for size in sizes):
        raise UsageError(
            f"--memory_megabytes: expected positive numbers, received {','.join(sizes)}"
        )
    names = ("input_file", "spm_model_file", "max_bytes", "rounds", "seconds")
    settings = {name: values[name] for name in (*names, "max_seq_length")}
    memory = tuple(map(int, sizes))
    return data_speed.run(data_speed.Settings(**settings, memory_megabytes=memory))


def _measure_finetuning(values: Mapping[str, Any]) -> list[Row]:
    from albert_tf.tasks.text_tables import LabelledTableSettings
    from benchmarks import finetune_speed

    for name in ("train_file", "spm_model_file"):
        if not values[name]:
            raise UsageError(f"--{name}: required for benchmark finetune")
    columns = LabelledTableSettings(
        text_column=values["text_column"],
        label_column=values["label_column"],
        quoting=values["quoting"],
    )
    settings = finetune_speed.Settings(
        values["train_file"],
        values["spm_model_file"],
        columns,
        preset=values["preset"] or "albert_base_v2",
        batch_size=values["train_batch_size"],
        max_seq_length=min(values["max_seq_length"], 128),
        steps=values["steps"],
        precision=values["precision"],
    )
    return finetune_speed.run(settings)


def _measure_step(values: Mapping[str, Any], save) -> Report:
    if values["write_batches"]:
        return _write_batches(values)
    if values["compile_for"]:
        from benchmarks import compiled

        shapes = tuple(map(_shape, values["shapes"]))
        preset, depths = values["preset"] or "albert_base_v2", tuple(values["depth"])
        return compiled.run(preset, shapes, values["compile_for"], depths)
    if values["backend"]:
        return _measure_backends(values, save)
    from benchmarks import step_speed

    return step_speed.run(_step_settings(values))


def _write_batches(values: Mapping[str, Any]) -> Report:
    from benchmarks import rows

    path, shape = values["write_batches"], _shape(values["shapes"][0])
    model = values["spm_model_file"]
    require(model, "--spm_model_file: required for --write_batches", model)
    found = rows.write_rows(path, values["input_file"], model, *shape)
    # The summary of packed rows begins with their name.
    notes = tuple(f"{n}: {one.removeprefix(f'{n}: ')}" for n, one in found.items())
    size = Row(path, os.path.getsize(path) / 2**20, "MiB")
    return Report("Rows of real text", [size], notes=notes)


def _measure_backends(values: Mapping[str, Any], save) -> Report:
    from benchmarks import backends, contestants, gpu

    engines = tuple(values["backend"])
    contestants.check_engines(engines)
    if engines[0] == "jax" and "tensorflow" not in engines:
        settings = gpu.Settings(
            engines,
            tuple(values["parts"]),
            tuple(values["sizes"]),
            values["batches_file"],
            values["steps"],
            values["scale"] == "small",
        )
        return gpu.run(settings, save)
    shapes, preset = tuple(map(_shape, values["shapes"])), values["preset"]
    preset = preset or "albert_base_v2"
    return backends.run(engines, preset, shapes, values["steps"], values["precision"])


def _step_settings(values: Mapping[str, Any]):
    from benchmarks import step_speed

    return step_speed.Settings(
        preset=values["preset"] or "albert_base_v2",
        shapes=tuple(map(_shape, values["shapes"])),
        steps=values["steps"],
        precision=values["precision"],
        jit_compile=values["jit_compile"],
        fuse=values["fuse_elementwise"],
        objectives=tuple(values["objective"]),
    )


def _shape(text: str) -> tuple[int, int]:
    rows, _, length = text.partition("x")
    if not (rows.isdecimal() and length.isdecimal() and int(rows) and int(length) > 7):
        raise UsageError(
            "--shapes: expected rows x tokens, such as 8x128, of at least 8 tokens, "
            f"received {text!r}"
        )
    return int(rows), int(length)


def _measure_serving(values: Mapping[str, Any]) -> Report:
    from benchmarks import serving_speed

    length = values["max_seq_length"]
    if length < 8:
        raise UsageError(f"--max_seq_length: must be at least 8, received {length}")
    names = ("input_file", "spm_model_file", "max_bytes", "steps")
    settings = serving_speed.Settings(
        preset=values["preset"] or "albert_base_v2",
        max_seq_length=length,
        num_tokens=min(length, 128),
        imitate=values["imitate_bfloat16"],
        num_texts=values["num_texts"] or 64,
        **{name: values[name] for name in names},
    )
    return serving_speed.run(settings)


def _measure_prediction(values: Mapping[str, Any]) -> Report:
    from benchmarks import predict_speed

    length = values["max_seq_length"]
    if length < 8:
        raise UsageError(f"--max_seq_length: must be at least 8, received {length}")
    names = ("input_file", "spm_model_file", "max_bytes", "rounds")
    settings = predict_speed.Settings(
        preset=values["preset"] or "albert_base_v2",
        max_seq_length=length,
        num_texts=values["num_texts"] or 10_000,
        **{name: values[name] for name in names},
    )
    return predict_speed.run(settings)


def _measure_embeddings(values: Mapping[str, Any]) -> Report:
    from benchmarks import embedding_speed

    names = ("input_file", "spm_model_file", "max_bytes", "max_seq_length", "steps")
    settings = embedding_speed.Settings(
        init_checkpoint=",".join(values["models"]),
        preset=values["preset"] or "albert_base_v2",
        num_texts=values["num_texts"] or 2000,
        **{name: values[name] for name in (*names, "precision", "rounds")},
    )
    return embedding_speed.run(settings)


def _measure_vectors(values: Mapping[str, Any]) -> Report:
    from benchmarks import vectors

    needed = ("work_dir", "models", "stsb_dir", "squad_train_file", "squad_dev_file")
    for name in needed:
        if not values[name]:
            raise UsageError(f"--{name}: required for benchmark vectors")
    names = (*needed, "train_file", "scale")
    return vectors.run(vectors.Study(**{name: values[name] for name in names}))


def _measure_folding(values: Mapping[str, Any]) -> Report:
    from benchmarks import folding

    needed = ("work_dir", "models", "input_file", "stsb_dir", "squad_dev_file")
    for name in needed:
        if not values[name]:
            raise UsageError(f"--{name}: required for benchmark folding")
    work_dir, models, *rest = (values[name] for name in needed)
    require(len(models) == 1, "--models: benchmark folding has one teacher", models)
    return folding.run(folding.Study(work_dir, models[0], *rest, values["scale"]))


def _measure_fidelity(values: Mapping[str, Any]) -> Report:
    from benchmarks import fidelity

    if not values["recording_dir"]:
        raise UsageError("--recording_dir: required for benchmark fidelity")
    return fidelity.run(values["recording_dir"])


def _measure_objectives(values: Mapping[str, Any]) -> Report:
    from benchmarks import objectives
    from benchmarks.objectives_jobs import Study

    _require_folder(values, "objectives")
    given = {task: values[f"{task}_dir"] for task in ("sst2", "cola")}
    tasks = {task: folder for task, folder in given.items() if folder}
    if not tasks:
        raise UsageError("benchmark objectives: needs --sst2_dir, --cola_dir or both")
    study = Study(
        folder=values["work_dir"],
        input_file=values["input_file"],
        tokenizer=values["spm_model_file"],
        tasks=tasks,
        objectives=tuple(values["objective"]) or objectives.all_objectives(),
        scale=objectives.SCALES[values["scale"]],
    )
    return objectives.run(study)


def _measure_pairs(values: Mapping[str, Any]) -> Report:
    from benchmarks import pairs

    _require_folder(values, "pairs")
    return pairs.run(pairs.make_study(*(values[name] for name in _STUDIES)))


def _measure_sharing(values: Mapping[str, Any]) -> Report:
    from benchmarks import sharing

    _require_folder(values, "sharing")
    if not values["sst2_dir"]:
        raise UsageError("--sst2_dir: required for benchmark sharing")
    tasks = {"sst2": values["sst2_dir"]}
    study = sharing.make_study(*(values[name] for name in _STUDIES), tasks)
    return sharing.run(study, values["scale"])


def _measure_costs(values: Mapping[str, Any]) -> Report:
    from benchmarks import costs

    sizes, limit = values["sizes"], values["memory_gigabytes"]
    rule = f"--sizes must be some of {', '.join(costs.SIZES)}, each once"
    fits = 0 < len(sizes) == len(set(sizes)) and set(sizes) <= set(costs.SIZES)
    require(fits, rule, ",".join(sizes))
    require(limit > 0, "--memory_gigabytes must be positive", limit)
    rows, length = _shape(values["shapes"][0])
    settings = costs.Settings(tuple(sizes), rows, length, values["steps"], limit)
    return costs.run(settings)


def _measure_depth(values: Mapping[str, Any]) -> Report:
    from benchmarks import contestants, depth

    layers, limit = values["num_layers"], values["memory_gigabytes"]
    fits = layers and all(one.isdecimal() and int(one) > 1 for one in layers)
    require(fits, "--num_layers must be numbers of 2 or more", ",".join(layers))
    require(limit > 0, "--memory_gigabytes must be positive", limit)
    engine = ",".join(values["backend"]) or "tensorflow"
    known = ", ".join(depth.ENGINES)
    require(engine in depth.ENGINES, f"--backend must be one of {known}", engine)
    contestants.check_engines((engine,))
    step, counts = _step_settings(values), tuple(map(int, layers))
    return depth.run(depth.Settings(step, counts, limit, engine))


def _measure_gpu_run(values: Mapping[str, Any]) -> Report:
    from albert_tf.storage import files
    from benchmarks import contestants, gpu_run

    _require_folder(values, "gpu_run")
    tasks = {task: values[f"{task}_dir"] for task in ("sst2", "cola")}
    for task, folder in tasks.items():
        require(folder, f"--{task}_dir: required for benchmark gpu_run", folder)
    for task, folder in tasks.items():
        examples = files.join(folder, "train.tsv")
        need = f"--{task}_dir must have the files of the task, such as train.tsv"
        require(files.exists(examples), need, folder)
    contestants.check_engines(("jax", "tensorflow"))
    study = gpu_run.Study(
        folder=values["work_dir"],
        input_file=values["input_file"],
        tokenizer=values["spm_model_file"],
        tasks=tasks,
        minutes=values["minutes"],
        scale=gpu_run.SCALES[values["scale"]],
    )
    return gpu_run.run(study)


def _require_folder(values: Mapping[str, Any], topic: str) -> None:
    if not values["work_dir"]:
        raise UsageError(f"--work_dir: required for benchmark {topic}")
