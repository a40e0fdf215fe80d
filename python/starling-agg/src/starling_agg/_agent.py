"""The client of the agent: docs/agent.md."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote, urlencode

from ._answer import Answer
from ._errors import AgentDown, AgentError, AgentTimeout, MalformedAnswer
from ._http import Down, Reply, Unix
from ._vector import Model, check_length, floats, read_floats

SOCKET = "STARLING_AGENT"  #: the variable with the agent's socket


class Task(Answer):
    """One recipe that the agent answers, and the round that runs."""

    __slots__ = ()
    task: str  # 64 hexadecimal digits
    name: str
    allowed: bool
    reason: str | None  # why it is not allowed, or not now
    round: int
    begins: str  # RFC 3339
    ends: str
    numbers: int  # of an update
    bound: float  # L2 norm to which an update is cut
    session: str | None
    model: str | None  # hash of the model of the round, where one is announced
    algorithm: str | None
    local_steps: int | None
    local_rate: float | None
    unit: str
    persons: int
    trusts: str | None
    data: tuple[str, ...] | None
    epsilon: float
    delta: float
    rounds: int


class TaskLedger(Answer):
    """What a recipe cost, and what one more round of it would."""

    __slots__ = ()
    task: str
    name: str
    rounds: int
    loss: Answer
    next: Answer
    would_exceed: bool
    reason: str | None


class Ledger(Answer):
    """What was spent of the budget, over all recipes."""

    __slots__ = ()
    epsilon: float
    delta: float
    max_epsilon: float
    max_delta: float
    tasks: tuple[Answer, ...]
    others: tuple[Answer, ...] | None


class Status(Answer):
    """How the agent is."""

    __slots__ = ()
    tasks: int
    refused: Answer
    contributions: Answer
    ledger_made: str
    spent: Answer


class Agent:
    """A client of the agent at a unix socket, $STARLING_AGENT if none is given.

    It keeps nothing between calls: it may be shared by threads, and used after a fork.
    `timeout` is in seconds, of one request.
    """

    def __init__(self, socket: str | os.PathLike[str] | None = None, timeout: float = 60) -> None:
        path = socket if socket is not None else os.environ.get(SOCKET, "")
        if not os.fspath(path):
            raise AgentDown(
                "no socket of an agent is named",
                f"Agent('agent/agent.sock'), or ${SOCKET}; starling serve agent agent.toml runs one",
            )
        self._unix = Unix(path, timeout)

    def __repr__(self) -> str:
        return f"Agent({self._unix.path!r})"

    def tasks(self) -> list[Task]:
        """All recipes that the agent answers."""
        answer = self._get("/v1/tasks").json()
        if not isinstance(answer, list):
            raise MalformedAnswer("expected a JSON list of tasks")
        return [Task(t) for t in answer]

    def task(self, id: str | Task) -> Task:
        """One of them."""
        return Task(self._get(f"/v1/tasks/{_id(id)}").json())

    def model(self, hash: str) -> Model:
        """The model of the round that runs, by its hash, which `task(id).model` has."""
        reply = self._get(f"/v1/models/{quote(hash, safe='')}")
        try:
            clip, round = float(reply.headers["Starling-Clip"]), int(reply.headers["Starling-Round"])
        except (KeyError, TypeError, ValueError):
            raise MalformedAnswer("the answer says neither round nor clipping norm") from None
        return Model(read_floats(reply.body), clip, round)

    def contribute(
        self, task: str | Task, round: int, vector: Any, data: str | None = None, persons: int = 1
    ) -> None:
        """Contribute an update to a round; returning says that it was accepted.

        Whatever the coin says, nothing more is ever told. `vector` is a buffer or a sequence
        of floats, `persons` times as many as `task.numbers`; it is checked before anything
        is sent. The same bytes may be contributed again, and cost nothing.
        """
        body = floats(vector)
        known = task if isinstance(task, Task) else self.task(task)
        if known.allowed:  # else the agent says why, which matters more than a length
            check_length(len(body) // 4, known.numbers * persons)
        query = {"task": _id(task), "round": str(int(round))}
        if data is not None:
            query["data"] = data
        if persons != 1:
            query["persons"] = str(int(persons))
        reply = self._ask("POST", "/v1/contributions?" + urlencode(query), body)
        self._accepted(reply, True)

    def contributed(self, task: str | Task, round: int) -> bool:
        """Was an update taken for the round, in this life of the agent?"""
        query = urlencode({"task": _id(task), "round": str(int(round))})
        return self._accepted(self._get("/v1/contributions?" + query), False)

    def ledger(self, task: str | Task | None = None) -> Any:
        """What was spent: a Ledger over all recipes, or the TaskLedger of one."""
        if task is None:
            return Ledger(self._get("/v1/ledger").json())
        return TaskLedger(self._get(f"/v1/ledger/{_id(task)}").json())

    def status(self) -> Status:
        """How the agent is."""
        return Status(self._get("/v1/status").json())

    def _accepted(self, reply: Reply, must: bool) -> bool:
        answer = reply.json()
        accepted = answer.get("accepted") if isinstance(answer, dict) else None
        if not isinstance(accepted, bool) or (must and not accepted):
            raise MalformedAnswer("the agent neither accepted nor refused")
        return accepted

    def _get(self, path: str) -> Reply:
        return self._ask("GET", path)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> Reply:
        # All that there is may be asked again: a contribution of the same bytes too.
        try:
            reply = self._unix.ask(method, path, body, again=True)
        except Down as e:
            raise _down(self._unix, e) from e
        if reply.status == 200:
            return reply
        said = reply.json()
        if not isinstance(said, dict) or not isinstance(said.get("error"), str):
            raise MalformedAnswer(f"status {reply.status} without the name of an error")
        raise AgentError.named(said["error"], str(said.get("problem", "")), str(said.get("hint", "")))


def _down(unix: Unix, e: Down) -> AgentError:
    if isinstance(e.why, TimeoutError):
        return AgentTimeout(
            f"{unix.path}: no answer within {unix.timeout} s",
            "ask again: the same bytes cost nothing; or give Agent a longer timeout",
        )
    if isinstance(e.why, PermissionError):
        hint = "the socket is of another user: whoever runs the agent may contribute, and nobody else"
    elif isinstance(e.why, FileNotFoundError | ConnectionError):
        hint = (
            f"starling serve agent agent.toml runs one; its file names the socket, and so may ${SOCKET}"
        )
    else:
        hint = "is that the agent's socket? Its path may have about 100 bytes"
    return AgentDown(f"{unix.path}: no agent answers: {e}", hint)


def _id(task: str | Task) -> str:
    return quote(task.task if isinstance(task, Task) else task, safe="")
