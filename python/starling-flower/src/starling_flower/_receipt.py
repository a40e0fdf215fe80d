"""What passes between `Private` and `mod` in Flower's messages, and nothing else does."""

from __future__ import annotations

from typing import Any

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from ._errors import WrapperMissing

#: The record that `Private` adds to each message.
RECORD = "starling"
METRICS = "metrics"
EXAMPLES = "num-examples"


def receipt() -> RecordDict:
    """The one answer of a client whose agent took its update, whatever its coin said.

    It has no arrays, so that a server without `Private` raises in place of averaging.
    """
    return RecordDict({METRICS: MetricRecord({EXAMPLES: 1})})


def is_receipt(content: RecordDict) -> bool:
    """Is it that, and no more?"""
    return (
        list(content) == [METRICS]
        and isinstance(record := content[METRICS], MetricRecord)
        and list(record.items()) == [(EXAMPLES, 1)]
        and type(record[EXAMPLES]) is int
    )


def asked(message: Message) -> dict[str, Any]:
    """What the server's `Private` says of the round."""
    record = message.content.get(RECORD) if message.has_content() else None
    if not isinstance(record, ConfigRecord):
        raise WrapperMissing(
            "the server's message names no round of a training",
            "wrap the server's strategy: Private(strategy, 'starling.toml')",
        )
    said = dict(record)
    for key, kind in (("task", str), ("round", int), ("mode", str)):
        if type(said.get(key)) is not kind:
            raise WrapperMissing(
                f"the server's message has no {key!r} of the round",
                "install the same starling-flower on both sides",
            )
    return said
