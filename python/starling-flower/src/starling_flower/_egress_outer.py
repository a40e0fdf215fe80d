"""The outer side: the filter as the SuperNode that the SuperLink sees.

One thread does all of it, at the points of a grid of seconds: it replies, then pulls. It
sends heartbeats beside that, at Flower's own times. Nothing else goes to the SuperLink,
and no request of the inner side makes it go.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Error, Message, MessageType, RecordDict
from flwr.common.serde import fab_to_proto, run_to_proto
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_body,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supernode.fleet_http_connection import http_request_response

from ._egress_desk import Desk, DeskFull, Due, Held
from ._receipt import RECORD, receipt

# What the filter says of a node that did not contribute, whatever the cause.
ERROR_CODE = 6  # MOD_FAILED_PRECONDITION
ERROR_REASON = "starling: no contribution"

CLIENTAPP_RUNTIME = 0.0
PULLS = 16  # messages at one point of the grid
PULL_SECONDS = 60.0
OBJECTS = 100_000
OBJECT_BYTES = 256 << 20

_log = logging.getLogger("starling.egress")


class Clock(Protocol):
    """Clock is the time, as seconds since 1970, and waits for a point of it."""

    def now(self) -> float:
        """Give the time."""

    def wait_until(self, when: float) -> None:
        """Return at the time `when`, or later."""


class SystemClock:
    """SystemClock is the machine's clock."""

    def now(self) -> float:
        """Give the time."""
        return time.time()

    def wait_until(self, when: float) -> None:
        """Return at the time `when`, or later; a clock that was put back is not waited for."""
        while (left := when - time.time()) > 0:
            time.sleep(min(left, 1.0))
            if when - time.time() > left:
                return


@dataclass(frozen=True)
class SuperLink:
    """SuperLink says where the SuperLink is, and who the node is towards it."""

    address: str
    insecure: bool
    root_certificates: bytes | str | None = None
    keys: tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey] | None = None
    max_retries: int | None = None
    max_wait_time: float | None = None


class Connection(Protocol):
    """Connection is what Flower offers a SuperNode that is activated."""

    def receive(self) -> tuple[Message, ObjectTree] | None:
        """Pull the next message, without its parts."""

    def send(self, message: Message, tree: ObjectTree, clientapp_runtime: float) -> tuple[set[str], str]:
        """Push a reply; gives the parts that the SuperLink wants, and a session."""

    def get_run(self, run_id: int) -> Run:
        """Get a run."""

    def get_fab(self, hash_: str, run_id: int) -> Fab:
        """Get a run's app."""

    def pull_object(self, run_id: int, object_id: str) -> bytes:
        """Pull a part of a message."""

    def push_object(self, run_id: int, session: str, object_id: str, content: bytes) -> None:
        """Push a part of a reply."""

    def confirm(self, run_id: int, message_id: str) -> None:
        """Say that all parts of a message were pulled."""


@dataclass(frozen=True)
class FleetConnection:
    """FleetConnection is Flower's own tuple of callbacks, with names."""

    receive: Callable[[], tuple[Message, ObjectTree] | None]
    send: Callable[[Message, ObjectTree, float], tuple[set[str], str]]
    get_run: Callable[[int], Run]
    get_fab: Callable[[str, int], Fab]
    pull_object: Callable[[int, str], bytes]
    push_object: Callable[[int, str, str, bytes], None]
    confirm: Callable[[int, str], None]


class Refused(Exception):
    """Refused says why a message is not handed in: it gets the constant error."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class Outer:
    """Outer pulls for the desk and sends what is due, for one task."""

    def __init__(self, desk: Desk, task: str, grid: float, clock: Clock) -> None:
        self._desk = desk
        self._task = task
        self._grid = grid
        self._clock = clock

    def run(self, superlink: SuperLink) -> None:
        """Be the SuperNode until the process is told to end. For the main thread."""
        with http_request_response(
            superlink.address,
            superlink.insecure,
            superlink.root_certificates,
            superlink.keys,
            superlink.max_retries,
            superlink.max_wait_time,
        ) as (node_id, receive, send, get_run, get_fab, pull, push, confirm):
            connection = FleetConnection(receive, send, get_run, get_fab, pull, push, confirm)
            self._desk.open(node_id)
            _log.info("open")
            while True:
                self.step(connection)

    def step(self, connection: Connection) -> None:
        """Wait for the next point of the grid, send what is due, and pull."""
        tick = (math.floor(self._clock.now() / self._grid) + 1) * self._grid
        self._clock.wait_until(tick)
        for due in self._desk.take_due(tick):
            self._send(connection, due, tick)
        for _ in range(PULLS):
            if not self._pull(connection):
                break

    def _send(self, connection: Connection, due: Due, tick: float) -> None:
        message = reply(due.message, due.accepted, tick)
        tree = get_object_tree(message)
        objects = get_all_nested_objects(message)
        try:
            wanted, session = connection.send(message, tree, CLIENTAPP_RUNTIME)
            for object_id, item in objects.items():
                if object_id in wanted:
                    connection.push_object(message.metadata.run_id, session, object_id, item.deflate())
        except RunNotRunningException:
            _log.info("run_over")
        except Exception as err:
            _superlink_failed("a reply was not taken", err)

    def _pull(self, connection: Connection) -> bool:
        try:
            received = connection.receive()
        except RunNotRunningException:
            return False
        except Exception as err:
            _superlink_failed("no message could be pulled", err)
            return False
        if received is None:
            return False
        message, tree = received
        expires = message.metadata.created_at + message.metadata.ttl
        if not math.isfinite(expires):
            _log.warning("refused", extra={"problem": "the message has no time to live"})
            return True
        try:
            self._take(connection, message, tree, expires)
        except RunNotRunningException:
            _log.info("run_over")
        except (Refused, DeskFull) as err:
            self._desk.reply(message, False, expires)
            extra = {"problem": str(err), "hint": getattr(err, "hint", "")}
            _log.warning("refused", extra=extra)
        except Exception as err:
            self._desk.reply(message, False, expires)
            _superlink_failed("a message could not be pulled whole", err)
        return True

    def _take(self, connection: Connection, message: Message, tree: ObjectTree, expires: float) -> None:
        """Pull all that belongs to a message, and keep it for the SuperNode."""
        kind = message.metadata.message_type
        if kind.partition(".")[0] != MessageType.TRAIN:
            raise Refused("the message asks for something else than training")
        ids = list(dict.fromkeys(node.object_id for node in iterate_object_tree(tree)))
        if len(ids) > OBJECTS:
            raise Refused(f"the message has more than {OBJECTS} parts")
        run_id = message.metadata.run_id
        left = self._desk.room()

        def pull(object_id: str) -> bytes:
            nonlocal left
            content = connection.pull_object(run_id, object_id)
            left -= len(content)
            if len(content) > OBJECT_BYTES or left < 0:
                raise Refused("the message does not fit", "a larger --memory lets it in")
            return content

        objects = pull_objects(ids, pull, max_time=PULL_SECONDS)
        connection.confirm(run_id, message.metadata.message_id)
        round_ = self._round(tree, objects)
        decided = self._desk.decided(round_)
        if decided is not None:
            self._desk.reply(message, decided, expires)
            return
        if not self._desk.knows_run(run_id):
            run = connection.get_run(run_id)
            fab = connection.get_fab(run.fab_hash, run_id)
            self._desk.keep_run(run_to_proto(run), fab_to_proto(fab))
        self._desk.admit(Held(message, round_, tree, objects, expires))
        _log.info("pulled", extra={"round": round_})

    def _round(self, tree: ObjectTree, objects: dict[str, bytes]) -> int:
        """Read the round that the server says the message is of, if of our task."""
        record = starling_record(tree, objects)
        if record.get("task") != self._task:
            raise Refused(
                "the message is of another task",
                "--task is the recipe's id; the server app says which one it trains for",
            )
        round_ = record.get("round")
        if type(round_) is not int or round_ < 0:
            raise Refused("the message says no round")
        return round_


def reply(message: Message, accepted: bool, at: float) -> Message:
    """Build the reply to a message: the receipt or the error, made at a time of the grid.

    Flower derives the metadata from the message that was pulled. The time of making is put
    on the grid, so that it tells no more than the sending does.
    """
    if accepted:
        answer = Message(receipt(), reply_to=message)
    else:
        answer = Message(Error(ERROR_CODE, ERROR_REASON), reply_to=message)
    answer.metadata.created_at = at
    answer.metadata.ttl = message.metadata.created_at + message.metadata.ttl - at
    answer.metadata.__dict__["_message_id"] = answer.object_id
    return answer


def starling_record(tree: ObjectTree, objects: dict[str, bytes]) -> ConfigRecord:
    """Read the ConfigRecord "starling" of a message, and none of its other parts."""
    try:
        (content,) = tree.children
        names = json.loads(get_object_body(objects[content.object_id], RecordDict))
        return ConfigRecord.inflate(objects[names[RECORD]])
    except (KeyError, ValueError, TypeError, RecursionError):
        raise Refused(
            "the message has no ConfigRecord 'starling'",
            "the server app trains in clear, without starling_flower.Private",
        ) from None
    except Exception:
        raise Refused("the ConfigRecord 'starling' is malformed") from None


def _superlink_failed(problem: str, err: Exception) -> None:
    status = getattr(getattr(err, "response", None), "status_code", None)
    cause = type(err).__name__ if status is None else f"{type(err).__name__} {status}"
    hint = "see the SuperLink's log; it is asked again"
    _log.warning("superlink", extra={"problem": f"{problem}: {cause}", "hint": hint})
