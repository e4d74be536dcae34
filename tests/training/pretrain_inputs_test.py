"""What a run starts from: content, case of the records, batches that fit."""

import json
import pathlib
import shutil

import numpy as np
import pytest

import albert_tf
from albert_tf.config import AlbertConfig
from albert_tf.converters.load import open_checkpoint
from albert_tf.data.records import card
from albert_tf.data.records.tfrecord import RecordSet
from albert_tf.errors import UsageError
from albert_tf.storage import lock
from albert_tf.training import pretrain_inputs
from albert_tf.training.pretrain_inputs import (
    check_batches,
    digests_of,
    load_run_tokenizer,
)
from albert_tf.training.pretrain_settings import PretrainSettings
from albert_tf.training.start import content_of
from tests import tiny
from tests.data import synthetic_records
from tests.training.runs import SIZES, pretraining


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    return [synthetic_records.make_example(rng, 20) for _ in range(30)]


def describe(folder):
    return digests_of({20: RecordSet(str(folder))})


def write(folder, rows, **changes):
    folder.mkdir()
    synthetic_records.write(folder, rows)
    data_card = {
        "form": "dynamic",
        "inputs": [{"name": "/here/a.txt", "bytes": 3, "sha256": "ab"}],
        "flags": {"output_file": str(folder)},
        **changes,
    }
    (folder / card.CARD_NAME).write_text(json.dumps(data_card))


def test_a_copy_of_the_data_is_the_same_data(tmp_path, rows):
    write(tmp_path / "one", rows)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    one = describe(tmp_path / "one")
    assert describe(tmp_path / "two") == one
    write(tmp_path / "again", rows)  # its card names another folder
    assert describe(tmp_path / "again") == one
    json.dumps(one)


def test_other_data_differ(tmp_path, rows):
    write(tmp_path / "one", rows)
    one = describe(tmp_path / "one")
    changed = [dict(row) for row in rows]
    ids = changed[0]["input_ids"].copy()
    ids[1] = 5 + (ids[1] - 4) % 100  # its size in the file does not change
    changed[0]["input_ids"] = ids
    write(tmp_path / "content", changed)
    other = describe(tmp_path / "content")
    assert one["records"] != other["records"]
    inputs = [{"name": "/here/a.txt", "bytes": 3, "sha256": "cd"}]
    write(tmp_path / "input", rows, inputs=inputs)
    other = describe(tmp_path / "input")
    assert one["records"] == other["records"] and one["card"] != other["card"]
    write(tmp_path / "fewer", rows[:-1])
    other = describe(tmp_path / "fewer")
    assert one["records"] != other["records"]


def test_an_initial_checkpoint_is_known_in_every_format(tokenizer, tmp_path):
    config = tiny.CONFIG
    # Not left out, or a run could go on with one.
    content = content_of({}, tokenizer, config, None)
    assert content["init_checkpoint"] == content["teacher"] == ""
    digests = []
    for seed, format in ((1, "albert_tf"), (1, "tf1"), (2, "albert_tf")):
        path = tmp_path / f"{seed}{format}"
        model = tiny.make_model("pretraining", seed=seed)
        albert_tf.save_pretrained(model, path, format=format)
        with open_checkpoint(str(path)) as checkpoint:
            content = content_of({}, tokenizer, config, checkpoint)
        digests.append(content["init_checkpoint"])
    assert digests[0] == digests[1] != digests[2]


@pytest.fixture
def cased(records, tmp_path):
    """A copy of cased records, to be changed, and settings of a run with them."""
    options = {"do_lower_case": False, "keep_accents": True}
    folder = tmp_path / "cased"
    shutil.copytree(records(**options, max_seq_length=64), folder)

    def settings(**changes):
        given = {"input_file": folder, "max_seq_length": 64, **changes}
        return PretrainSettings(**pretraining(tmp_path, **given))

    settings.card = folder / card.CARD_NAME
    return settings


@pytest.mark.parametrize("preset", ["roberta_base", "albert_base_v2"])
def test_positions_of_a_preset_follow_the_tokenizer(preset, tokenizer, tmp_path):
    """The original's table begins with its padding, id 1; here it is id 0."""

    def settings(length):
        given = {"preset": preset, "albert_config_file": "", "max_seq_length": length}
        return PretrainSettings(**pretraining(tmp_path, **given))

    pretrain_inputs.check_files(settings(512))
    found = pretrain_inputs.load_config(settings(512), None, tokenizer)
    offset = {"roberta_base": 1}.get(preset, 0)
    assert found == AlbertConfig.from_preset(preset).replace(position_offset=offset)
    assert found.num_positions == 512 + offset
    with pytest.raises(UsageError, match="max_position_embeddings=512, received 513"):
        pretrain_inputs.check_files(settings(513))


def test_a_folder_that_cannot_be_used_is_found_before_tensorflow(cased, tmp_path):
    held, file = tmp_path / "held", tmp_path / "file"
    held.mkdir()
    with lock.locked(held), pytest.raises(UsageError, match="is writing to this fold"):
        pretrain_inputs.check_files(cased(output_dir=str(held)))
    file.touch()
    with pytest.raises(UsageError, match="cannot be .* Not a directory"):
        pretrain_inputs.check_files(cased(output_dir=str(file / "run")))


@pytest.mark.parametrize("offset", [1, 2])
def test_positions_of_a_config_file_must_be_the_tokenizers(offset, tmp_path):
    sizes = {"family": "roberta", "position_offset": offset, "type_vocab_size": 1}
    sizes = AlbertConfig.from_dict({**SIZES, **sizes}).to_dict()
    settings = PretrainSettings(**pretraining(tmp_path, sizes))
    if offset == 1:
        pretrain_inputs.check_files(settings)
        return
    rule = "pad_id must be 1, .*_offset=2 .* needs position_offset=1, received 0$"
    with pytest.raises(UsageError, match=rule):
        pretrain_inputs.check_files(settings)


def test_a_flag_that_contradicts_the_records_is_refused(cased):
    with pytest.raises(UsageError, match="do_lower_case=false.* received true"):
        load_run_tokenizer(cased(do_lower_case=True))
    assert not load_run_tokenizer(cased(do_lower_case=False)).do_lower_case


def test_held_out_records_of_other_case_are_refused(cased, records):
    held_out = records(max_seq_length=64)
    with pytest.raises(UsageError, match="do_lower_case"):
        load_run_tokenizer(cased(eval_file=held_out))


def test_the_tokenizer_is_that_of_the_initial_checkpoint(cased, tmp_path):
    model, own = tiny.make_model("pretraining"), cased().spm_model_file
    options = {"do_lower_case": False, "keep_accents": True}
    for name, given in (("same", options), ("other", {}), ("none", None)):
        tokenizer = None if given is None else albert_tf.load_tokenizer(own, **given)
        path = tmp_path / name
        albert_tf.save_pretrained(model, path, tokenizer=tokenizer)
        start = {"spm_model_file": "", "init_checkpoint": str(path)}
        settings = cased(**start, albert_config_file="")
        pretrain_inputs.check_files(settings)
        with open_checkpoint(path) as checkpoint:
            if name == "same":
                found = load_run_tokenizer(settings, checkpoint)
                assert found.get_config() == tokenizer.get_config()
                assert found.sha256 == tokenizer.sha256
                continue
            refused = {"other": "do_lower_case: .*other was", "none": "holds no token"}
            with pytest.raises(ValueError, match=refused[name]):
                load_run_tokenizer(settings, checkpoint)


@pytest.mark.parametrize("change", ["no card", "a card without options"])
def test_old_records_read_as_before(cased, change):
    if change == "no card":
        cased.card.unlink()
    else:
        content = json.loads(cased.card.read_text())
        del content["settings"]["tokenizer"]
        cased.card.write_text(json.dumps(content))
    assert load_run_tokenizer(cased()).do_lower_case
    assert not load_run_tokenizer(cased(do_lower_case=False)).do_lower_case


BASE = AlbertConfig.from_preset("albert_base_v2")


@pytest.fixture
def check(monkeypatch):
    """Checks batches on a machine with much memory, or with `gib`."""

    def check(replicas=1, sharing=1, gib=2**20, parts=1, **changes):
        memory = None if gib is None else gib * 2**30
        monkeypatch.setattr(pretrain_inputs, "memory_of_machine", lambda: memory)
        given = {"input_file": "a", "output_dir": "b", "spm_model_file": "c"}
        given |= {"preset": "x", "gradient_accumulation_steps": parts}
        settings = PretrainSettings(**given, **changes)
        check_batches(settings, BASE, replicas, sharing)

    return check


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # The paper's batch does not fit one device.
        (
            {},
            "at most 682 examples of 512 tokens .*attention scores exceed.*"
            "--gradient_accumulation_steps=8, received 4096$",
        ),
        (
            {"max_seq_length": 128, "max_predictions_per_seq": 77},
            "more would make the masked-LM logits exceed",
        ),
        # 750 are too many, 500 are not.
        ({"train_batch_size": 1500}, "--gradient_accumulation_steps=3,"),
        # 8 rows need about 5 GB.
        ({"gib": 8, "parts": 64}, "more would exceed its 8 GiB of memory"),
        (
            {"gib": 8, "replicas": 2, "sharing": 2, "parts": 256},
            "more would exceed its 4 GiB of memory",
        ),
        (
            {"replicas": 2, "train_batch_size": 9, "parts": 3},
            "multiple of 6 .2 devices x 3 accumulation steps., such as 6 or 12",
        ),
        (
            {"replicas": 2, "sequence_length_schedule": "512:125000:9"},
            "--sequence_length_schedule: .* such as 8 or",
        ),
        (
            {"train_batch_size": 8, "eval_batch_size": 1024, "eval_file": "x"},
            "--eval_batch_size must be at most 682",
        ),
        (
            {"gib": 1, "train_batch_size": 1, "eval_batch_size": 43, "eval_file": "x"},
            "at most 42 .more would exceed its 1 GiB of memory., received 43$",
        ),
    ],
)
def test_batches_that_do_not_fit(check, changes, message):
    with pytest.raises(UsageError, match=message):
        check(**changes)


def test_batches_that_fit(check):
    check(parts=8)
    check(replicas=8)
    check(gib=8, parts=512)
    check(gib=None, parts=64)
    check(gib=8, parts=64, depth="loop_remat")


@pytest.mark.parametrize(
    "own, files, expected",
    [
        ("0::/", {"memory.max": "max"}, []),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "12345"}, [12345]),
        ("5:cpu:/x\n7:memory:/y", {"memory/memory.limit_in_bytes": "777"}, [777]),
    ],
)
def test_limits_of_control_groups(own, files, expected, tmp_path, monkeypatch):
    (tmp_path / "own").write_text(own + "\n")
    for name, text in files.items():
        path = pathlib.Path(tmp_path / name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    monkeypatch.setattr(pretrain_inputs, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(pretrain_inputs, "_GROUPS", tmp_path)
    assert pretrain_inputs._group_limits() == expected
