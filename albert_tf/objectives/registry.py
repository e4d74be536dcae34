"""Objectives by the name that `--objective` takes."""

from albert_tf.objectives.albert import ALBERT
from albert_tf.objectives.bert import BERT

OBJECTIVES = {one.name: one for one in (ALBERT, BERT)}
