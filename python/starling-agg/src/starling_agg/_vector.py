"""Vectors: any run of floats to little-endian binary32 and back."""

from __future__ import annotations

import math
import struct
import sys
from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

from ._errors import BadVector, MalformedAnswer

#: Most numbers that a model has (fl/session.MaxDimension).
MAX_NUMBERS = 1 << 20


class Model(NamedTuple):
    """Parameters of a model, and the norm to which updates on it are cut."""

    parameters: array[float]  #: binary32; numpy.frombuffer(parameters, "float32") copies nothing
    clip: float | None = None
    round: int | None = None


def floats(vector: Any, want: int | None = None) -> bytes:
    """The little-endian binary32 numbers of a vector, in the order of its entries.

    A vector is a buffer of floats (array('f'), a memoryview, a numpy array of any shape) or
    an iterable of numbers. `want` is how many there must be. Fails with BadVector.
    """
    numbers = _array(vector)
    if not numbers:
        raise BadVector("the vector is empty", "send as many numbers as the task says")
    if want is not None:
        check_length(len(numbers), want)
    # A sum of finite binary32 numbers is finite in a double, and one that is not shows.
    if not math.isfinite(sum(numbers)):
        at = next(i for i, x in enumerate(numbers) if not math.isfinite(x))
        raise BadVector(
            f"number {at} of the vector is {numbers[at]}",
            "an update must be finite, and fit in 32 bits: nothing was sent",
        )
    if sys.byteorder == "big":
        numbers = array("f", numbers)
        numbers.byteswap()
    return numbers.tobytes()


def check_length(numbers: int, want: int) -> None:
    """Fails with BadVector where they differ."""
    if numbers != want:
        raise BadVector(
            f"the vector has {numbers} numbers, and {want} are wanted",
            "Agent.task(id).numbers says how many, for each person",
        )


def _array(vector: Any) -> array[float]:
    if isinstance(vector, str):
        raise BadVector("a text is no vector", "send floats")
    if isinstance(vector, array) and vector.typecode == "f":
        return vector
    try:
        view = memoryview(vector)
    except (TypeError, ValueError, BufferError):
        return _from_numbers(vector)
    with view:
        code = view.format.lstrip("@=<>!")
        if code not in ("e", "f", "d"):
            raise BadVector(
                f"the vector's numbers are of format {view.format!r}, which is no float",
                "send float32: bytes as memoryview(b).cast('f'), arrays by .astype('float32')",
            )
        data = view.tobytes()  # in the order of entries, wherever they lie
        count = len(data) // view.itemsize
        order = view.format[0] if view.format[0] in "<>!" else "="
    try:
        if code == "f" and _native(order):
            return array("f", data)
        return array("f", struct.unpack(f"{order}{count}{code}", data))
    except OverflowError as e:
        raise BadVector(f"a number does not fit in 32 bits: {e}", "scale the update") from None


def _native(order: str) -> bool:
    return order == "=" or order == ("<" if sys.byteorder == "little" else ">")


def _from_numbers(vector: Any) -> array[float]:
    if not isinstance(vector, Iterable):
        raise BadVector(f"a {type(vector).__name__} is no vector", "send a sequence of floats")
    try:
        return array("f", vector)
    except (TypeError, ValueError, OverflowError) as e:
        raise BadVector(f"the vector is no run of numbers: {e}", "flatten it to floats") from None


def read_floats(data: bytes) -> array[float]:
    """Numbers of little-endian binary32. Fails with MalformedAnswer."""
    if len(data) % 4:
        raise MalformedAnswer(f"{len(data)} bytes are no numbers of four bytes")
    numbers = array("f", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
