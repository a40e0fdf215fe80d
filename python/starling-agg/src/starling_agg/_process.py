"""A kept `starling account --serve`: one process for each binary and interpreter."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import threading
import weakref
from typing import Any, ClassVar, NamedTuple

from ._errors import AccountantDown, BinaryMissing, CommandError, MalformedAnswer

PROTOCOL = 1  # of account --serve that this package speaks
_CHUNK = 1 << 16
_MOST = 64 << 20  # bytes of an answer
_TO_END = 5.0  # seconds that a process has to end after its input did


class Reply(NamedTuple):
    line: bytes  # as it came
    result: Any
    notes: tuple[str, ...]
    error: CommandError | None


class Process:
    """Asks one question at a time, from any thread; in a forked child of a process of its own."""

    _all: ClassVar[weakref.WeakSet[Process]] = weakref.WeakSet()

    def __init__(self, command: tuple[str, ...]) -> None:
        self.command = command
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._pipes: tuple[int, ...] = (-1, -1)  # its input and output
        self._directory = ""  # where it runs: file names are told it as they are
        self._rest = b""
        self._last = 0
        self._hello: dict[str, Any] = {}
        self._late = False
        Process._all.add(self)

    def ask(
        self, method: str, args: tuple[str, ...] = (), stdin: str = "", timeout: float | None = None
    ) -> Reply:
        """Ask one question: fails with AccountantDown and MalformedAnswer.

        Questions compute and change nothing, so one that the process died of is asked again.
        """
        with self._lock:
            for again in (True, False):
                try:
                    self._start(timeout)
                    return self._exchange(method, args, stdin, timeout)
                except _Died as e:
                    self._end()
                    if self._late:
                        raise AccountantDown(
                            f"{method}: no answer within {timeout} s", "give Accountant a longer timeout"
                        ) from None
                    if not again:
                        raise AccountantDown(
                            f"{' '.join(self.command)} ended before it answered {method}: {e}",
                            "it says why on standard error; is it older than account --serve?",
                        ) from None
                except BaseException:
                    # What was asked may still be answered, to nobody.
                    self._end()
                    raise
        raise AssertionError("unreachable")

    def hello(self) -> dict[str, Any]:
        """What the process says of itself."""
        self.ask("hello")
        return dict(self._hello)

    @property
    def pid(self) -> int | None:
        """Of the process, where one runs."""
        return self._child.pid if self._child else None

    def close(self) -> None:
        """End the process; the next question starts another."""
        with self._lock:
            self._end(gently=True)

    def _leave(self) -> None:
        """At the interpreter's end: wait for no thread that still asks."""
        if self._lock.acquire(timeout=0.1):
            self._end(gently=True)
        elif self._child:
            self._child.kill()

    def _start(self, timeout: float | None) -> None:
        here = os.getcwd()
        if self._child is not None and self._child.poll() is None and self._directory == here:
            return
        self._end()
        try:
            child = subprocess.Popen(
                self.command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except OSError as e:
            raise BinaryMissing(
                f"{self.command[0]} cannot be run: {e}", "pip install starling-bin, or set $STARLING"
            ) from e
        self._child, self._directory = child, here
        self._pipes = tuple(p.fileno() if p else -1 for p in (child.stdin, child.stdout))
        said = self._exchange("hello", (), "", timeout).result
        if not isinstance(said, dict) or said.get("protocol") != PROTOCOL:
            raise MalformedAnswer(
                f"{self.command[0]} does not speak account --serve, protocol {PROTOCOL}: {said!r:.200}",
                "install a starling and a starling-agg of one time",
            )
        self._hello = said

    def _exchange(self, method: str, args: tuple[str, ...], stdin: str, timeout: float | None) -> Reply:
        child, (stdin_fd, stdout_fd) = self._child, self._pipes
        if child is None:
            raise _Died("it was closed")
        self._last += 1
        question: dict[str, Any] = {"id": self._last, "method": method, "args": list(args)}
        if stdin:
            question["stdin"] = stdin
        line = json.dumps(question).encode() + b"\n"
        most = self._hello.get("max_line")
        if isinstance(most, int) and len(line) > most:
            raise CommandError(
                f"a question of {len(line)} bytes, and {most} are read at most", "ask less"
            )
        self._late = False
        alarm = threading.Timer(timeout, self._too_late, (child,)) if timeout else None
        if alarm:
            alarm.daemon = True
            alarm.start()
        try:
            while line:
                line = line[os.write(stdin_fd, line) :]
            return self._read(child, stdout_fd)
        except OSError as e:
            raise _Died(str(e)) from e
        finally:
            if alarm:
                alarm.cancel()

    def _too_late(self, child: subprocess.Popen[bytes]) -> None:
        self._late = True
        child.kill()

    def _read(self, child: subprocess.Popen[bytes], stdout_fd: int) -> Reply:
        parts = [self._rest]
        self._rest = b""
        while b"\n" not in parts[-1]:
            if sum(map(len, parts)) > _MOST:
                raise MalformedAnswer(f"an answer of more than {_MOST} bytes")
            more = os.read(stdout_fd, _CHUNK)
            if not more:
                raise _Died(_how(child))
            parts.append(more)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return _reply(line, self._last)

    def _end(self, gently: bool = False) -> None:
        child, self._child, self._rest = self._child, None, b""
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        if not gently:
            child.kill()
        try:
            child.wait(_TO_END)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()

    def _forget(self) -> None:
        """In a forked child: leave the process to the parent, and hold no end of its pipes.

        With a copy of its input open it would outlive the parent. The lock may be held by a
        thread that is not here.
        """
        self._lock = threading.Lock()
        child, self._child, self._rest = self._child, None, b""
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        child.returncode = 0  # not ours to wait for


class _Died(Exception):
    pass


def _how(child: subprocess.Popen[bytes]) -> str:
    try:
        code = child.wait(_TO_END)
    except subprocess.TimeoutExpired:
        return "it closed its output"
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _reply(line: bytes, id: int) -> Reply:
    try:
        said = json.loads(line)
    except ValueError:
        said = None
    if not isinstance(said, dict) or said.get("id") != id:
        raise MalformedAnswer(f"this is no answer to question {id}: {line[:200]!r}")
    error, result, notes = said.get("error"), said.get("result"), said.get("notes") or []
    if (error is None and result is None) or not isinstance(notes, list):
        raise MalformedAnswer(f"this answers nothing: {line[:200]!r}")
    if error is None:
        return Reply(line, result, tuple(map(str, notes)), None)
    if not isinstance(error, dict) or not isinstance(error.get("error"), str):
        raise MalformedAnswer(f"this error says nothing: {line[:200]!r}")
    code = error.get("exit")
    return Reply(
        line,
        result,
        tuple(map(str, notes)),
        CommandError(
            error["error"],
            str(error.get("hint", "")),
            str(error.get("problem", "failed")),
            code if isinstance(code, int) else 1,
            result,
        ),
    )


_shared: dict[tuple[str, ...], Process] = {}
_sharing = threading.Lock()


def shared(command: tuple[str, ...]) -> Process:
    """The process of this interpreter for a command."""
    with _sharing:
        return _shared.setdefault(command, Process(command))


def _after_fork() -> None:
    global _sharing
    _sharing = threading.Lock()
    for p in list(Process._all):
        p._forget()


def _at_exit() -> None:
    for p in list(Process._all):
        p._leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
