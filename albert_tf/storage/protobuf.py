"""The wire format of protocol buffers, for messages written without their classes.

Only what this package writes and reads: TensorFlow's `Example` in processes that do not
import TensorFlow, and TensorFlow Serving's `PredictionLog`, whose package is not
required.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Returns a non-negative integer as a varint."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tag(number: int) -> bytes:
    """Returns the bytes before the length of a length-delimited field."""
    return varint(number << 3 | _DELIMITED)


def delimited(number: int, content: bytes) -> bytes:
    """Returns a length-delimited field: a string, bytes or an embedded message."""
    return b"".join((tag(number), varint(len(content)), content))


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the fields of a message as (number, value).

    The value is an int for a varint and bytes for every other wire type. Raises
    IndexError or ValueError if the bytes are not a message.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _read_varint(message, at)
        if key >> 32:  # other parsers ignore the upper bits and see another field
            raise ValueError("the number of a field is too large")
        wire = key & 7
        if wire == _VARINT:
            value, at = _read_varint(message, at)
        elif wire in (_DELIMITED, _FIXED32, _FIXED64):
            size = {_FIXED32: 4, _FIXED64: 8}.get(wire)
            if size is None:
                size, at = _read_varint(message, at)
            value = message[at : at + size]
            if len(value) != size:
                raise ValueError("a field is longer than its message")
            at += size
        else:
            raise ValueError(f"unknown wire type {wire}")
        yield key >> 3, value


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Returns the value of the varint at a position, and the position after it."""
    value = shift = 0
    while shift < 70:  # ten bytes; longer ones would take quadratic time
        octet = message[at]
        value |= (octet & 0x7F) << shift
        at += 1
        if octet < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is too long")
