"""Formats the text of `--help`."""

import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable

from absl import flags

from albert_tf.cli.flags import ALIASES, HIDDEN

# A command with more flags shows only the common ones, unless --helpfull is given.
SHORT = 25
# Heading -> common flags, others; both in display order. Flags that are not listed here
# belong to commands with few flags.
GROUPS = {
    "inputs": (
        "input input_file predictions prediction_dir text task data_dir split "
        "train_file dev_file test_file eval_file text_column text_pair_column "
        "label_column text_field language on_bad_input",
        "input_format source_temperature input_file_mode dev_fraction "
        "max_train_examples table_kind "
        "context_column question_column choice_columns tokens_column tags_column "
        "id_column labels many_labels label_columns label_separator skip_label "
        "problem_type delimiter header quoting download tfds_data_dir",
    ),
    "model": (
        "model init_checkpoint preset albert_config_file spm_model_file "
        "max_seq_length exit",
        "from head from_scratch grow answer_head exits do_lower_case "
        "keep_accents vocab_size model_type character_coverage vocab_file",
    ),
    "examples": (
        "masking pair_policy masked_lm_prob dupe_factor drop_duplicates "
        "eval_fraction random_seed",
        "packing max_predictions_per_seq ngram favor_shorter_ngram ngram_distribution "
        "do_whole_word_mask do_permutation short_seq_prob random_next_sentence "
        "eval_masked_lm_prob eval_ngram sequence_length_schedule fixed_length "
        "doc_stride max_query_length",
    ),
    "training": (
        "config objective learning_rate num_train_epochs num_train_steps "
        "train_batch_size seed precision",
        "recipe num_warmup_steps pair_loss_weight max_span span_edges "
        "generator_size generator_layers embedding_sharing share_encoder temperature "
        "disallow_correct optimizer "
        "learning_rate_schedule scale_learning_rate num_decay_steps poly_power "
        "beta_2 epsilon bias_correction exclude_from_weight_decay "
        "start_warmup_step warmup_proportion weight_decay_rate clip_norm ema_decay "
        "layerwise_decay layerwise_decay_rule dropout label_smoothing class_weights "
        "gradient_accumulation_steps num_seeds change_num_train_steps on_divergence "
        "max_loss_ratio max_grad_norm_ratio on_collapse early_stopping_patience "
        "allow_other_versions",
    ),
    "evaluation and checkpoints": (
        "",
        "eval_steps save_checkpoints_steps log_steps eval_batch_size max_eval_steps "
        "sample_texts metric keep keep_best keep_checkpoint_max "
        "export_weights async_checkpoint",
    ),
    "devices and speed": (
        "backend distribution num_processes num_workers runner",
        "num_devices tpu_name allow_tpu_pod worker_timeout depth "
        "shard_optimizer jit_compile fuse_elementwise deterministic "
        "iterations_per_loop predict_batch_size batch_size "
        "max_batch_tokens rows_per_part beam_option",
    ),
    "outputs": (
        "output output_file output_dir report_file format quantization version "
        "num_shards overwrite",
        "output_model output_prefix exits_curve server_files warmup_batch_sizes top_k "
        "n_best_size max_answer_length max_qa_length null_threshold "
        "max_accuracy_drop ignore verify",
    ),
    "measurements": (
        "topic steps rounds num_texts shapes parts recording_dir scale work_dir "
        "sst2_dir cola_dir",
        "batches_file write_batches max_bytes seconds sizes num_layers "
        "memory_megabytes memory_gigabytes imitate_bfloat16",
    ),
}


def help_text(
    main: Callable[..., None], program: str, full: bool, arguments: str = ""
) -> str:
    """Returns the help of a command.

    Args:
        full: bool. Whether to list all flags, including those of libraries.
    """
    documentation = (main.__globals__.get("__doc__") or "").strip()
    # The file of the verb `inspect` must not have the name of Python's module.
    verb = os.path.splitext(os.path.basename(program))[0].removesuffix("_model")
    taken = f" {arguments} ..." if arguments else ""
    text = [documentation, "", f"usage: albert-tf {verb}{taken} [--flag=value ...]"]
    hidden = ALIASES.keys() | HIDDEN | {"debug"}
    own = {
        flag.name: flag
        for flag in flags.FLAGS.get_key_flags_for_module(program)
        if flag.name not in hidden
    }
    shown = [name for name in own if full or len(own) <= SHORT or is_common(name)]
    for heading, names in grouped(shown).items():
        text += ["", f"{heading}:", *_lines((own[name] for name in names), full)]
    rest = len(own) - len(shown)
    more = f"the other {rest} flags, and whole texts" if rest else "whole texts"
    text += ["", f"--helpfull shows {more}; --debug the traceback of an error."]
    if full:
        for module, others in flags.FLAGS.flags_by_module_dict().items():
            rest = [flag for flag in others if flag.name not in {*own, *hidden}]
            if rest:
                text += ["", f"flags of {module}:", *_lines(rest, full)]
    return "\n".join(text)


def is_common(name: str) -> bool:
    """Returns whether `--help` shows a flag for commands that have many."""
    return any(name in common.split() for common, _ in GROUPS.values())


def grouped(names: Iterable[str]) -> dict[str, list[str]]:
    """Returns names of flags by heading, in display order."""
    left, groups = dict.fromkeys(names), {}
    for heading, (common, others) in GROUPS.items():
        of_group = [n for n in f"{common} {others}".split() if n in left]
        if of_group:
            groups[heading] = of_group
    left = [n for n in left if not any(n in of_group for of_group in groups.values())]
    return groups | ({"others": left} if left else {})


def _lines(own: Iterable[flags.Flag], full: bool) -> list[str]:
    """Returns the flags with their texts, which the short help cuts to one sentence."""
    indent = 6 if full else 28
    lines = []
    for flag in own:
        text = flag.help
        if not full:
            text = re.split(r"\. (?=[A-Z])", text, maxsplit=1)[0].rstrip(".")
        text = f"{text}{_notes(flag)}"
        name = f"  --[no]{flag.name}" if flag.boolean else f"  --{flag.name}"
        if full or len(name) > indent - 2:
            lines.append(name)
            name = ""
        lines += textwrap.wrap(
            text,
            width=min(shutil.get_terminal_size().columns, 88),
            initial_indent=name.ljust(indent),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
    return lines


def _notes(flag: flags.Flag) -> str:
    notes = [f"also --{old}" for old, new in ALIASES.items() if new == flag.name]
    if flag.default is not False and flag.default not in (None, "", []):
        default = flag.default_as_str
        quoted = isinstance(flag.default, str)
        notes.append(f"default: {default if quoted else default.strip(chr(39))}")
    elif any("other than None" in check.message for check in flag.validators):
        notes.append("required")
    return f" ({'; '.join(notes)})" if notes else ""
