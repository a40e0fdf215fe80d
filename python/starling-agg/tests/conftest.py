"""Real parties on loopback: leader, helper, controller and two agents of a training."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import starling_agg
from starling_agg import Agent, Controller

NUMBERS = 6
ROUNDS = 3


@pytest.fixture(scope="session")
def binary() -> str:
    return starling_agg.find_binary()


@pytest.fixture(scope="session")
def whole() -> str:
    """The program with all parties."""
    return starling_agg.find_binary(whole=True)


def run(binary: str, *args: Any, cwd: Path) -> str:
    done = subprocess.run([binary, *map(str, args)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


_PORTS = iter(random.Random(os.getpid()).sample(range(12000, 32000), 2000))


def free_port() -> int:
    """A port that nobody listens at, outside of the range that connections are made from."""
    for port in _PORTS:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


CONTROLLER = """\
role = "controller"
data = "controller"
record = "controller.record"
key = "secrets/controller.key"
terms = "training.toml"
collector = "../ada/collector.toml"
control = "controller/control.sock"
manual = true
cohort = 2
average = 1.0
poll = "200ms"
[optimizer]
rate = 1.0
[public]
address = "127.0.0.1:{public}"
[local]
address = "127.0.0.1:{local}"
"""

# The second recipe is of no training, and its servers are away: nothing of it comes so far.
AGENT = """\
role = "agent"
socket = "run/agent.sock"
data = "ledger"
budget_epsilon = 1e6
budget_delta = 0.1
any_keys = true
[[tasks]]
recipe = "../recipe.starling"
models = "{models}"
max_epsilon = 1e6
min_batch = 2
data = ["digits"]
[[tasks]]
recipe = "../plain.starling"
data = ["digits"]
[local]
address = "127.0.0.1:{local}"
"""


class Deployment:
    """Files in a directory, and the processes that serve them."""

    def __init__(self, binary: str, dir: Path, agents: str = "") -> None:
        self.binary, self.dir, self.agents = binary, dir, agents  # programs, and where
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.port = {n: free_port() for n in ("leader", "helper", "controller")}

    def url(self, party: str) -> str:
        return f"http://127.0.0.1:{self.port[party]}/"

    def make(self) -> None:
        def init(*args: Any) -> dict[str, Any]:
            made = json.loads(run(self.binary, "init", "--json", *args, cwd=self.dir))
            assert isinstance(made, dict)
            return made

        def ports(party: str) -> tuple[str, ...]:
            return ("--url", self.url(party), "--local", f"127.0.0.1:{free_port()}")

        collector = init("collector", "--owner", "Ada", "ada")
        leader = init("leader", "--owner", "Ada", *ports("leader"), "ada")
        joined: tuple[str, ...] = (
            "--join",
            "ada/invitations/leader.invitation",
            "--fingerprint",
            leader["fingerprint"],
        )
        joined += (
            "--join",
            "ada/invitations/collector.invitation",
            "--fingerprint",
            collector["fingerprint"],
        )
        helper = init("helper", "--owner", "Ben", *ports("helper"), *joined, "ben")
        init(
            "--join", "ben/invitations/helper.invitation", "--fingerprint", helper["fingerprint"], "ada"
        )
        key = init("controller", "--owner", "Cleo", *ports("controller"), "cleo")["public"][0]
        terms = f'clip = 1.0\nrounds = {ROUNDS}\n[[tensor]]\nname = "w"\nshape = [2, {NUMBERS // 2}]\n'
        (self.dir / "cleo/training.toml").write_text(terms)
        servers: tuple[str, ...] = ("--leader", self.url("leader"), "--helper", self.url("helper"))
        servers += ("--precision", "1s", "--grace", "1s", "--round", "4", "--min-batch", "2")
        run(
            *(self.binary, "recipe", "new", "--name", "Training", "--query", f"vector:{NUMBERS}:1:10"),
            *("--epsilon", "100", "--delta", "1e-3", "--rounds", ROUNDS, *servers),
            *("--controller", key, "--terms", "cleo/training.toml", "recipe.starling"),
            cwd=self.dir,
        )
        for server in ("ada/leader.toml", "ben/helper.toml"):
            with (self.dir / server).open("a") as f:
                f.write('\n[limits]\nclock_skew = "1s"\n')
        plain = (
            "--leader",
            "http://127.0.0.1:9/",
            "--helper",
            "http://127.0.0.1:10/",
            "--min-batch",
            "20",
        )
        run(
            *(self.binary, "recipe", "new", "--name", "Plain", "--query", f"vector:{NUMBERS}:1:10"),
            *("--epsilon", "4", "--round", "8760", *plain, "plain.starling"),
            cwd=self.dir,
        )
        for party in ("ada", "ben", "cleo"):
            shutil.copy(self.dir / "recipe.starling", self.dir / party)
        (self.dir / "cleo/controller.toml").write_text(
            CONTROLLER.format(public=self.port["controller"], local=free_port())
        )
        for agent in ("one", "two"):
            (self.dir / agent).mkdir()
            (self.dir / agent / "agent.toml").write_text(
                AGENT.format(models=self.url("controller"), local=free_port())
            )

    def start(self, role: str, config: str) -> None:
        log = (self.dir / f"{config.replace('/', '-')}.log").open("ab")
        with log:
            self.running[config] = subprocess.Popen(
                [self.agents if role == "agent" else self.binary, "serve", role, config],
                cwd=self.dir,
                stdout=log,
                stderr=log,
            )

    def stop(self, config: str, how: int = signal.SIGTERM) -> None:
        p = self.running.pop(config)
        p.send_signal(how)
        p.wait(30)

    def agent(self, name: str) -> Agent:
        """An agent's client, once it answers."""
        a = Agent(self.dir / name / "run/agent.sock")
        wait_for(lambda: a.tasks() and True, starling_agg.AgentDown, self)
        return a

    def controller(self) -> Controller:
        c = Controller(self.dir / "cleo/controller/control.sock")
        wait_for(lambda: c.session() and True, starling_agg.ControllerError, self)
        return c

    def logs(self) -> str:
        return "".join(f"{p.name}\n{p.read_text()[-3000:]}" for p in self.dir.glob("*.log"))


def wait_for(true: Any, passing: type[Exception] = (), dep: Deployment | None = None) -> Any:  # type: ignore[assignment]
    """Wait up to a minute until something is true, or until it is no longer refused."""
    end = time.monotonic() + 60
    while True:
        last: object = "it stays untrue"
        with contextlib.suppress(KeyError):
            try:
                got = true()
                if got:
                    return got
            except passing as e:
                last = e
        if time.monotonic() > end:
            pytest.fail(f"{last}\n{dep.logs() if dep else ''}")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def deployment(whole: str, binary: str) -> Iterator[Deployment]:
    # A unix socket's path has about a hundred bytes: not below pytest's own directory.
    with tempfile.TemporaryDirectory(prefix="agg") as dir:
        d = Deployment(whole, Path(dir), binary)
        d.make()
        try:
            d.start("leader", "ada/leader.toml")
            d.start("helper", "ben/helper.toml")
            d.start("controller", "cleo/controller.toml")
            for agent in ("one", "two"):
                d.start("agent", f"{agent}/agent.toml")
            yield d
        finally:
            for config in list(d.running):
                d.stop(config)
            if os.environ.get("STARLING_LOGS"):
                print(d.logs())
