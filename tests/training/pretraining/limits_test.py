"""A batch that no device can hold is refused before anything is read or written."""

import pytest

from albert_tf.config import AlbertConfig
from albert_tf.errors import UsageError
from albert_tf.training import pretrain_inputs as limits
from albert_tf.training.pretrain_settings import PretrainSettings

BASE = AlbertConfig.from_preset("albert_base_v2")


@pytest.fixture(autouse=True)
def much_memory(monkeypatch):
    monkeypatch.setattr(limits, "memory_of_machine", lambda: 2**50)


def check(replicas=1, config=BASE, **changes):
    settings = PretrainSettings(
        input_file="data", output_dir="run", spm_model_file="spm", preset="x", **changes
    )
    limits.check_batch_size(settings, config, replicas)


def test_the_paper_s_batch_does_not_fit_one_device():
    with pytest.raises(UsageError) as error:
        check(train_batch_size=4096)
    assert "at most 682 examples of 512 tokens" in str(error.value)
    assert "--gradient_accumulation_steps=8" in str(error.value)
    check(train_batch_size=4096, gradient_accumulation_steps=8)
    check(replicas=8, train_batch_size=4096)
    with pytest.raises(UsageError, match="received 1024"):
        check(train_batch_size=1024)


@pytest.mark.parametrize(
    "length, what",
    [(512, "attention scores"), (128, "masked-LM logits")],
)
def test_the_largest_tensor_decides(length, what):
    settings = {"max_seq_length": length, "max_predictions_per_seq": 77}
    with pytest.raises(UsageError, match=f"more would make the {what} exceed"):
        check(train_batch_size=4096, **settings)


def test_the_suggestion_is_a_divisor_that_fits():
    with pytest.raises(UsageError, match="--gradient_accumulation_steps=3;?$"):
        check(train_batch_size=1500)  # 750 are too many, 500 are not
    check(train_batch_size=1500, gradient_accumulation_steps=3)


def test_memory_of_a_cpu(monkeypatch):
    # 8 rows need about 5 GB.
    monkeypatch.setattr(limits, "memory_of_machine", lambda: 8 * 2**30)
    check(train_batch_size=4096, gradient_accumulation_steps=512)
    with pytest.raises(UsageError, match="more would exceed its 8 GiB of memory"):
        check(train_batch_size=4096, gradient_accumulation_steps=64)
    with pytest.raises(UsageError, match="more would exceed its 4 GiB of memory"):
        settings = PretrainSettings(
            input_file="data",
            output_dir="run",
            spm_model_file="spm",
            preset="x",
            train_batch_size=4096,
            gradient_accumulation_steps=256,
        )
        limits.check_batch_size(settings, BASE, 2, sharing=2)
    monkeypatch.setattr(limits, "memory_of_machine", lambda: None)
    check(train_batch_size=4096, gradient_accumulation_steps=64)


@pytest.mark.parametrize(
    "own, files, expected",
    [
        ("0::/", {"memory.max": "max"}, []),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "12345"}, [12345]),
        (
            "5:cpu:/x\n7:memory:/not/here",
            {"memory/memory.limit_in_bytes": "777"},
            [777],
        ),
    ],
)
def test_limits_of_control_groups(own, files, expected, tmp_path, monkeypatch):
    (tmp_path / "own").write_text(own + "\n")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    monkeypatch.setattr(limits, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(limits, "_GROUPS", tmp_path)
    assert limits._group_limits() == expected


def test_indivisible_and_evaluation():
    with pytest.raises(
        UsageError,
        match="multiple of 6 .2 devices x 3 accumulation steps., such as 6 or 12",
    ):
        check(replicas=2, train_batch_size=9, gradient_accumulation_steps=3)
    settings = PretrainSettings(
        input_file="data",
        output_dir="run",
        spm_model_file="spm",
        preset="x",
        train_batch_size=9,
    )
    with pytest.raises(UsageError, match="--sequence_length_schedule: .* such as 8 or"):
        limits.check_batch_size(settings, BASE, 2, "sequence_length_schedule")
    with pytest.raises(UsageError, match="--eval_batch_size must be at most 682"):
        check(train_batch_size=8, eval_batch_size=1024, eval_file="x")
