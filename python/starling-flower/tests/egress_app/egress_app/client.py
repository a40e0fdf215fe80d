"""The site's part: each mode hides the secret in another place of what it sends."""

import http.client
import struct

import numpy as np
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2

app = ClientApp()

ROUTES = {
    "register-node": fleet_pb2.RegisterNodeFleetRequest,
    "activate-node": fleet_pb2.ActivateNodeRequest,
    "deactivate-node": fleet_pb2.DeactivateNodeRequest,
    "unregister-node": fleet_pb2.UnregisterNodeFleetRequest,
    "send-node-heartbeat": heartbeat_pb2.SendNodeHeartbeatRequest,
    "pull-messages": fleet_pb2.PullMessagesRequest,
    "push-messages": fleet_pb2.PushMessagesRequest,
    "get-run": run_pb2.GetRunRequest,
    "get-fab": fab_pb2.GetFabRequest,
    "push-object": message_pb2.PushObjectRequest,
    "pull-object": message_pb2.PullObjectRequest,
    "confirm-message-received": message_pb2.ConfirmMessageReceivedRequest,
}


def fill(message, marker, depth=0):
    """Put the marker into every field, as text, bytes or a number."""
    number = int.from_bytes(marker.encode()[:8], "little")
    values = {
        "str": marker,
        "bytes": marker.encode(),
        "int": number & 0x7FFFFFFF,
        "float": struct.unpack("<d", marker.encode()[:8])[0],
    }
    for field in message.DESCRIPTOR.fields:
        item = getattr(message, field.name)
        many = field.is_repeated if hasattr(field, "is_repeated") else field.label == 3
        if field.message_type is not None:
            if depth < 4 and not field.message_type.GetOptions().map_entry:
                fill(item.add() if many else item, marker, depth + 1)
            continue
        kind = {9: "str", 12: "bytes", 1: "float", 2: "float"}.get(field.type, "int")
        value = values[kind]
        if field.type in (4, 6):  # uint64, fixed64
            value = number
        if field.type in (8, 14, 2):  # bool, enum, float
            continue
        if many:
            item.append(value)
        else:
            setattr(message, field.name, value)


def speak(address, marker):
    """Talk to the Fleet API itself, with the marker in every field, path and header."""
    statuses = []

    def post(path, body):
        conn = http.client.HTTPConnection(address, timeout=20)
        headers = {"Content-Type": "application/protobuf", "X-Note": marker}
        try:
            conn.request("POST", path, body=body, headers=headers)
            statuses.append((path, conn.getresponse().status))
        except OSError as err:
            statuses.append((path, type(err).__name__))
        finally:
            conn.close()

    for route, kind in ROUTES.items():
        message = kind()
        fill(message, marker)
        post(f"/v1/fleet/{route}", message.SerializeToString())
        post(f"/v1/fleet/{route}?{marker}", message.SerializeToString())
    post(f"/v1/fleet/{marker}", b"")
    post("/v1/fleet/pull-messages", marker.encode())
    post("/v1/fleet/push-object", marker.encode() * 100_000)
    print("spoke", statuses)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Answer in the way that the server asked for."""
    mode = str(message.content["how"]["mode"])
    secret = context.node_config["secret"]
    marker = f"{secret}_{mode}"
    metrics = MetricRecord({"num-examples": 1})
    if mode == "content":
        weights = f"{secret}_weights".ljust(24, "_").encode()
        losses = struct.unpack("<3d", f"{secret}_metrics".ljust(24, "_").encode())
        key = f"{secret}_keys"
        content = RecordDict(
            {
                "arrays": ArrayRecord([np.frombuffer(weights, dtype=np.float32)]),
                "metrics": MetricRecord({"num-examples": 1, "loss": list(losses), key: 1}),
                "note": ConfigRecord({"note": f"{secret}_config"}),
                f"{secret}_records": ConfigRecord({"a": 1}),
            }
        )
        return Message(content, reply_to=message)
    if mode == "exception":
        raise RuntimeError(marker)
    if mode == "error":
        return Message(Error(7, marker), reply_to=message)
    reply = Message(RecordDict({"metrics": metrics}), reply_to=message)
    if mode == "metadata":
        reply.metadata.group_id = marker
        reply.metadata.message_type = f"train.{marker}"
    if mode == "speak":
        speak(str(context.node_config["superlink"]), marker)
    return reply


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Answer what the filter does not hand in."""
    marker = f"{context.node_config['secret']}_evaluate"
    content = RecordDict({"note": ConfigRecord({"note": marker})})
    return Message(content, reply_to=message)
