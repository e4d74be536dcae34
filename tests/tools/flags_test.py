"""The flags of all commands together: few are shown, and one name has one meaning."""

import collections

import pytest

from albert_tf.cli import help as help_module
from albert_tf.converters.convert import TARGETS, VERIFY
from albert_tf.converters.detect import FORMATS
from tests.commands import flags_of_commands

# Flags whose text depends on the command: what it reads and writes, ...
FILES = {"input_file", "eval_file", "data_dir", "model", "spm_model_file"}
FILES |= {"albert_config_file", "init_checkpoint", "preset", "labels", "split"}
FILES |= {"output_file", "output_dir", "format", "exits_curve"}
# ... what a whole text of one is ...
TEXTS = {"do_lower_case", "keep_accents", "seed", "max_seq_length", "task", "text"}
# ... and what training and its records, or two kinds of training, differ in.
TRAINING = {"masking", "max_predictions_per_seq", "packing", "ema_decay", "precision"}
TRAINING |= {"jit_compile", "num_train_steps", "top_k", "n_best_size"}
# Matrices of single layers begin as nothing in training, and are computed by `fold`.
TRAINING |= {"depth_rank", "depth_matrices"}
# Fine-tuning computes these from the data, and says so.
TRAINING |= {"learning_rate", "num_warmup_steps", "train_batch_size", "eval_steps"}
# Models are cut short after some layers, or layers are shown.
EXCEPTIONS = FILES | TEXTS | TRAINING | {"layers"}
# Measures several commands, and says which of them a flag is for.
OTHER_WORDS = {"benchmark"}


@pytest.fixture(scope="module")
def commands():
    """The flags of every command by name."""
    return flags_of_commands()


def test_help_shows_at_most_one_screen(commands):
    for verb, own in commands.items():
        common = [flag for flag in own.values() if help_module.is_common(flag)]
        assert min(len(own), len(common)) <= help_module.SHORT, verb
        # No sentence is cut.
        assert "…" not in "".join(help_module._lines(own.values(), False)), verb


def test_every_text_about_tokenizers_names_all_kinds(commands):
    texts = {
        commands[verb]["spm_model_file"].help
        for verb in commands.keys() - OTHER_WORDS
        if "spm_model_file" in commands[verb]
    }
    assert all("tokenizer.json" in t and "vocab.txt" in t for t in texts), texts
    assert help_module.is_common(commands["pretrain"]["objective"])


def test_what_is_required_is_common(commands):
    for verb, own in commands.items():
        flags = own.values()
        needed = [flag for flag in flags if flag.validators and not flag.default]
        if len(own) > help_module.SHORT:
            assert all(map(help_module.is_common, needed)), verb


def test_every_flag_of_a_long_list_has_one_place(commands):
    groups = {heading.split()[0] for heading in help_module.HEADINGS}
    places = collections.defaultdict(set)
    for verb, own in commands.items():
        for name, flag in own.items():
            places[name].add(help_module.place_of(flag))
            if len(own) > help_module.SHORT:
                assert help_module.place_of(flag)[0] in groups, (verb, name)
    assert not {name: several for name, several in places.items() if len(several) > 1}
    words = " ".join(help_module.OF_TOOLS.values()).replace("|", "").split()
    assert len(words) == len(set(words)) and set(words) <= places.keys()


def test_choices_are_those_of_the_converter(commands):
    """`--help` must not import it, as it imports TensorFlow."""
    own = commands["convert_checkpoint"]
    for name, values in (("format", TARGETS), ("from", FORMATS), ("verify", VERIFY)):
        assert own[name].parser.enum_values == list(values)


def test_one_name_has_one_text_and_one_check(commands):
    texts, checks = collections.defaultdict(set), collections.defaultdict(set)
    for verb in commands.keys() - OTHER_WORDS:
        for name, flag in commands[verb].items():
            texts[name].add(flag.help)
            checks[name].add(flag.flag_type())
    several = {name for name, found in texts.items() if len(found) > 1}
    assert several <= EXCEPTIONS, sorted(several - EXCEPTIONS)
    assert several >= EXCEPTIONS, sorted(EXCEPTIONS - several)
    kinds = {name for name, found in checks.items() if len(found) > 1}
    assert kinds <= {"preset", "albert_config_file", "masking", "layers"}, kinds
