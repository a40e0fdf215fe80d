"""starling-egress: lets nothing out of a Flower SuperNode but a receipt.

An app that the server's operator wrote runs beside a site's data. Whatever it puts into a
reply (weights, metrics, an exception's text, the name of a key) goes to the SuperLink. This
command stands between the two, and replies in the app's place with one of two constants:

    flower-supernode --insecure --superlink 127.0.0.1:9192
          |  loopback: Fleet API, answered from what was pulled before
    starling-egress --superlink superlink.example:8000 --agent receipts/agent.sock --task HEX
          |  Fleet API with the node's own key, as Flower's SuperNode speaks it
    flower-superlink

- Outwards it is the SuperNode: it pulls messages, their parts, runs and apps on a grid of
  seconds of its own, and sends heartbeats. No request of the inner side causes one outside.
- Inwards it serves a SuperNode from memory. Of what the SuperNode sends it reads one thing:
  which message, of those that were handed in, was answered. No part of a reply is asked for.
- Then it asks the agent, not the app, whether an update was taken in that round. If so the
  reply is the receipt: metrics with num-examples = 1. If not it is an error of one code and
  one reason. Flower derives the metadata from the message that was pulled, the time of
  making lies on the grid, and the app's running time is always given as 0.
- A message that asks for anything but training, or for another task, is not handed in, and
  gets the error. A round is decided once: more messages for it get the same reply. Once a
  message's time to live is over nothing is sent.

Why a process of its own: Flower runs the app as a child of the SuperNode, with the same user
and memory within reach. A wrapper in the SuperNode, a mod in the app or a patched library
would be the app's to undo. For the same reason the filter must not run where the app can
write its code, read its key or stop it: another container, or another user.

What it does not stop: an app with a network of its own, which has to be shut (see
docs/flower-egress.md); one bit a round, contributed or not; when that is said, to the grid;
how busy the app keeps the machine; and local files that other processes read.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import re
import signal
import stat
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.supercore.address import parse_address

from ._egress_agent import Agent, AgentError
from ._egress_desk import Desk
from ._egress_inner import Fleet, Inner
from ._egress_outer import Outer, SuperLink, SystemClock

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_FIELDS = ("round", "problem", "hint")

_log = logging.getLogger("starling.egress")


class UsageError(Exception):
    """UsageError is a setting that cannot be: what is wrong, and what to do."""

    def __init__(self, problem: str, hint: str) -> None:
        super().__init__(problem)
        self.hint = hint


def questions(desk: Desk, agent: Agent) -> NoReturn:
    """Ask the agent about each round that was answered, and note what it says."""
    while True:
        round_ = desk.next_question()
        try:
            accepted = agent.contributed(round_)
        except AgentError as err:
            accepted = False
            extra = {"round": round_, "problem": err.problem, "hint": err.hint}
            _log.error("agent", extra=extra)
        desk.decide(round_, accepted)
        _log.info("contributed" if accepted else "not_contributed", extra={"round": round_})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    _log_to_stderr(args.json)
    try:
        superlink = _superlink(args)
        listen = _address(args.listen, "--listen")
        if not re.fullmatch(r"(?:[0-9a-f]{2}){1,64}", args.task):
            raise UsageError("--task is no id in lower-case hexadecimal", "see: starling status")
        if not (math.isfinite(args.grid) and 0.1 <= args.grid <= 3600):
            raise UsageError("--grid lies outside of 0.1 to 3600 seconds", "the default is 1")
        if not 1 <= args.memory <= 1 << 20:
            raise UsageError("--memory lies outside of 1 to 2^20 MiB", "the default is 2048")
        desk = Desk(args.memory << 20)
        try:
            inner = Inner(listen, Fleet(desk))
        except OSError as err:
            raise UsageError(
                f"cannot listen at {args.listen}: {err.strerror}",
                "give a free --listen",
            ) from None
    except UsageError as err:
        print(f"starling-egress: error: {err}", file=sys.stderr)
        print(f"starling-egress: hint: {err.hint}", file=sys.stderr)
        return 2
    if listen[0] not in _LOOPBACK:
        problem = "--listen is not loopback, and what comes there is not encrypted"
        _log.warning("listen", extra={"problem": problem, "hint": "docs/flower-egress.md"})
    agent = Agent(args.agent, args.task)
    threading.Thread(target=inner.serve_forever, daemon=True).start()
    threading.Thread(target=questions, args=(desk, agent), daemon=True).start()
    signal.signal(signal.SIGTERM, _end)
    try:
        Outer(desk, args.task, args.grid, SystemClock()).run(superlink)
    except KeyboardInterrupt:
        # Flower's client interrupts its own process where the SuperLink answers 401.
        problem = "interrupted, or the SuperLink does not know this node any more"
        _log.error("end", extra={"problem": problem, "hint": "start it again"})
        return 130
    return 1


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _log.info("end")
    raise SystemExit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="starling-egress",
        description="Lets nothing out of a Flower SuperNode but a receipt.",
        epilog="docs/flower-egress.md says what it stops, and what it does not.",
    )
    add = parser.add_argument
    add(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:9192",
        help="where the SuperNode connects, with --insecure (default: %(default)s)",
    )
    add(
        "--superlink",
        metavar="HOST:PORT",
        required=True,
        help="the SuperLink's Fleet API",
    )
    add("--insecure", action="store_true", help="reach the SuperLink without TLS")
    add(
        "--root-certificates",
        metavar="FILE",
        help="PEM file with which the SuperLink's certificate is verified (default: the system's)",
    )
    add(
        "--auth-supernode-private-key",
        metavar="FILE",
        help="the node's key, that the SuperLink knows; without it the node registers itself",
    )
    add(
        "--max-retries",
        type=int,
        help="how often the SuperLink is tried again (default: no limit)",
    )
    add("--max-wait-time", type=float, help="seconds for all tries (default: no limit)")
    add(
        "--agent",
        metavar="SOCKET",
        required=True,
        help="the agent's unix socket, receipts in agent.toml, which says whether a round was "
        "contributed to",
    )
    add(
        "--task",
        metavar="HEX",
        required=True,
        help="the recipe's id; other tasks get the error",
    )
    add(
        "--grid",
        metavar="SECONDS",
        type=float,
        default=1.0,
        help="the SuperLink is spoken to at multiples of it (default: %(default)g)",
    )
    add(
        "--memory",
        metavar="MIB",
        type=int,
        default=2048,
        help="room for messages and apps that the SuperNode did not fetch yet (default: %(default)s)",
    )
    add("--json", action="store_true", help="log in JSON, an object a line")
    return parser


def _superlink(args: argparse.Namespace) -> SuperLink:
    host, port = _address(args.superlink, "--superlink")
    if args.insecure and args.root_certificates:
        raise UsageError("--insecure and --root-certificates exclude each other", "give one")
    if args.insecure and args.auth_supernode_private_key:
        raise UsageError(
            "--insecure and --auth-supernode-private-key exclude each other",
            "a node's key is used with TLS: give --root-certificates",
        )
    certificates = keys = None
    if args.root_certificates:
        certificates = _read(args.root_certificates, "--root-certificates")
    if args.auth_supernode_private_key:
        keys = _key(args.auth_supernode_private_key)
    return SuperLink(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        args.insecure,
        certificates,
        keys,
        args.max_retries,
        args.max_wait_time,
    )


def _key(path: str) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    name = "--auth-supernode-private-key"
    data = _read(path, name)
    if stat.S_IMODE(Path(path).expanduser().stat().st_mode) & 0o077:
        raise UsageError(f"{name} is a file that others than its owner may use", f"chmod 600 {path}")
    try:
        key = load_ssh_private_key(data, None)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UsageError(f"{name} is no key of Flower's", "make one: ssh-keygen -t ecdsa -b 384")
    return key, key.public_key()


def _read(path: str, name: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as err:
        raise UsageError(f"{name} cannot be read: {err.strerror}", f"is it {path}?") from None


def _address(value: str, name: str) -> tuple[str, int]:
    parsed = parse_address(value)
    if not parsed or not parsed[0] or not parsed[1]:
        raise UsageError(f"{name} is no HOST:PORT", "without http://")
    return parsed[0], parsed[1]


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Write an event and its fields in one line."""
        parts = [
            self.formatTime(record),
            record.levelname.lower(),
            _line(record.getMessage()),
        ]
        parts += [f"{key}={_line(str(value))}" for key, value in _fields(record)]
        return " ".join(parts)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Write an event and its fields as a JSON object."""
        line = {"time": self.formatTime(record), "level": record.levelname.lower()}
        return json.dumps({**line, "event": record.getMessage(), **dict(_fields(record))})


def _fields(record: logging.LogRecord) -> list[tuple[str, object]]:
    values = record.__dict__
    return [(key, values[key]) for key in _FIELDS if values.get(key) not in (None, "")]


def _line(text: str) -> str:
    return json.dumps(text) if not text.isprintable() else text


def _log_to_stderr(as_json: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if as_json else _Text())
    for name in ("starling.egress", "flwr"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(logging.INFO)


if __name__ == "__main__":
    sys.exit(main())
