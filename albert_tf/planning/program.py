"""Compiles a training step for a device that is not here, in a process of its own.

libtpu, which holds the real compiler, runs without a TPU, and JAX's plugin for CUDA
without a GPU. They write freely to stderr, take locks and may end the process, so
`planning.search` runs this module as a program: it reads a request from stdin and
writes the result to the file that its argument names.
"""

import contextlib
import json
import math
import pathlib
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
from jax._src.cudnn import fused_attention_stablehlo
from jax.experimental import topologies

from albert_tf.errors import UsageError
from albert_tf.kernels.device import Device, compiling_for
from albert_tf.planning import hlo
from albert_tf.planning.topologies import GpuMachine, find_topology
from albert_tf.settings import checked
from albert_tf.training.planned_step import make_update
from albert_tf.training.pretrain_settings import PretrainSettings

# XLA's messages about a program that needs more memory than there is.
_NEEDED = re.compile(r"([\d.]+)([KMGT]?)(?:\) exceeds available| of [\d.]+G hbm)")

# cuDNN's attention by the names of JAX's operations, with its number of products.
_ATTENTION = {
    "dot_product_attention_fwd_wrapper": 2,
    "dot_product_attention_bwd_wrapper": 5,
}
# Without a GPU, kernels cannot be tried: every product is one of cuBLAS. The machine
# code is not read, so it need not be good, which takes a third of the time.
_CUDA = {
    "xla_gpu_autotune_level": 0,
    "xla_gpu_enable_triton_gemm": False,
    "xla_backend_optimization_level": 0,
}


def count_flops(jaxpr: Any) -> int:
    """Returns the operations of one device's matrix products in a program.

    A multiply-add counts as two, and the body of a loop once per iteration. The work of
    the program is inside `shard_map`, where shapes are local to one device.
    """
    total = 0
    for equation in jaxpr.eqns:
        params = equation.params
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            inner = math.prod(shape[axis] for axis in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
        # Two products in cuDNN's attention, and five in its gradient.
        products = _ATTENTION.get(equation.primitive.name, 0)
        if products:
            B, T, N, H = equation.invars[0].aval.shape
            total += products * 2 * B * N * T * T * H
        times = params["length"] if equation.primitive.name == "scan" else 1
        if equation.primitive.name == "pallas_call":  # a kernel of a TPU
            times = math.prod(params["grid_mapping"].grid)
        total += times * sum(map(count_flops, _inner(params)))
    return total


def _inner(params: dict[str, Any]) -> Iterator[Any]:
    """Yields the programs that an equation calls."""
    for value in params.values():
        for one in value if isinstance(value, tuple | list) else [value]:
            one = getattr(one, "jaxpr", one)
            if hasattr(one, "eqns"):
                yield one


def compile_step(request: dict[str, Any], folder: pathlib.Path) -> dict[str, Any]:
    """Compiles a training step, and returns bytes, FLOPs and work per device.

    Args:
        request: dict. `settings`, fields of `PretrainSettings`; `config`, fields of
            `AlbertConfig`; `topology`, its name; `depth` and `parts`.
        folder: path. XLA writes its versions of the program to this folder.

    Returns:
        dict. Per device, in bytes: `arguments`, `temporaries`, `results` (without
        results that replace arguments) and `code`; `flops` and the fields of `hlo.Work`
        of a step; `compile_seconds`. Or only `needed`, the bytes that XLA requested, if
        that is more than there is.
    """
    topology = find_topology(request["topology"])
    is_gpu = isinstance(topology, GpuMachine)
    platform, options = "cuda" if is_gpu else "tpu", topology.compiler_options
    devices = topologies.get_topology_desc(platform=platform, **options).devices
    update, batch = make_update(
        PretrainSettings(**checked(request["settings"], PretrainSettings)),
        request["config"],
        devices,
        request["depth"],
        request["parts"],
    )
    with contextlib.ExitStack() as stack:
        generation = int(float(topology.chip.capability)) if is_gpu else 0
        stack.enter_context(compiling_for(Device(generation, not is_gpu)))
        if is_gpu:
            # JAX asks the installed cuDNN, which is not needed to compile.
            fused_attention_stablehlo.check_cudnn_version = lambda: 91_000
        traced = update.compiled().trace(update.state_specs(), batch)
    lowered = traced.lower(lowering_platforms=(platform,))
    dump = {"xla_dump_to": str(folder), "xla_dump_hlo_as_text": True}
    start = time.perf_counter()
    try:
        compiled = lowered.compile(_CUDA if is_gpu else dump)
    except jax.errors.JaxRuntimeError as e:
        needed = _NEEDED.search(str(e))
        if needed is None:
            raise
        return {"needed": int(float(needed[1]) * 1024 ** " KMGT".index(needed[2]))}
    seconds = time.perf_counter() - start
    memory = compiled.memory_analysis()
    if is_gpu:
        text = compiled.as_text()
    else:
        # `as_text` fails for v5p and v6e: jaxlib does not know all that libtpu writes.
        texts = folder.glob("*.after_optimizations.txt")
        text = max(texts, key=lambda path: path.stat().st_size).read_text("utf-8")
    work = hlo.read(text, len(devices))
    found = {
        "arguments": memory.argument_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
        "flops": count_flops(traced.jaxpr.jaxpr),
        **work._asdict(),
        "compile_seconds": round(seconds, 1),
    }
    needed = sum(found[name] for name in ("arguments", "temporaries", "results"))
    # The compiler for GPUs does not refuse what is too large.
    too_large = is_gpu and needed > topology.chip.memory_gib * 2**30
    return {"needed": needed} if too_large else found


def main() -> None:
    """Reads a request from stdin; writes the answer to the file of the argument.

    Other files written to its folder can be discarded.
    """
    path = pathlib.Path(sys.argv[1])
    try:
        answer = compile_step(json.load(sys.stdin), path.parent)
    except UsageError as e:
        answer = {"refused": str(e)}
    path.write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
