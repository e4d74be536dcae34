"""Texts as inputs of an exported model."""

import tensorflow as tf

from albert_tf.export.text_inputs import TextInputs


def test_rows_are_padded_to_a_multiple_of_16(tokenizer):
    encode = TextInputs(tokenizer, 100)
    for count, width in ((1, 16), (33, 48), (62, 64), (63, 80), (95, 100), (500, 100)):
        found = encode(tf.constant(["x", "a " * count]))
        assert {value.shape for value in found.values()} == {(2, width)}
        lengths = found["padding_mask"].numpy().sum(1).tolist()
        assert lengths == [3, min(count + 2, 100)]
