"""A Flower deployment on loopback, with an ear at what goes to the SuperLink."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TESTS = Path(__file__).resolve().parent
SOURCE = TESTS.parent / "src"
BIN = Path(sys.executable).parent
TASK = "5a" * 32


_PORTS = iter(random.Random(os.getpid()).sample(range(12000, 32000), 2000))


def free_port() -> int:
    """Give a port that nobody listens at, outside of the range that connections are made from.

    One of that range may be a connection's by the time that a process listens at it.
    """
    for port in _PORTS:
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def until(what: str, condition: Callable[[], bool], seconds: float = 180.0) -> None:
    """Wait for a condition of another process, or fail."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds:g} s for: {what}")
        time.sleep(0.05)


class StandInAgent:
    """StandInAgent answers GET /v1/contributions at a unix socket, as the agent does."""

    def __init__(self, path: Path, accepted: Callable[[int], bool]) -> None:
        self.asked: list[tuple[str, int]] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = parse_qs(url.query)
                round_ = int(query["round"][0])
                asked.append((f"{url.path} {query['task'][0]}", round_))
                body = json.dumps({"accepted": accepted(round_)}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def address_string(self) -> str:
                return "unix"

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = socketserver.ThreadingUnixStreamServer(str(path), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.path = path

    def close(self) -> None:
        """End, and leave no socket."""
        self._server.shutdown()
        self._server.server_close()
        self.path.unlink(missing_ok=True)


@dataclass
class Request:
    """Request is what went to the SuperLink, and what it answered."""

    path: str
    headers: dict[str, str]
    body: bytes
    status: int
    answer: bytes


def _http(data: bytes) -> Iterator[tuple[str, dict[str, str], bytes]]:
    while b"\r\n\r\n" in data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("ascii").split("\r\n")
        pairs = (line.partition(": ") for line in lines)
        headers = {name.lower(): value for name, _, value in pairs}
        length = int(headers["content-length"])
        yield first, headers, data[:length]
        data = data[length:]


class Ear:
    """Ear forwards connections to an address, and keeps what was sent both ways."""

    def __init__(self, port: int) -> None:
        self.heard: list[tuple[bytearray, bytearray]] = []
        heard = self.heard

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                try:
                    out = socket.create_connection(("127.0.0.1", port))
                except OSError:
                    return
                sent, told = bytearray(), bytearray()
                heard.append((sent, told))
                back = threading.Thread(target=pump, args=(out, self.request, told))
                back.start()
                pump(self.request, out, sent)
                back.join()
                out.close()

        def pump(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(1 << 16):
                    kept += data
                    sink.sendall(data)
            for sock in (source, sink):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def bytes(self) -> bytes:
        """Give all that was sent."""
        return b"\n".join(bytes(sent) for sent, _ in self.heard)

    def requests(self) -> list[Request]:
        """Give what was sent as HTTP requests, in order for each connection."""
        found = []
        for sent, told in self.heard:
            answers = _http(bytes(told))
            for first, headers, body in _http(bytes(sent)):
                method, path, _ = first.split(" ")
                assert method == "POST"
                status, _, answer = next(answers, ("HTTP/1.1 000", {}, b""))
                found.append(Request(path, headers, body, int(status.split(" ")[1]), answer))
        return found

    def close(self) -> None:
        """Listen no longer."""
        self._server.shutdown()
        self._server.server_close()


def needles(secret: str) -> dict[str, bytes]:
    """Give the ways in which a secret of 8 bytes and more is looked for."""
    raw = secret.encode()
    number = int.from_bytes(raw[:8], "little")
    varint = bytearray()
    left = number
    while left > 0x7F:
        varint.append(left & 0x7F | 0x80)
        left >>= 7
    varint.append(left)
    found = {
        "raw": raw,
        "hex": raw.hex().encode(),
        "reversed": raw[:8][::-1],
        "decimal": str(number).encode(),
        "varint": bytes(varint),
    }
    for shift in range(3):
        text = base64.b64encode(b"\0" * shift + raw)
        found[f"base64+{shift}"] = text[4 if shift else 0 : len(text) // 4 * 4 - 4]
    return found


def where(secret: str, data: bytes) -> list[str]:
    """Say in which forms the data has the secret."""
    return [name for name, needle in needles(secret).items() if needle in data]


class Deployment:
    """Deployment is a SuperLink, and what else a test starts beside it."""

    def __init__(self, root: Path, app: Path = TESTS / "egress_app") -> None:
        self.root = root
        self.port = free_port()
        self.link_home = self._home("link")
        self.database = self.link_home / "state.db"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ears: list[Ear] = []
        shutil.copytree(app, root / "app", ignore=shutil.ignore_patterns("__pycache__"))
        config = f'[superlink.test]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (self.link_home / "config.toml").write_text(config)

    def start_link(self) -> None:
        """Start the SuperLink and wait until it listens."""
        self._start(
            "link",
            self.link_home,
            "flower-superlink",
            *("--insecure", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--database", str(self.database)),
        )
        self._listens("link", self.port)

    def ear(self) -> Ear:
        """Make an ear in front of the SuperLink."""
        ear = Ear(self.port)
        self._ears.append(ear)
        return ear

    def start_filter(self, name: str, ear: Ear, agent: Path, task: str = TASK) -> str:
        """Start the filter and give the address at which it listens."""
        port = free_port()
        self._start(
            name,
            self._home(name),
            sys.executable,
            *("-m", "starling_flower.egress", "--insecure", "--json"),
            *("--superlink", ear.address, "--listen", f"127.0.0.1:{port}"),
            *("--agent", str(agent), "--task", task, "--grid", "0.5"),
        )
        self._listens(name, port)
        return f"127.0.0.1:{port}"

    def start_node(self, name: str, superlink: str, secret: str) -> None:
        """Start a SuperNode whose site has a secret."""
        self.start_site(name, superlink, f'secret="{secret}" superlink="{superlink}"')

    def start_site(self, name: str, superlink: str, config: str) -> None:
        """Start a SuperNode of a configuration."""
        self._start(
            name,
            self._home(name),
            "flower-supernode",
            *("--insecure", "--superlink", superlink, "--node-config", config),
            *("--host", "127.0.0.1", "--port", str(free_port())),
        )

    def run(self, nodes: int, modes: list[str], first_round: int = 0) -> list[dict[str, Any]]:
        """Run the app, and give the replies that the server app got."""
        out = self.link_home / f"replies-{first_round}.jsonl"
        settings = [f"nodes={nodes}", f"task='{TASK}'", f"modes='{','.join(modes)}'"]
        settings += [f"first-round={first_round}", f"out='{out}'"]
        self.start_run(settings)
        lines = nodes * len(modes)

        def whole() -> bool:
            return out.exists() and out.read_bytes().count(b"\n") >= lines

        until(f"{lines} replies; {self.logs()}", whole, 280)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def start_run(self, settings: list[str], *flags: str, seconds: float = 180) -> str:
        """Have the SuperLink run the app, with settings of its own; give what was printed."""
        done = subprocess.run(
            [BIN / "flwr", "run", self.root / "app", "test", *flags, "--run-config", " ".join(settings)],
            env=self._environment(self.link_home),
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def events(self, name: str) -> list[dict[str, Any]]:
        """Give what a filter logged."""
        return [json.loads(line) for line in self.log(name).splitlines()]

    def log(self, name: str) -> str:
        """Give what a process wrote."""
        return (self.root / f"{name}.log").read_text(errors="replace")

    def logs(self) -> str:
        """Give the ends of all logs, for a failure."""
        return "".join(f"\n--- {name}\n{self.log(name)[-1500:]}" for name in self._processes)

    def stop(self, name: str) -> int:
        """End a process and give its exit code."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for ear in self._ears:
            ear.close()

    def at_link(self) -> dict[str, bytes]:
        """Give all that the SuperLink and its server app have written, by file."""
        files = [one for one in self.link_home.rglob("*") if one.is_file()]
        return {str(one): one.read_bytes() for one in [*files, self.root / "link.log"]}

    def _home(self, name: str) -> Path:
        home = self.root / f"home-{name}"
        home.mkdir(exist_ok=True)
        return home

    def _environment(self, home: Path) -> dict[str, str]:
        return {
            "HOME": str(home),
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")])),
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        }

    def _start(self, name: str, home: Path, *command: str) -> None:
        with (self.root / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command,
                env=self._environment(home),
                cwd=home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _listens(self, name: str, port: int) -> None:
        def connects() -> bool:
            if self._processes[name].poll() is not None:
                raise AssertionError(f"{name} ended: {self.log(name)}")
            with socket.socket() as sock:
                return sock.connect_ex(("127.0.0.1", port)) == 0

        until(f"{name} to listen", connects)


@contextlib.contextmanager
def deployment(root: Path, app: Path = TESTS / "egress_app") -> Iterator[Deployment]:
    """Make a deployment, and end what is left of it."""
    made = Deployment(root, app)
    try:
        yield made
    finally:
        made.close()
