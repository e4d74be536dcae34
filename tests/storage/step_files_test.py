"""The checkpoints of a run are found by their files."""

from albert_tf.storage.step_files import find_checkpoints


def test_only_complete_checkpoints_are_found_the_latest_first(tmp_path):
    assert find_checkpoints(tmp_path / "absent") == {}
    for name in ("step-9.index", "step-100.index", "step-20.data-00000-of-00001"):
        (tmp_path / name).touch()
    (tmp_path / "step-300_temp").mkdir()
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "step-9"')
    found = find_checkpoints(tmp_path)
    assert list(found) == [100, 9]
    assert found[100] == str(tmp_path / "step-100")
