"""Arrays of Flower to vectors of Starling and back, in the order of their keys."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from ._errors import BadArrays, NotFinite

Vector = NDArray[np.float32]

#: Types that a mean of numbers makes sense of.
_FLOATS = ("float16", "float32", "float64")


def flatten(arrays: ArrayRecord) -> Vector:
    """All numbers of a record, one after the other, as binary32.

    Fails with BadArrays for what is no model: integer buffers, arrays without a dimension or
    without an entry, numbers that are none or infinite.
    """
    if not arrays:
        raise BadArrays("the record has no arrays", "send the model's parameters")
    parts: list[Vector] = []
    for key, array in arrays.items():
        if array.dtype not in _FLOATS:
            raise BadArrays(
                f"array {key!r} is of {array.dtype}, and only floats can be averaged",
                "leave counters and masks out of the record, as BatchNorm's num_batches_tracked; "
                "send bfloat16 as float32",
            )
        values = array.numpy()
        if values.dtype != np.dtype(array.dtype) or values.shape != tuple(array.shape):
            raise BadArrays(f"array {key!r} is not what it says of itself", "make it by Array(values)")
        if values.ndim == 0:
            raise BadArrays(
                f"array {key!r} has no dimension", "leave scalars out, or give them shape (1,)"
            )
        if values.size == 0:
            raise BadArrays(f"array {key!r} is empty", "leave it out of the record")
        with np.errstate(over="ignore"):
            flat = values.astype(np.float32).ravel()
        if not np.isfinite(flat).all():
            raise NotFinite(
                f"array {key!r} has numbers that are none or infinite",
                "training diverged: a smaller learning rate, or gradient clipping",
            )
        parts.append(flat)
    return np.concatenate(parts)


def rounded(arrays: ArrayRecord, parameters: Vector) -> ArrayRecord:
    """A record of the numbers that `flatten` made of it: in the layout of it, without the rest."""
    out: dict[str, Array] = {}
    at = 0
    for key, array in arrays.items():
        size = int(np.prod(array.shape))
        out[key] = Array(parameters[at : at + size].reshape(array.shape).astype(array.dtype))
        at += size
    return ArrayRecord(out)


def _layout(arrays: ArrayRecord) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(key, array.dtype, tuple(array.shape)) for key, array in arrays.items()]


def difference(before: ArrayRecord, after: ArrayRecord) -> Vector:
    """The model minus what it became: an update as FedAvg of a session has it."""
    if (was := _layout(before)) != (now := _layout(after)):
        for one, two in zip(was, now, strict=False):
            if one != two:
                raise BadArrays(
                    f"an update of {two[0]!r}, {two[1]} {two[2]}, where the model has {one[0]!r}, {one[1]} {one[2]}",
                    "return the arrays of the model that was sent: same keys, order, types and shapes",
                )
        raise BadArrays(
            f"{len(now)} arrays, where the model has {len(was)}",
            "return the arrays of the model that was sent",
        )
    out = flatten(before).astype(np.float64) - flatten(after).astype(np.float64)
    with np.errstate(over="ignore"):
        update = out.astype(np.float32)
    if not np.isfinite(update).all():
        raise NotFinite(
            "the update does not fit in 32 bits", "training diverged: a smaller learning rate"
        )
    return update


def moved(arrays: ArrayRecord, mean: Any) -> ArrayRecord:
    """The model minus the mean update, in the layout of the model."""
    step = np.asarray(mean, dtype=np.float64)
    have = sum(int(np.prod(a.shape)) for a in arrays.values())
    if step.shape != (have,):
        raise BadArrays(f"a mean of {step.size} numbers for a model of {have}")
    out: dict[str, Array] = {}
    at = 0
    for key, array in arrays.items():
        values = array.numpy()
        part = step[at : at + values.size].reshape(values.shape)
        with np.errstate(over="ignore"):
            after = (values.astype(np.float64) - part).astype(values.dtype)
        if not np.isfinite(after).all():
            raise BadArrays(
                f"the step makes numbers of array {key!r} infinite in {array.dtype}",
                "a smaller learning rate, or a model of float32",
            )
        out[key] = Array(after)
        at += values.size
    return ArrayRecord(out)
