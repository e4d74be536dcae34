"""Replicas and workers see together the rows that one device sees, packed or not."""

import numpy as np
import pytest

from tests.data.synthetic_records import make_example, write

# A process of its own, because devices can only be split before TensorFlow starts.
PROGRAM = r"""
import sys
import numpy as np
from albert_tf.data.batches.pretraining import PretrainingData
from albert_tf.training.tensorflow.step import distribute
from albert_tf.training.tensorflow.strategy import create_strategy
from tests.data.synthetic_records import VOCAB

strategy = create_strategy("mirrored")
assert strategy.num_replicas_in_sync == 2
for packing in (False, True):
    data = PretrainingData(
        sys.argv[1], tokenizer=VOCAB, max_seq_length=29, max_predictions_per_seq=5,
        seed=3, packing=packing,
    )
    for training in (True, False):
        make = lambda n, i: data.batches(
            6, is_training=training, num_input_pipelines=n, input_pipeline_id=i
        )
        distributed = iter(distribute(strategy, make))
        for number, expected in enumerate(make(1, 0).take(5).as_numpy_iterator()):
            found = next(distributed)
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                shares = strategy.experimental_local_results(found[name])
                assert [len(share) for share in shares] == [3, 3], name
                np.testing.assert_array_equal(np.concatenate(shares), value, name)
        assert number >= 1
print("the same rows")
"""


@pytest.mark.slow
def test_two_replicas_share_the_batch_of_one_device(tmp_path, run_python):
    rng = np.random.default_rng(2)
    rows = [make_example(rng, length) for length in rng.integers(7, 29, 37)]
    done = run_python("-c", PROGRAM, write(tmp_path, rows))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the same rows" in done.stdout
