"""The wire format is that of Google's own implementation."""

import pytest
from google.protobuf import descriptor_pb2, wrappers_pb2

from albert_tf.storage import protobuf


@pytest.mark.parametrize("value", [1, 127, 128, 300, 2**32, 2**63 - 1])
def test_varints(value):
    message = wrappers_pb2.UInt64Value(value=value).SerializeToString()
    assert message == b"\x08" + protobuf.varint(value)
    assert list(protobuf.fields(message)) == [(1, value)]


@pytest.mark.parametrize("content", ["", "x", "\N{SNOWMAN}" * 100])
def test_delimited_fields(content):
    message = protobuf.delimited(1, content.encode())
    assert descriptor_pb2.FileDescriptorProto.FromString(message).name == content
    assert list(protobuf.fields(message)) == [(1, content.encode())]


def test_fixed_width_fields():
    double = wrappers_pb2.DoubleValue(value=1.5).SerializeToString()
    assert [len(value) for _, value in protobuf.fields(double)] == [8]
    single = wrappers_pb2.FloatValue(value=1.5).SerializeToString()
    assert [len(value) for _, value in protobuf.fields(single)] == [4]


@pytest.mark.parametrize(
    "message",
    [b"\x0a\x05abc", b"\x0b", b"\x80", b"\x08", b"\x08" + b"\xff" * 10 + b"\x01"],
)
def test_what_is_not_a_message(message):
    with pytest.raises((IndexError, ValueError)):
        list(protobuf.fields(message))
