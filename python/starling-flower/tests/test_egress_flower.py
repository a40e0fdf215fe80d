"""The filter between a real SuperLink and real SuperNodes.

One story is played for all tests: an app that hides its site's secret in every place of a
reply that it can write to, at a node behind a filter and at one without (the control: it
shows that the tests can fail). Then the SuperLink is restarted, and two nodes behind filters
train.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from egress_harness import TASK, Deployment, Ear, StandInAgent, deployment, until, where
from flwr.app import Message
from flwr.app.message.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fab_pb2 import GetFabRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    PullObjectRequest,
    PushObjectRequest,
)
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest, GetRunResponse
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from starling_flower._egress_outer import reply

SECRET, OTHER_SECRET, CONTROL = "s3cr3tA1", "s3cr3tB2", "c0ntr0lC"
MODES = ["content", "exception", "error", "metadata", "refused"]
NEVER = ["evaluate", "othertask", "noround"]
LAST = "speak"  # it takes messages that lie ready, so that none may come after it
HIDDEN = ["weights", "metrics", "config", "keys", "records", "exception", "error"]
HIDDEN += ["metadata", "speak", "evaluate"]
REFUSED = MODES.index("refused")
SECOND = 100  # the first round after the restart: accepted; the one after it has no agent
ERROR = [6, "starling: no contribution"]


@dataclass
class Story:
    """Story is what was seen."""

    made: Deployment
    filtered: Ear
    other: Ear
    control: Ear
    asked: list[tuple[str, int]]
    first: list[dict[str, Any]]
    second: list[dict[str, Any]]
    at_link: dict[str, bytes]
    code: int

    def ours(self) -> list[dict[str, Any]]:
        """Give the replies of the first run that came through the filter."""
        node = next(one["node"] for one in self.first if one["error"] == ERROR)
        return [one for one in self.first if one["node"] == node]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Play the story; all of it takes 40 s of processor time, most of it Flower's starts."""
    root = tmp_path_factory.mktemp("egress")
    with deployment(root) as made:
        made.start_link()
        agent = StandInAgent(root / "one.sock", lambda round_: round_ != REFUSED)

        def once(_round: int) -> bool:
            os.unlink(root / "two.sock")
            return True

        filtered, other, control = made.ear(), made.ear(), made.ear()
        address = made.start_filter("filter", filtered, agent.path)
        made.start_node("node", address, SECRET)
        made.start_node("control", control.address, CONTROL)
        first = made.run(2, [*MODES, *NEVER, LAST])
        at_link = made.at_link()

        made.stop("control")
        made.stop("link")
        made.start_link()
        short_lived = StandInAgent(root / "two.sock", once)
        address = made.start_filter("other-filter", other, short_lived.path)
        made.start_node("other-node", address, OTHER_SECRET)
        second = made.run(2, ["content", "exception"], SECOND)
        at_link.update({f"{name} (2)": data for name, data in made.at_link().items()})
        asked = agent.asked
        code = made.stop("filter")
        until("the filter's good-bye", lambda: b"/unregister-node" in filtered.bytes())
        yield Story(made, filtered, other, control, asked, first, second, at_link, code)
        agent.close()
        short_lived.close()


@pytest.mark.parametrize("hidden", HIDDEN)
def test_secret_gets_out_without_filter(story: Story, hidden: str) -> None:
    """The control: what the filter is to stop does get to the SuperLink without it."""
    marker = f"{CONTROL}_{hidden}"
    assert where(marker, story.control.bytes())
    if hidden in ("evaluate", "weights", "metrics", "config", "keys", "records"):
        assert where(marker, _replies(story.first))
    else:
        assert any(where(marker, data) for data in story.at_link.values())


def test_number_gets_out_without_filter(story: Story) -> None:
    """The control of the search for numbers: the app put one into uint64 fields."""
    assert "varint" in where(CONTROL, story.control.bytes())


def test_secret_stays(story: Story) -> None:
    """Neither what was sent nor what the SuperLink and its app wrote has the secret."""
    for secret, ear in ((SECRET, story.filtered), (OTHER_SECRET, story.other)):
        assert len(ear.bytes()) > 10_000
        assert where(secret, ear.bytes()) == []
        for name, data in story.at_link.items():
            assert where(secret, data) == [], name
        # The app did run, and did have the secret: its site's own log shows it.
    assert where(f"{SECRET}_exception", story.made.log("node").encode())
    assert where(f"{SECRET}_speak", story.made.log("node").encode())


def test_server_app_gets_constants(story: Story) -> None:
    """Each reply is the receipt or the error, as the agent said, whatever the app sent."""
    ours = {one["mode"]: one for one in story.ours()}
    assert set(ours) == {*MODES, *NEVER, LAST}
    for mode in ("content", "exception", "error", "metadata", LAST):
        assert ours[mode]["error"] is None
        assert ours[mode]["content"] == ours["content"]["content"]
    for mode in ("refused", *NEVER):
        assert ours[mode]["error"] == ERROR
    for mode, one in ours.items():
        assert one["metadata"]["group_id"].endswith(f"/{mode}")
        assert one["metadata"]["created_at"] % 0.5 == 0


def test_agent_is_asked_once_a_round(story: Story) -> None:
    """The agent is asked for rounds that the app answered, and for no others."""
    rounds = [*range(len(MODES)), len(MODES) + len(NEVER), SECOND, SECOND + 1]
    assert sorted(round_ for _, round_ in story.asked) == rounds
    assert {question for question, _ in story.asked} == {f"/v1/contributions {TASK}"}


def test_receipts_of_two_nodes_are_the_same(story: Story) -> None:
    """After a restart of the SuperLink two nodes send the same bytes, but for the ids."""
    receipts = [one for one in story.second if one["mode"] == "content"]
    assert len({one["node"] for one in receipts}) == 2
    (first,) = (one for one in story.ours() if one["mode"] == "content")
    assert [one["content"] for one in receipts] == [first["content"], first["content"]]
    for one in receipts:
        assert one["error"] is None
        _only(one["metadata"], receipts[0]["metadata"])


def test_agent_away(story: Story) -> None:
    """Without an agent the reply is the error, and the log says what to do."""
    errors = [one for one in story.second if one["error"]]
    assert [(one["mode"], one["error"]) for one in errors] == [("exception", ERROR)]
    (line,) = [one for one in story.made.events("other-filter") if one["event"] == "agent"]
    assert line["round"] == SECOND + 1
    assert "starling serve agent agent.toml" in line["hint"]


def test_filter_says_goodbye(story: Story) -> None:
    """SIGTERM ends the filter in order."""
    assert story.code == 0
    assert story.made.events("filter")[-1]["event"] == "end"


@pytest.mark.parametrize("which", ["filtered", "other"])
def test_every_byte_is_explained(story: Story, which: str) -> None:
    """All that was sent follows from what was pulled, one bit a message, and the grid."""
    requests = getattr(story, which).requests()
    node = Node()
    messages: dict[str, Message] = {}
    known: set[str] = set()
    runs: dict[int, str] = {}
    for one in requests:  # what the SuperLink said
        if one.path.endswith("/activate-node"):
            node.node_id = ActivateNodeResponse.FromString(one.answer).node_id
        if one.path.endswith("/pull-messages"):
            pulled = PullMessagesResponse.FromString(one.answer)
            for proto, tree in zip(pulled.messages_list, pulled.message_object_trees, strict=True):
                messages[proto.metadata.message_id] = message_from_proto(proto)
                known |= {part.object_id for part in iterate_object_tree(tree)}
        if one.path.endswith("/get-run") and one.status == 200:
            run = GetRunResponse.FromString(one.answer).run
            runs[run.run_id] = run.fab_hash
    assert node.node_id and runs
    assert len(messages) == (11 if which == "filtered" else 2)
    objects: dict[str, bytes] = {}
    sessions: set[str] = set()
    replied: list[str] = []
    keys: set[bytes] = set()
    fixed: set[tuple[tuple[str, str], ...]] = set()
    for one in sorted(requests, key=lambda one: one.path.endswith("/push-object")):
        route, body = one.path.rpartition("/")[2], one.body
        varying = ("x-flwr-timestamp", "content-length")
        fixed.add(
            tuple(
                (name, value)
                for name, value in sorted(one.headers.items())
                if name not in varying and "signature" not in name and "timestamp" not in name
            )
        )
        if route == "register-node":
            key = RegisterNodeFleetRequest.FromString(body).public_key
            keys.add(key)
            want = {_bytes(RegisterNodeFleetRequest(public_key=key))}
        elif route == "activate-node":
            key = ActivateNodeRequest.FromString(body).public_key
            keys.add(key)
            want = {_bytes(ActivateNodeRequest(public_key=key, heartbeat_interval=30))}
        elif route == "deactivate-node":
            want = {_bytes(DeactivateNodeRequest(node_id=node.node_id))}
        elif route == "unregister-node":
            want = {_bytes(UnregisterNodeFleetRequest(node_id=node.node_id))}
        elif route == "send-node-heartbeat":
            want = {_bytes(SendNodeHeartbeatRequest(node=node, heartbeat_interval=30))}
        elif route == "pull-messages":
            want = {_bytes(PullMessagesRequest(node=node))}
        elif route == "get-run":
            want = {_bytes(GetRunRequest(node=node, run_id=run)) for run in runs}
        elif route == "get-fab":
            want = {
                _bytes(GetFabRequest(node=node, hash_str=hash_, run_id=run))
                for run, hash_ in runs.items()
            }
        elif route == "pull-object":
            want = {
                _bytes(PullObjectRequest(node=node, run_id=run, object_id=part))
                for run in runs
                for part in known
            }
        elif route == "confirm-message-received":
            want = {
                _bytes(
                    ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=message_id)
                )
                for run in runs
                for message_id in messages
            }
        elif route == "push-messages":
            metadata = PushMessagesRequest.FromString(body).messages_list[0].metadata
            replied.append(metadata.reply_to_message_id)
            assert metadata.created_at % 0.5 == 0
            want = set()
            for accepted in (False, True):
                message = messages[metadata.reply_to_message_id]
                made = reply(message, accepted, metadata.created_at)
                parts = get_all_nested_objects(made)
                objects.update({part: item.deflate() for part, item in parts.items()})
                want.add(
                    _bytes(
                        PushMessagesRequest(
                            node=node,
                            messages_list=[message_to_proto(_bare(made))],
                            message_object_trees=[get_object_tree(made)],
                            clientapp_runtime_list=[0.0],
                        )
                    )
                )
            sessions.add(PushMessagesResponse.FromString(one.answer).session_id)
        else:
            assert route == "push-object"
            part = PushObjectRequest.FromString(body).object_id
            want = {
                _bytes(
                    PushObjectRequest(
                        node=node,
                        run_id=run,
                        object_id=part,
                        object_content=objects[part],
                        session_id=session,
                    )
                )
                for run in runs
                for session in sessions
            }
        assert body in want, route
    assert sorted(replied) == sorted(messages)
    assert len(keys) == 1
    assert len(fixed) == 1, fixed


def _bare(message: Message) -> Message:
    return remove_content_from_message(message) if message.has_content() else message


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def _replies(replies: list[dict[str, Any]]) -> bytes:
    return b"\n".join(bytes.fromhex(part) for one in replies for part in one["parts"])


def _only(metadata: dict[str, Any], other: dict[str, Any]) -> None:
    names = {name for name in metadata if metadata[name] != other[name]}
    ids = {"message_id", "src_node_id", "reply_to_message_id", "group_id"}
    assert names <= ids | {"created_at", "ttl"}
