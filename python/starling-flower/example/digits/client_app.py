"""The client app: each image of a site is of one person, whose gradient is one update."""

from __future__ import annotations

import numpy as np
import starling_flower
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits import task

app = ClientApp()


def update(message: Message, context: Context) -> dict[str, ArrayRecord]:
    """One record for each person: what the model becomes by one step along their gradient."""
    weights = message.content["arrays"]["weights"].numpy()
    number, of = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    x, y = task.site(number, of)
    return {
        f"person-{i}": ArrayRecord({"weights": Array((weights - g).astype(np.float32))})
        for i, g in enumerate(task.gradients(weights, x, y))
    }


@app.train(mods=[starling_flower.mod])
def train(message: Message, context: Context) -> Message:
    """Hand in an update of each person; the metrics go nowhere."""
    persons = update(message, context)
    metrics = MetricRecord({"num-examples": len(persons)})
    return Message(RecordDict({**persons, "metrics": metrics}), reply_to=message)
