"""The operator's part: asks each node in each mode, and writes down all that comes."""

import json
import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Send all messages at once, wait for the replies, and keep them as JSON lines."""
    config = context.run_config
    while len(nodes := sorted(grid.get_node_ids())) < int(config["nodes"]):
        time.sleep(0.2)
    messages = []
    for node in nodes:
        for number, mode in enumerate(str(config["modes"]).split(",")):
            record = {
                "task": config["task"],
                "round": int(config["first-round"]) + number,
            }
            if mode == "othertask":
                record["task"] = "ff" * 32
            if mode == "noround":
                record["round"] = "1"
            content = RecordDict(
                {
                    "arrays": ArrayRecord([np.zeros(16, dtype=np.float32)]),
                    "starling": ConfigRecord(record),
                    "how": ConfigRecord({"mode": mode}),
                }
            )
            kind = "evaluate" if mode == "evaluate" else "train"
            messages.append(Message(content, node, kind, ttl=600.0, group_id=f"{node}/{mode}"))
    replies = []
    asked = list(grid.push_messages(messages))
    modes = dict(zip(asked, (one.metadata.group_id for one in messages), strict=True))
    end = time.monotonic() + 240
    waiting = set(asked)
    while waiting and time.monotonic() < end:
        time.sleep(0.3)
        came = list(grid.pull_messages(list(waiting)))
        waiting -= {reply.metadata.reply_to_message_id for reply in came}
        replies += came
    with open(str(config["out"]), "w", encoding="utf-8") as file:
        for reply in replies:
            node, mode = modes[reply.metadata.reply_to_message_id].split("/")
            meta = {k.lstrip("_"): v for k, v in vars(reply.metadata).items()}
            parts = [one.deflate().hex() for one in get_all_nested_objects(reply).values()]
            error = [reply.error.code, reply.error.reason] if reply.has_error() else None
            content = None if error else parts[:-1]
            line = {"node": int(node), "mode": mode, "metadata": meta, "parts": parts}
            file.write(json.dumps({**line, "error": error, "content": content}) + "\n")
