"""What the filter asks the agent: whether an update was taken in a round.

The answer is not trusted for more than one bit. An app that runs as the agent's user may
be able to put a socket of its own in the place of the agent's: whatever comes back is read
to a bound, until a deadline, and is either the one JSON value that means yes, or no.
"""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import time
from typing import cast

ANSWER_BYTES = 16 << 10
ANSWER_SECONDS = 10.0

_NAME = re.compile(r"[a-z_]{1,32}")


class AgentError(Exception):
    """AgentError says why the agent gave no answer, and what to do."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.hint = hint


class Agent:
    """Agent asks at a unix socket, with one short connection a question."""

    def __init__(self, path: str, task: str, seconds: float = ANSWER_SECONDS) -> None:
        self._path = path
        self._task = task
        self._seconds = seconds

    def contributed(self, round_: int) -> bool:
        """Say whether the agent took an update for the task in the round.

        Raises AgentError where there is no answer; for the reply that is a no.
        """
        path = f"/v1/contributions?task={self._task}&round={round_}"
        status, body = self._get(path)
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        answer = value if isinstance(value, dict) else {}
        if status == 200 and isinstance(answer.get("accepted"), bool):
            return cast(bool, answer["accepted"])
        name = answer.get("error")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            name = "no answer of an agent's"
        raise AgentError(
            f"the agent refused the question: {status}, {name}",
            "is --task the id of a recipe that agent.toml names, and is the agent new "
            "enough to know GET /v1/contributions? docs/agent.md",
        )

    def _get(self, path: str) -> tuple[int, bytes]:
        deadline = time.monotonic() + self._seconds
        data = bytearray()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as conn:
                conn.settimeout(self._seconds)
                conn.connect(self._path)
                conn.sendall(f"GET {path} HTTP/1.0\r\nHost: agent\r\n\r\n".encode("ascii"))
                while True:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise TimeoutError
                    conn.settimeout(left)
                    part = conn.recv(4096)
                    if not part:
                        break
                    data += part
                    if len(data) > ANSWER_BYTES:
                        raise AgentError(
                            "the agent's answer is too long",
                            "does another process answer at --agent?",
                        )
        except TimeoutError:
            raise AgentError(
                f"the agent did not answer within {self._seconds:g} s",
                "see its log, and: starling status agent.toml",
            ) from None
        except OSError as err:
            raise AgentError(
                f"the agent's socket cannot be used: {err.strerror or type(err).__name__}",
                "start it with: starling serve agent agent.toml, and give --agent the path "
                "of its socket for a filter's user: receipts in agent.toml; docs/agent.md",
            ) from None
        return _parse(bytes(data))


class _Wire:
    """_Wire is as much of a socket as http.client reads an answer from."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def _parse(data: bytes) -> tuple[int, bytes]:
    response = http.client.HTTPResponse(cast(socket.socket, _Wire(data)))
    try:
        response.begin()
        return response.status, response.read()
    except (http.client.HTTPException, ValueError):
        raise AgentError(
            "the agent's answer is not HTTP", "does another process answer at --agent?"
        ) from None
    finally:
        response.close()
