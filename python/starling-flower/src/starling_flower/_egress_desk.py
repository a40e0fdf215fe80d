"""What lies between the two sides of the filter: messages, and what became of them.

The outer side puts in what it pulled and takes out what is due; the inner side takes
messages and says which were answered. Nothing that the inner side says is kept but the
fact that a message, which was handed in, was answered.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.proto.fab_pb2 import Fab
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.run_pb2 import Run

MESSAGES = 64
RUNS = 16
ROUNDS = 4096

_log = logging.getLogger("starling.egress")


class DeskFull(Exception):
    """DeskFull says that a limit of the filter's does not admit a message."""


@dataclass
class Held:
    """Held is a message between its pulling and its reply.

    `message` has no content; `objects` are its parts by id, until the SuperNode has them.
    """

    message: Message
    round: int
    tree: ObjectTree
    objects: dict[str, bytes]
    expires: float
    handed_in: bool = False
    asked: bool = False

    @property
    def message_id(self) -> str:
        """Give the id under which the SuperLink knows the message."""
        return self.message.metadata.message_id

    @property
    def run_id(self) -> int:
        """Give the run that the message belongs to."""
        return self.message.metadata.run_id


@dataclass(frozen=True)
class Due:
    """Due is a message that can be replied to: with the receipt, or with the error."""

    message: Message
    accepted: bool
    expires: float


@dataclass
class _RunFiles:
    run: Run
    fab: Fab = field(default_factory=Fab)

    @property
    def size(self) -> int:
        return len(self.fab.content)


class Desk:
    """Desk keeps the messages; all its methods may be called from any thread.

    A round is decided once: the first answer to any of its messages has the agent asked,
    and all of them, later ones too, get the reply that follows. So a server that sends a
    round many times learns no more than from sending it once.
    """

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        # The rest is guarded by the lock. _held is in the order of pulling.
        self._node_id: int | None = None
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._refused: list[Due] = []
        self._decided: OrderedDict[int, bool] = OrderedDict()
        self._forgotten = -1  # no round up to this one is handed in any more
        self._runs: OrderedDict[int, _RunFiles] = OrderedDict()
        self._questions: queue.SimpleQueue[int] = queue.SimpleQueue()

    # The outer side.

    def open(self, node_id: int) -> None:
        """Let the inner side in, under the id that the SuperLink gave."""
        with self._lock:
            self._node_id = node_id

    def knows_run(self, run_id: int) -> bool:
        """Say whether the run and its app are at hand."""
        with self._lock:
            if run_id not in self._runs:
                return False
            self._runs.move_to_end(run_id)
            return True

    def keep_run(self, run: Run, fab: Fab) -> None:
        """Keep a run and its app; the run longest unused makes place."""
        files = _RunFiles(run, fab)
        with self._lock:
            if files.size > self._memory - self._used():
                raise DeskFull("the app does not fit into --memory")
            self._runs[run.run_id] = files
            in_use = {held.run_id for held in self._held.values()} | {run.run_id}
            for run_id in list(self._runs):
                if len(self._runs) <= RUNS:
                    break
                if run_id not in in_use:
                    del self._runs[run_id]

    def room(self) -> int:
        """Give the bytes that a message's objects may have now; DeskFull if none."""
        with self._lock:
            if len(self._held) >= MESSAGES:
                raise DeskFull(f"{MESSAGES} messages wait for the SuperNode")
            return max(self._memory - self._used(), 0)

    def decided(self, round_: int) -> bool | None:
        """Give the round's decision: receipt, error, or none yet."""
        with self._lock:
            if round_ <= self._forgotten:
                return False
            return self._decided.get(round_)

    def admit(self, held: Held) -> None:
        """Keep a message until the SuperNode fetches it."""
        with self._lock:
            if len(self._held) >= MESSAGES:
                raise DeskFull(f"{MESSAGES} messages wait for the SuperNode")
            if _size(held.objects) > self._memory - self._used():
                raise DeskFull("the message does not fit into --memory")
            self._held[held.message_id] = held

    def reply(self, message: Message, accepted: bool, expires: float) -> None:
        """Have a message replied to that is never handed in."""
        with self._lock:
            self._refused.append(Due(message, accepted, expires))

    def take_due(self, now: float) -> list[Due]:
        """Take what can be replied to, in the order of pulling, and drop what expired."""
        with self._lock:
            due, self._refused = self._refused, []
            for message_id, held in list(self._held.items()):
                accepted = self._decided.get(held.round)
                if held.expires <= now:
                    _log.info("expired", extra={"round": held.round})
                elif accepted is not None:
                    due.append(Due(held.message, accepted, held.expires))
                else:
                    continue
                del self._held[message_id]
            return [one for one in due if one.expires > now]

    # The agent's questioner.

    def next_question(self) -> int:
        """Wait for a round that the agent is to be asked about."""
        return self._questions.get()

    def decide(self, round_: int, accepted: bool) -> None:
        """Note what the agent said; the first word on a round stands."""
        with self._lock:
            self._decided.setdefault(round_, accepted)
            while len(self._decided) > ROUNDS:
                lowest = min(self._decided)
                del self._decided[lowest]
                self._forgotten = max(self._forgotten, lowest)

    # The inner side.

    def node_id(self) -> int | None:
        """Give the node's id, or None before the SuperLink gave one."""
        with self._lock:
            return self._node_id

    def restarted(self) -> None:
        """Note that a SuperNode begins: what an earlier one had is not coming back."""
        with self._lock:
            for held in self._held.values():
                if held.handed_in:
                    self._ask(held)

    def hand_in(self) -> Held | None:
        """Give the next message to the SuperNode."""
        with self._lock:
            for held in self._held.values():
                if not held.handed_in and held.round not in self._decided:
                    held.handed_in = True
                    return held
            return None

    def object(self, run_id: int, object_id: str) -> bytes | None:
        """Give a part of a message that was handed in."""
        with self._lock:
            for held in self._held.values():
                if held.handed_in and held.run_id == run_id and object_id in held.objects:
                    return held.objects[object_id]
            return None

    def received(self, message_id: str) -> None:
        """Forget the parts of a message: the SuperNode has them."""
        with self._lock:
            held = self._held.get(message_id)
            if held is not None and held.handed_in:
                held.objects.clear()

    def answered(self, message_id: str) -> bool:
        """Note that a message was answered; says whether it had been handed in."""
        with self._lock:
            held = self._held.get(message_id)
            if held is None or not held.handed_in:
                return False
            self._ask(held)
            return True

    def run(self, run_id: int) -> Run | None:
        """Give a run of a message that was pulled."""
        with self._lock:
            files = self._runs.get(run_id)
            return files.run if files else None

    def fab(self, run_id: int, hash_: str) -> Fab | None:
        """Give the app of a run."""
        with self._lock:
            files = self._runs.get(run_id)
            return files.fab if files and files.fab.hash_str == hash_ else None

    def _ask(self, held: Held) -> None:
        held.objects.clear()
        if not held.asked:
            held.asked = True
            self._questions.put(held.round)

    def _used(self) -> int:
        messages = sum(_size(held.objects) for held in self._held.values())
        return messages + sum(files.size for files in self._runs.values())


def _size(objects: Mapping[str, bytes]) -> int:
    return sum(len(content) for content in objects.values())
