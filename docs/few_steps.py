"""Runs a command with few steps, in place of `tools/main.py`.

`make test-all` executes the pages to see that they run. Fine-tuning takes an epoch or
two steps without a graph, which takes longer to trace.
"""

import os
import pathlib
import runpy
import sys

import tensorflow as tf

TOOL = pathlib.Path(__file__).resolve().parents[1] / "tools/main.py"
# Replace flags of `finetune`.
FEW = {"--num_train_epochs": 1, "--num_train_steps": 2}
# Follow the flags of other commands. Only a SavedModel is warmed up, and XLA would take
# longer to compile a step than ten steps take.
MORE = {
    "export": "--warmup_batch_sizes=",
    "predict": "--num_workers=1",  # another would import TensorFlow
    "pretrain": "--num_train_steps=10 --num_warmup_steps=1 --nojit_compile "
    "--nofuse_elementwise",
}

verb, *flags = sys.argv[1:]
if verb == "finetune":
    names = [flag.partition("=")[0] for flag in flags]
    pairs = zip(names, flags, strict=True)
    flags = [f"{name}={FEW[name]}" if name in FEW else flag for name, flag in pairs]
elif not any(flag.startswith("--format=") for flag in flags):
    flags += MORE.get(verb, "").split()
# A cluster exchanges gradients in graphs.
is_alone = "TF_CONFIG" not in os.environ
tf.config.run_functions_eagerly(verb == "finetune" and is_alone)
sys.argv[2:] = flags
runpy.run_path(str(TOOL), run_name="__main__")
