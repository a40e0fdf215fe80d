"""The parts of the filter: what is due and when, what the inner side takes, the agent."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from egress_harness import StandInAgent, free_port
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message.message import make_message, remove_content_from_message
from flwr.app.metadata import Metadata
from flwr.proto.fab_pb2 import GetFabRequest, GetFabResponse
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import Metadata as MetadataProto
from flwr.proto.run_pb2 import GetRunRequest, GetRunResponse
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
)
from flwr.supercore.run import Run, RunNotRunningException
from starling_flower import _egress_desk, _egress_inner, _egress_outer, egress
from starling_flower._egress_agent import Agent, AgentError
from starling_flower._egress_desk import Desk
from starling_flower._egress_inner import Fleet, Inner
from starling_flower._egress_outer import Outer

TASK = "5a" * 32
NODE = 7
RUN = 11
START = 1_900_000_000.25
TTL = 3600.0
POST = "POST /v1/fleet/get-run HTTP/1.1\r\nContent-Type: application/protobuf\r\n"


class FakeClock:
    """FakeClock goes on when it is waited for."""

    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        return self.time

    def wait_until(self, when: float) -> None:
        self.time = max(self.time, when)


@dataclass
class FakeLink:
    """FakeLink is a SuperLink of one run, as Flower's callbacks show it."""

    clock: FakeClock
    waiting: list[tuple[Message, ObjectTree]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)
    replies: list[tuple[float, Message]] = field(default_factory=list)
    pushed: dict[str, bytes] = field(default_factory=dict)
    fail: BaseException | None = None

    def ask(
        self,
        round_: Any = 0,
        *,
        kind: str = "train",
        task: str = TASK,
        ttl: float = TTL,
        record: dict[str, Any] | None = None,
    ) -> str:
        """Have a message wait for the node; gives its id."""
        record = {"task": task, "round": round_} if record is None else record
        arrays = ArrayRecord([np.zeros(8, dtype=np.float32)])
        content = RecordDict({"arrays": arrays, "starling": ConfigRecord(record)})
        metadata = Metadata(
            run_id=RUN,
            message_id="",
            src_node_id=1,
            dst_node_id=NODE,
            reply_to_message_id="",
            group_id=str(self.clock.time),
            created_at=self.clock.time + len(self.waiting) / 1024,
            ttl=ttl,
            message_type=kind,
        )
        metadata.delivered_at = ""
        message = make_message(metadata, content)
        message.metadata.__dict__["_message_id"] = message.object_id
        parts = get_all_nested_objects(message)
        self.objects.update({part: item.deflate() for part, item in parts.items()})
        bare = remove_content_from_message(message)
        self.waiting.append((bare, get_object_tree(message)))
        return message.metadata.message_id

    def receive(self) -> tuple[Message, ObjectTree] | None:
        if self.fail:
            raise self.fail
        return self.waiting.pop(0) if self.waiting else None

    def send(self, message: Message, tree: ObjectTree, clientapp_runtime: float) -> tuple[set[str], str]:
        if self.fail:
            raise self.fail
        assert clientapp_runtime == 0.0
        self.replies.append((self.clock.time, message))
        return {tree.object_id, *(part.object_id for part in tree.children)}, "session"

    def get_run(self, run_id: int) -> Run:
        run = Run.create_empty(run_id)
        run.fab_hash = "ab" * 32
        return run

    def get_fab(self, hash_: str, _run_id: int) -> Fab:
        return Fab(hash_, b"fab", {})

    def pull_object(self, _run_id: int, object_id: str) -> bytes:
        return self.objects[object_id]

    def push_object(self, _run_id: int, session: str, object_id: str, content: bytes) -> None:
        assert session == "session"
        self.pushed[object_id] = content

    def confirm(self, _run_id: int, _message_id: str) -> None:
        pass


class Rig:
    """Rig is a filter with a fake SuperLink outside, and a port inside."""

    def __init__(self, memory: int = 1 << 20) -> None:
        self.clock = FakeClock()
        self.link = FakeLink(self.clock)
        self.desk = Desk(memory)
        self.outer = Outer(self.desk, TASK, 1.0, self.clock)
        self.inner = Inner(("127.0.0.1", 0), Fleet(self.desk))
        self.port = int(self.inner.server_address[1])
        self.desk.open(NODE)
        threading.Thread(target=self.inner.serve_forever, args=(0.01,), daemon=True).start()

    def step(self) -> None:
        self.outer.step(self.link)

    def decide(self, accepted: bool) -> int:
        """Answer the next question to the agent; gives the round."""
        round_ = self.desk.next_question()
        self.desk.decide(round_, accepted)
        return round_

    def asked(self) -> int:
        return self.desk._questions.qsize()

    def post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
        """Send a request as Flower's client does; gives status and answer."""
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            conn.request(
                "POST",
                path,
                body=body,
                headers=headers or {"Content-Type": "application/protobuf"},
            )
            response = conn.getresponse()
            return response.status, response.read()
        finally:
            conn.close()

    def fleet(self, route: str, request: Any, kind: Callable[[], Any]) -> Any:
        """Send a Fleet request that is served, and read the answer."""
        status, body = self.post(f"/v1/fleet/{route}", request.SerializeToString())
        assert status == 200, body
        answer = kind()
        answer.ParseFromString(body)
        return answer

    def pull(self) -> str | None:
        """Pull a message as a SuperNode; gives its id."""
        answer = self.fleet("pull-messages", PullMessagesRequest(), PullMessagesResponse)
        return answer.messages_list[0].metadata.message_id if answer.messages_list else None

    def answer(self, message_id: str) -> PushMessagesResponse:
        """Answer a message as a SuperNode."""
        metadata = MetadataProto(reply_to_message_id=message_id)
        request = PushMessagesRequest(messages_list=[MessageProto(metadata=metadata)])
        answer = self.fleet("push-messages", request, PushMessagesResponse)
        assert isinstance(answer, PushMessagesResponse)
        return answer

    def replies(self) -> list[tuple[str, bool]]:
        """Give the replies that left: to which message, and whether it is the receipt."""
        return [(one.metadata.reply_to_message_id, not one.has_error()) for _, one in self.sent]

    @property
    def sent(self) -> list[tuple[float, Message]]:
        return self.link.replies


@pytest.fixture(name="rig")
def _rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.inner.shutdown()
    rig.inner.server_close()


@pytest.mark.parametrize("accepted", [True, False])
def test_reply_leaves_on_the_grid(rig: Rig, accepted: bool) -> None:
    """A reply leaves at a multiple of the grid, says that time, and is constant."""
    message_id = rig.link.ask(3)
    rig.step()
    assert rig.clock.time == 1_900_000_001
    assert rig.pull() == message_id
    assert not rig.answer(message_id).objects_to_push
    assert rig.decide(accepted) == 3
    rig.clock.time += 0.4
    rig.step()
    ((when, reply),) = rig.sent
    assert (when, reply.metadata.created_at) == (1_900_000_002, 1_900_000_002)
    assert reply.metadata.created_at + reply.metadata.ttl == START + TTL
    if accepted:
        assert {name: dict(part) for name, part in reply.content.items()} == {
            "metrics": {"num-examples": 1}
        }
        assert len(rig.link.pushed) == 2
    else:
        assert (reply.error.code, reply.error.reason) == (
            6,
            "starling: no contribution",
        )


def test_nothing_leaves_before_agent_answers(rig: Rig) -> None:
    """That the app answered is not enough."""
    message_id = rig.link.ask()
    rig.step()
    rig.pull()
    rig.answer(message_id)
    rig.step()
    assert rig.sent == []
    rig.decide(True)
    rig.step()
    assert rig.replies() == [(message_id, True)]


def test_message_expires(rig: Rig) -> None:
    """After its time to live nothing is sent, whoever answered what, and it is forgotten."""
    answered = rig.link.ask(1, ttl=10)
    rig.link.ask(2, ttl=10)
    rig.step()
    rig.pull()
    rig.clock.time += 9.5
    rig.answer(answered)
    rig.decide(True)
    rig.step()
    assert rig.sent == []
    assert rig.pull() is None
    assert rig.desk.room() == (1 << 20) - len(b"fab")
    rig.link.ask(3, kind="evaluate", ttl=0.5)
    rig.step()
    rig.step()
    assert rig.sent == []


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "evaluate"},
        {"kind": "query"},
        {"kind": "query.train"},
        {"task": "ff" * 32},
        {"task": ""},
        {"round_": "0"},
        {"round_": 0.0},
        {"round_": True},
        {"round_": -1},
        {"round_": [0]},
        {"record": {}},
    ],
)
def test_message_is_not_handed_in(rig: Rig, asked: dict[str, Any]) -> None:
    """What asks for something else than a round of the task gets the error."""
    message_id = rig.link.ask(**asked)
    rig.step()
    assert rig.pull() is None
    rig.answer(message_id)
    assert rig.asked() == 0
    rig.step()
    assert rig.replies() == [(message_id, False)]


def test_message_without_record(rig: Rig) -> None:
    """Malformed parts are refused; the filter goes on."""
    rig.link.ask()
    rig.link.objects = dict.fromkeys(rig.link.objects, b"ConfigRecord,x")
    rig.link.ask(1)
    del rig.link.objects[rig.link.waiting[1][1].children[0].children[1].object_id]
    good = rig.link.ask(2)
    for _ in range(2):
        rig.step()
    assert [accepted for _, accepted in rig.replies()] == [False, False]
    assert rig.pull() == good


def test_round_is_decided_once(rig: Rig) -> None:
    """Messages of one round get one answer, and the agent is asked once."""
    first, second, third = (rig.link.ask(5) for _ in range(3))
    rig.step()
    assert [rig.pull(), rig.pull()] == [first, second]
    rig.answer(second)
    rig.decide(True)
    rig.answer(first)
    rig.desk.decide(5, False)
    later = rig.link.ask(5)
    rig.step()
    rig.step()
    assert rig.pull() is None
    assert rig.replies() == [(one, True) for one in (first, second, third, later)]


def test_replies_are_in_the_order_of_pulling(rig: Rig) -> None:
    """The app does not choose the order."""
    ids = [rig.link.ask(round_) for round_ in range(4)]
    rig.step()
    assert [rig.pull() for _ in ids] == ids
    for message_id in reversed(ids):
        rig.answer(message_id)
        rig.decide(True)
    rig.step()
    assert rig.replies() == [(one, True) for one in ids]


def test_rounds_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old rounds are forgotten, and not handed in again."""
    monkeypatch.setattr(_egress_desk, "ROUNDS", 2)
    for round_ in range(4):
        rig.desk.decide(round_, True)
    assert [rig.desk.decided(round_) for round_ in range(5)] == [
        False,
        False,
        True,
        True,
        None,
    ]


def test_messages_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit messages get the error, and there is no waiting for the inner side."""
    monkeypatch.setattr(_egress_desk, "MESSAGES", 2)
    ids = [rig.link.ask(round_) for round_ in range(3)]
    rig.step()
    rig.step()
    assert rig.replies() == [(ids[2], False)]


def test_memory_is_bounded() -> None:
    """A message that does not fit gets the error; one that fits after it does not."""
    rig = Rig(memory=2000)
    ids = [rig.link.ask(round_) for round_ in range(4)]
    rig.step()
    rig.step()
    refused = [message_id for message_id, accepted in rig.replies() if not accepted]
    assert refused and ids[0] not in refused
    assert rig.pull() == ids[0]
    rig.fleet(
        "confirm-message-received",
        ConfirmMessageReceivedRequest(message_object_id=ids[0]),
        PushObjectResponse,
    )
    rig.link.ask(9)
    rig.step()
    rig.step()
    assert len(rig.sent) == len(refused)
    rig.inner.shutdown()
    rig.inner.server_close()


def test_runs_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run longest unused makes place; one with a message does not."""
    monkeypatch.setattr(_egress_desk, "RUNS", 1)
    rig.link.ask()
    rig.step()
    rig.desk.keep_run(GetRunResponse().run.__class__(run_id=99), GetFabResponse().fab)
    assert (rig.desk.knows_run(RUN), rig.desk.knows_run(99)) == (True, True)


@pytest.mark.parametrize("fail", [RuntimeError("x"), RunNotRunningException()])
def test_superlink_fails(rig: Rig, fail: BaseException) -> None:
    """The filter goes on when the SuperLink answers errors, or the run ends."""
    message_id = rig.link.ask()
    rig.step()
    rig.pull()
    rig.answer(message_id)
    rig.decide(True)
    rig.link.fail = fail
    rig.step()
    rig.link.fail = None
    later = rig.link.ask(1)
    rig.step()
    assert rig.pull() == later


def test_supernode_begins_again(rig: Rig) -> None:
    """What the SuperNode had when it ended is decided by the agent."""
    message_id = rig.link.ask()
    rig.step()
    rig.pull()
    answer = rig.fleet("activate-node", ActivateNodeRequest(), ActivateNodeResponse)
    assert answer.node_id == NODE
    rig.decide(True)
    rig.step()
    assert rig.replies() == [(message_id, True)]


def test_inner_serves_from_what_was_pulled(rig: Rig) -> None:
    """A SuperNode gets message, parts, run and app; and of others, nothing."""
    message_id = rig.link.ask()
    part = next(iter(rig.link.objects))
    waiting = rig.link.waiting[0][1]

    def pull_object(object_id: str, run_id: int = RUN) -> Any:
        request = PullObjectRequest(run_id=run_id, object_id=object_id)
        return rig.fleet("pull-object", request, PullObjectResponse)

    rig.step()
    assert not pull_object(part).object_found  # before it is handed in
    pulled = rig.fleet("pull-messages", PullMessagesRequest(), PullMessagesResponse)
    assert pulled.message_object_trees[0] == waiting
    for name, content in rig.link.objects.items():
        assert pull_object(name).object_content == content
    assert not pull_object(part, RUN + 1).object_found
    assert not pull_object("ab" * 32).object_found
    run = rig.fleet("get-run", GetRunRequest(run_id=RUN), GetRunResponse).run
    assert run.run_id == RUN
    request = GetFabRequest(run_id=RUN, hash_str=run.fab_hash)
    assert rig.fleet("get-fab", request, GetFabResponse).fab.content == b"fab"
    request = GetFabRequest(run_id=RUN, hash_str="00")
    assert rig.post("/v1/fleet/get-fab", request.SerializeToString())[0] == 404
    request = GetRunRequest(run_id=RUN + 1)
    assert rig.post("/v1/fleet/get-run", request.SerializeToString())[0] == 404
    stored = rig.fleet("push-object", PushObjectRequest(object_id=part), PushObjectResponse)
    assert not stored.stored
    confirm = ConfirmMessageReceivedRequest(message_object_id=message_id)
    rig.fleet("confirm-message-received", confirm, PushObjectResponse)
    assert not pull_object(part).object_found


def test_answers_to_other_messages_count_for_nothing(rig: Rig) -> None:
    """A message has to be handed in before it can be answered."""
    message_id = rig.link.ask()
    rig.step()
    for name in (message_id, "", "ab" * 32):
        assert rig.answer(name) == PushMessagesResponse()
    assert rig.asked() == 0


@pytest.mark.parametrize(
    ("path", "body", "headers", "want"),
    [
        ("/", b"", None, (404, "not_found")),
        ("/v1/fleet", b"", None, (404, "not_found")),
        ("/v1/fleet/", b"", None, (404, "not_found")),
        ("/v1/fleet/pull-messages/", b"", None, (404, "not_found")),
        ("/v1/fleet/pull-messages?a=b", b"", None, (404, "not_found")),
        ("/v1/control/start-run", b"", None, (404, "not_found")),
        ("/v1/fleet/../fleet/get-run", b"", None, (404, "not_found")),
        ("/v1/fleet/push-messages", b"\xff\xff\xff", None, (400, "malformed")),
        ("/v1/fleet/push-messages", b"\x12\x05\x0a", None, (400, "malformed")),
        (
            "/v1/fleet/push-messages",
            b"\x1a\x80\x80\x04" * 200,
            None,
            (400, "malformed"),
        ),
        ("/v1/fleet/pull-object", b"\xff" * (64 << 10), None, (400, "malformed")),
        (
            "/v1/fleet/pull-messages",
            b"",
            {"Content-Type": "text/plain"},
            (415, "media_type"),
        ),
        (
            "/v1/fleet/pull-messages",
            b"0\r\n\r\n",
            {"Content-Type": "application/protobuf", "Transfer-Encoding": "chunked"},
            (411, "length"),
        ),
    ],
)
def test_malformed_requests(
    rig: Rig,
    path: str,
    body: bytes,
    headers: dict[str, str] | None,
    want: tuple[int, str],
) -> None:
    """Nonsense gets a typed error, and changes nothing."""
    message_id = rig.link.ask()
    rig.step()
    status, answer = rig.post(path, body, headers)
    assert (status, json.loads(answer)["error"]) == want
    assert rig.pull() == message_id


@pytest.mark.parametrize(
    ("route", "length"),
    [
        ("pull-object", _egress_inner.BODY_BYTES + 1),
        ("push-object", 1 << 40),
        ("push-messages", _egress_inner.PUSH_BYTES + 1),
    ],
)
def test_long_bodies_are_not_read(rig: Rig, route: str, length: int) -> None:
    """A body that is too long is refused by its length alone."""
    head = f"POST /v1/fleet/{route} HTTP/1.1\r\nContent-Type: application/protobuf\r\n"
    answer = _raw(rig.port, head + f"Content-Length: {length}\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"too_long"' in answer


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("GARBAGE\r\n\r\n", 400),
        ("GET /v1/fleet/get-run HTTP/1.1\r\n\r\n", 405),
        ("BREW /v1/fleet/get-run HTTP/1.1\r\n\r\n", 501),
        ("POST /v1/fleet/get-run HTTP/1.1\r\nX: " + "a" * 70_000 + "\r\n\r\n", 431),
        ("POST /" + "a" * 70_000 + " HTTP/1.1\r\n\r\n", 414),
        ("POST /v1/fleet/get-run HTTP/1.1\r\n" + "X: a\r\n" * 200 + "\r\n", 431),
        (
            POST + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
            411,
        ),
        (
            POST + "Content-Length: -1\r\n\r\n",
            400,
        ),
    ],
)
def test_what_is_no_request(rig: Rig, text: str, status: int) -> None:
    """What is no HTTP, or too much of it, ends its connection."""
    assert f"HTTP/1.1 {status} ".encode() in _raw(rig.port, text)[:20]
    assert rig.pull() is None


def test_connections_are_bounded(rig: Rig) -> None:
    """Above the limit a connection is closed; a place that is given back is used."""
    conns = [socket.create_connection(("127.0.0.1", rig.port)) for _ in range(64)]
    with socket.create_connection(("127.0.0.1", rig.port)) as one_more:
        one_more.settimeout(10)
        assert one_more.recv(1) == b""
    for conn in conns:
        conn.close()
    end = time.monotonic() + 60
    while True:
        try:
            assert rig.pull() is None
            break
        except (ConnectionError, http.client.HTTPException):
            assert time.monotonic() < end


def test_supernode_waits_for_superlink() -> None:
    """Before the SuperLink gave an id requests get 503, which Flower tries again."""
    with pytest.raises(_egress_inner.RequestError) as caught:
        Fleet(Desk(1)).serve("/v1/fleet/pull-messages", b"")
    assert caught.value.status == 503


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b'HTTP/1.0 200 OK\r\n\r\n{"accepted": 1}',
        b'HTTP/1.0 200 OK\r\n\r\n{"accepted": "true"}',
        b"HTTP/1.0 200 OK\r\n\r\n[true]",
        b"HTTP/1.0 200 OK\r\n\r\n" + b"[" * 10_000,
        b'HTTP/1.0 404 Not Found\r\n\r\n{"accepted": true}',
        b'HTTP/1.0 404 Not Found\r\n\r\n{"error": "not_found"}',
        b'HTTP/1.0 404 Not Found\r\n\r\n{"error": "S3CRET\\n"}',
        b'HTTP/1.0 200 OK\r\nContent-Length: x\r\n\r\n{"accepted": tru',
        b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 20_000 + b'{"accepted": true}',
    ],
)
def test_agent_that_answers_nonsense(tmp_path: Path, answer: bytes) -> None:
    """Whatever is not exactly the answer is none, and its text is not repeated."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()

        def serve() -> None:
            conn, _ = server.accept()
            with conn:
                conn.recv(4096)
                with contextlib.suppress(OSError):
                    conn.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(AgentError) as caught:
            Agent(str(tmp_path / "s"), TASK).contributed(1)
        thread.join()
        assert caught.value.hint
        assert "S3CRET" not in caught.value.problem


def test_agent_that_says_nothing(tmp_path: Path) -> None:
    """The question has a deadline."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()
        with pytest.raises(AgentError, match="did not answer"):
            Agent(str(tmp_path / "s"), TASK, seconds=0.05).contributed(1)


def test_agent_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No socket: the round is not contributed to, and the log says what to do."""
    desk = Desk(1)
    done = threading.Event()

    class Once(Desk):
        def next_question(self) -> int:
            if desk.decided(4) is not None:
                done.set()
                threading.Event().wait()
            return 4

        def decide(self, round_: int, accepted: bool) -> None:
            desk.decide(round_, accepted)

    monkeypatch.setattr(logging.getLogger("starling.egress"), "propagate", True)
    agent = Agent(str(tmp_path / "s"), TASK)
    threading.Thread(target=egress.questions, args=(Once(1), agent), daemon=True).start()
    assert done.wait(60)
    assert desk.decided(4) is False
    (line,) = [one for one in caplog.records if one.getMessage() == "agent"]
    assert "starling serve agent agent.toml" in line.__dict__["hint"]


def test_agent_answers(tmp_path: Path) -> None:
    """The agent's word is taken, for the task and the round."""
    stand_in = StandInAgent(tmp_path / "s", lambda round_: round_ == 3)
    agent = Agent(str(tmp_path / "s"), TASK)
    assert [agent.contributed(3), agent.contributed(4)] == [True, False]
    assert stand_in.asked == [(f"/v1/contributions {TASK}", round_) for round_ in (3, 4)]
    stand_in.close()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--task", "XY"], "--task is no id"),
        (["--task", ""], "--task is no id"),
        (["--grid", "0"], "--grid lies outside"),
        (["--grid", "nan"], "--grid lies outside"),
        (["--memory", "0"], "--memory lies outside"),
        (["--superlink", "http://x:1"], "--superlink is no HOST:PORT"),
        (["--listen", "9192"], "--listen is no HOST:PORT"),
        (["--root-certificates", "x"], "exclude each other"),
        (["--auth-supernode-private-key", "x"], "exclude each other"),
    ],
)
def test_settings_that_cannot_be(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong setting is an error with a hint, and exit code 2."""
    start = ["--insecure", "--superlink", "127.0.0.1:1", "--agent", "s", "--task", TASK]
    assert egress.main([*start, *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-2].startswith("starling-egress: error: ") and problem in lines[-2]
    assert lines[-1].startswith("starling-egress: hint: ")


def test_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """A port in use is an error with a hint."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        start = [
            "--insecure",
            "--superlink",
            "127.0.0.1:1",
            "--agent",
            "s",
            "--task",
            TASK,
        ]
        assert egress.main([*start, "--listen", listen]) == 2
    assert "give a free --listen" in capsys.readouterr().err


def test_key_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The node's key is a file of its owner's alone, and a key."""
    key = tmp_path / "key"
    key.write_text("no key")
    start = ["--superlink", "127.0.0.1:1", "--agent", "s", "--task", TASK]
    for mode, problem in (
        (0o644, "others than its owner"),
        (0o600, "no key of Flower's"),
    ):
        key.chmod(mode)
        assert egress.main([*start, "--auth-supernode-private-key", str(key)]) == 2
        assert problem in capsys.readouterr().err


def test_grid_of_system_clock() -> None:
    """The clock of the machine does not wait for what is over."""
    clock = _egress_outer.SystemClock()
    clock.wait_until(clock.now() - 1)


def _raw(port: int, text: str) -> bytes:
    answer = b""
    with socket.create_connection(("127.0.0.1", port)) as conn:
        conn.settimeout(10)
        try:
            conn.sendall(text.encode())
            while part := conn.recv(4096):
                answer += part
        except ConnectionError:
            pass
    return answer
