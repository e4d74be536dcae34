"""What a compiled program does, read from a small one in the form libtpu writes."""

import pytest

from albert_tf.planning import hlo

# Micro-batches of a step (2), in each layers (3); the gradients are summed at the end.
TEXT = """\
HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[8,128]{1,0})}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[]{:T(128)} parameter(0)
  %b = f32[]{:T(128)} parameter(1)
  ROOT %sum = f32[]{:T(128)} add(%a, %b)
}

%keep (param_0.1: bf16[3,64,128], param_1.1: s32[], param_2.1: bf16[64,128]) -> bf16[3,64,128] {
  %param_0.1 = bf16[3,64,128]{2,1,0:T(8,128)(2,1)} parameter(0)
  %param_2.1 = bf16[64,128]{1,0:T(8,128)(2,1)} parameter(2)
  %param_1.1 = s32[]{:T(128)} parameter(1)
  %one = bf16[1,64,128]{2,1,0:T(8,128)(2,1)} bitcast(%param_2.1)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %dynamic-update-slice.1 = bf16[3,64,128]{2,1,0:T(8,128)(2,1)} dynamic-update-slice(%param_0.1, %one, %param_1.1, %zero, %zero)
}

%take (param_0.2: bf16[3,64,128], param_1.2: s32[]) -> bf16[64,128] {
  %param_0.2 = bf16[3,64,128]{2,1,0:T(8,128)(2,1)} parameter(0)
  %param_1.2 = s32[]{:T(128)} parameter(1)
  %zero.1 = s32[]{:T(128)} constant(0)
  %slice = bf16[1,64,128]{2,1,0:T(8,128)(2,1)} dynamic-slice(%param_0.2, %param_1.2, %zero.1, %zero.1), dynamic_slice_sizes={1,64,128}
  ROOT %flat = bf16[64,128]{1,0:T(8,128)(2,1)} bitcast(%slice)
}

%layer (state: (s32[], bf16[64,128], bf16[3,64,128])) -> (s32[], bf16[64,128], bf16[3,64,128]) {
  %state = (s32[]{:T(128)}, bf16[64,128]{1,0:T(8,128)(2,1)S(1)}, /*index=2*/bf16[3,64,128]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %number = s32[]{:T(128)} get-tuple-element(%state), index=0
  %x = bf16[64,128]{1,0:T(8,128)(2,1)S(1)} get-tuple-element(%state), index=1
  %kept = bf16[3,64,128]{2,1,0:T(8,128)(2,1)} get-tuple-element(%state), index=2
  %old = bf16[64,128]{1,0:T(8,128)(2,1)S(1)} fusion(%kept, %number), kind=kLoop, calls=%take
  %new = bf16[3,64,128]{2,1,0:T(8,128)(2,1)} fusion(%kept, %number, /*index=2*/%x), kind=kLoop, calls=%keep, backend_config={"window_config":{"estimated_cycles":"1825"}}
  %one.1 = s32[]{:T(128)} constant(1)
  %next = s32[]{:T(128)S(6)} add(%number, %one.1)
  ROOT %tuple = (s32[]{:T(128)}, bf16[64,128]{1,0:T(8,128)(2,1)S(1)}, bf16[3,64,128]{2,1,0:T(8,128)(2,1)}) tuple(%next, %old, %new)
}

%more (state.1: (s32[], bf16[64,128], bf16[3,64,128])) -> pred[] {
  %limit = s32[]{:T(128)} constant(3), metadata={op_name="jit(step)/while"}
  %state.1 = (s32[]{:T(128)}, bf16[64,128]{1,0:T(8,128)(2,1)S(1)}, bf16[3,64,128]{2,1,0:T(8,128)(2,1)}) parameter(0)
  %number.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  ROOT %lt = pred[]{:T(512)} compare(%number.1, %limit), direction=LT, metadata={op_name="a) b"}
}

%part (state.2: (s32[], bf16[64,128], bf16[3,64,128])) -> (s32[], bf16[64,128], bf16[3,64,128]) {
  %state.2 = (s32[]{:T(128)}, bf16[64,128]{1,0:T(8,128)(2,1)S(1)}, bf16[3,64,128]{2,1,0:T(8,128)(2,1)}) parameter(0)
  ROOT %while.1 = (s32[]{:T(128)}, bf16[64,128]{1,0:T(8,128)(2,1)S(1)}, bf16[3,64,128]{2,1,0:T(8,128)(2,1)}) while(%state.2), condition=%more, body=%layer
}

%more_parts (state.3: (s32[], bf16[64,128], bf16[3,64,128])) -> pred[] {
  %state.3 = (s32[]{:T(128)}, bf16[64,128]{1,0:T(8,128)(2,1)S(1)}, bf16[3,64,128]{2,1,0:T(8,128)(2,1)}) parameter(0)
  ROOT %lt.1 = pred[]{:T(512)} compare(%state.3, %state.3), direction=LT
}

%begin_slice (param_0.3: f32[8,128]) -> f32[2,128] {
  %param_0.3 = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %slice.3 = f32[2,128]{1,0:T(2,128)S(1)} slice(%param_0.3), slice={[0:2], [0:128]}
}

ENTRY %main (weights: f32[8,128]) -> f32[8,128] {
  %weights = f32[8,128]{1,0:T(8,128)} parameter(0)
  %copy-start = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%weights)
  %copy-done = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%copy-start)
  %slice-start = ((f32[8,128]{1,0:T(8,128)}), f32[2,128]{1,0:T(2,128)S(1)}, s32[]{:S(2)}) async-start(%weights), calls=%begin_slice
  %slice-done = f32[2,128]{1,0:T(2,128)S(1)} async-done(%slice-start)
  %begin = (s32[]{:T(128)}, bf16[64,128]{1,0:T(8,128)(2,1)S(1)}, bf16[3,64,128]{2,1,0:T(8,128)(2,1)}) tuple(%weights)
  %while.2 = (s32[]{:T(128)}, bf16[64,128]{1,0:T(8,128)(2,1)S(1)}, bf16[3,64,128]{2,1,0:T(8,128)(2,1)}) while(%begin), condition=%more_parts, body=%part, backend_config={"known_trip_count":{"n":"2"}}
  %all-gather-start = (f32[8,128]{1,0:T(8,128)S(1)}, f32[32,128]{1,0:T(8,128)S(1)}) all-gather-start(%copy-done), replica_groups=[4,4]<=[16], dimensions={0}
  %all-gather-done = f32[32,128]{1,0:T(8,128)S(1)} all-gather-done(%all-gather-start)
  ROOT %all-reduce = f32[8,128]{1,0:T(8,128)} all-reduce(%copy-done), channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, to_apply=%add
}
"""  # noqa: E501
SIZE = 8 * 128 * 4  # of the weights
LAYER = 64 * 128 * 2  # of what is kept of a layer


def test_exchanges_have_their_size_and_group():
    gather, reduce = hlo.read(TEXT, 16)[0]
    assert gather == ("all-gather", 1, 4 * SIZE, 4)
    assert reduce == ("all-reduce", 1, SIZE, 8)
    assert gather.sent == 4 * SIZE * 3 / 4
    assert reduce.sent == 2 * SIZE * 7 / 8


def test_an_exchange_in_loops_counts_as_often_as_they_run():
    inside = TEXT.replace("= s32[]{:T(128)S(6)} add(", "= s32[] all-reduce(")
    found = hlo.read(inside, 16)[0]
    assert ("all-reduce", 6, 8, 16) in found  # 2 parts, 3 layers, no groups


def test_memory_counts_slices_and_loops_and_not_the_inner_memory():
    # A layer reads one layer of what is kept and writes one, in six iterations; the
    # weights are read once, a fourth of them once more, and written once. All else
    # stays in the chip, `S(1)`.
    assert hlo.read(TEXT, 16)[1] == 6 * 2 * LAYER + 2 * SIZE + SIZE / 4


def test_a_loop_without_a_known_end_is_refused():
    endless = TEXT.replace('"known_trip_count"', '"unknown"')
    with pytest.raises(ValueError, match="more_parts must count to a constant"):
        hlo.read(endless, 16)


# In the form XLA writes for a GPU: a product with its bias, attention, a residual.
GPU_TEXT = """\
HloModule jit_step, is_scheduled=true

%fused_add (param_0: bf16[64,128], param_1: bf16[64,128]) -> bf16[64,128] {
  %param_0 = bf16[64,128]{1,0} parameter(0)
  %param_1 = bf16[64,128]{1,0} parameter(1)
  ROOT %add.1 = bf16[64,128]{1,0} add(%param_0, %param_1), metadata={op_name="jit(step)/jvp(model)/backbone/encoder/add"}
}

ENTRY %main (x: bf16[64,128], w: bf16[128,128]) -> bf16[64,128] {
  %x = bf16[64,128]{1,0} parameter(0)
  %w = bf16[128,128]{1,0} parameter(1)
  %matmul = (bf16[64,128]{1,0}, s8[33554432]{0}) custom-call(%x, %w), custom_call_target="__cublas$lt$matmul", metadata={op_name="jit(step)/jvp(model)/backbone/encoder/attention_0/dot_general"}
  %y = bf16[64,128]{1,0} get-tuple-element(%matmul), index=0
  %heads = (bf16[64,128]{1,0}, f32[64]{0}) custom-call(%y, %y, %y), custom_call_target="__cudnn$fmhaSoftmax"
  %z = bf16[64,128]{1,0} get-tuple-element(%heads), index=0
  %sum = bf16[64,128]{1,0} fusion(%z, %x), kind=kLoop, calls=%fused_add
  ROOT %new = bf16[64,128]{1,0} fusion(%sum, %x), kind=kLoop, calls=%fused_add, metadata={op_name="jit(step)/adam_w/sub"}
}
"""  # noqa: E501


def test_kernels_of_a_gpu_have_kinds():
    work = hlo.read(GPU_TEXT, 1)
    assert work.kinds == {
        "products": (1, 2 * LAYER + 128 * 128 * 2),  # without the library's memory
        "attention": (1, 4 * LAYER + 4 * 64),
        "normalization": (1, 3 * LAYER),
        "optimizer": (1, 3 * LAYER),
    }
    assert work.memory_bytes == sum(size for _, size in work.kinds.values())


def test_a_kernel_of_a_tpu_moves_whole_tiles():
    text = """\
ENTRY %main (q: bf16[12,64]) -> bf16[12,64] {
  %q = bf16[12,64]{1,0:T(8,128)(2,1)} parameter(0)
  %call = (f32[12,64]{0,1:T(8,128)}, bf16[12,64]{1,0:T(8,128)(2,1)S(1)}) custom-call(%q), custom_call_target="tpu_custom_call"
  ROOT %out = bf16[12,64]{1,0:T(8,128)(2,1)S(1)} get-tuple-element(%call), index=1
}
"""  # noqa: E501
    assert hlo.read(text, 1).kinds == {"attention": (1, 2 * 16 * 128 + 4 * 128 * 64)}
