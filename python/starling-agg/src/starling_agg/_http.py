"""HTTP/1.1 over a unix socket, a connection for each request.

A connection that is kept would be shared by a forked child; a new one costs a tenth of a
millisecond.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from email.message import Message
from typing import Any, NamedTuple

from ._errors import MalformedAnswer
from ._vector import MAX_NUMBERS

_MOST = max(16 << 20, 4 * MAX_NUMBERS)  # bytes of an answer


class Reply(NamedTuple):
    status: int
    headers: Message
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as e:
            raise MalformedAnswer(f"the answer is no JSON: {e}") from None


class Down(Exception):
    """Nobody answered; `sent` says whether the request may have been read."""

    def __init__(self, why: Exception, sent: bool) -> None:
        super().__init__(str(why) or type(why).__name__)
        self.why = why
        self.sent = sent


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("local", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("Python has no unix sockets on this platform")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Unix:
    """A unix socket that speaks HTTP."""

    def __init__(self, path: str | os.PathLike[str], timeout: float, tries: int = 3) -> None:
        self.path = os.fspath(path).removeprefix("unix:")
        self.timeout = timeout
        self.tries = tries

    def ask(self, method: str, path: str, body: bytes | None = None, *, again: bool) -> Reply:
        """One request; `again` if the same request twice does what it does once.

        A connection that is refused, or breaks, is then tried again, a few times in all; a
        timeout is not, for whoever asks has waited long enough. Fails with Down.
        """
        for n in range(1, self.tries + 1):
            try:
                return self._once(method, path, body)
            except Down as e:
                # Before a connection is there nothing was asked.
                harmless = again or not e.sent
                passing = isinstance(
                    e.why, ConnectionError | http.client.BadStatusLine | http.client.IncompleteRead
                )
                if not (harmless and passing) or n == self.tries:
                    raise
            time.sleep(0.05 * 4 ** (n - 1))
        raise AssertionError("unreachable")

    def _once(self, method: str, path: str, body: bytes | None) -> Reply:
        connection = _Connection(self.path, self.timeout)
        sent = False
        try:
            connection.connect()
            sent = True
            headers = {"Content-Type": "application/octet-stream"} if body else {}
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            data = response.read(_MOST + 1)
            if response.length:
                raise http.client.IncompleteRead(data, response.length)
            if len(data) > _MOST:
                raise MalformedAnswer(f"an answer of more than {_MOST} bytes")
            return Reply(response.status, response.headers, data)
        except (OSError, http.client.HTTPException) as e:
            raise Down(e, sent) from e
        finally:
            connection.close()
