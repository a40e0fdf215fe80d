"""A lab of all parties, and a Grid of this process, for tests with no mock in them."""

from __future__ import annotations

import functools
import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity
from starling_agg import Controller, StarlingError, find_binary
from starling_flower import NoSum, RoundMissed


@dataclass
class Lab:
    """What `starling fl lab --json` says, and its process."""

    process: subprocess.Popen[str]
    dir: Path
    task: str
    control: str
    agents: list[str]
    epsilon: float
    delta: float

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def start(sites: int, dimension: int, *flags: str) -> Lab:
    """All parties, with an agent for each site; sockets have short paths."""
    dir = Path(tempfile.mkdtemp(prefix="fl"))
    command = [
        find_binary(whole=True),
        "fl",
        "lab",
        "--json",
        "--sites",
        str(sites),
        "--dimension",
        str(dimension),
        "--keep",
        str(dir / "d"),
        *flags,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(process.stderr.read())
    said = json.loads(line)
    return Lab(
        process, dir, said["task"], said["control"], said["agents"], said["epsilon"], said["delta"]
    )


@dataclass
class Labs:
    """start(...), of rounds times as long, stopped and cleared away at the end."""

    times: int = 1
    missed: bool = False  # a client of a LocalGrid missed its round
    running: list[Lab] = field(default_factory=list)

    def __call__(self, sites: int, dimension: int, *flags: str) -> Lab:
        at = flags.index("--round") + 1
        length = f"{int(flags[at].removesuffix('s')) * self.times}s"
        self.running.append(start(sites, dimension, *flags[:at], length, *flags[at + 1 :]))
        return self.running[-1]

    def late(self, e: BaseException) -> bool:
        """Whether a round was missed by somebody, which may be why a test failed."""
        return self.missed or isinstance(e, (NoSum, RoundMissed)) or any(map(skipped, self.running))

    def stop(self) -> None:
        for lab in self.running:
            lab.stop()
            shutil.rmtree(lab.dir, ignore_errors=True)
        self.running.clear()


def skipped(lab: Lab) -> bool:
    """Whether the controller has skipped a round."""
    try:
        return Controller(lab.control).status().skipped > 0
    except StarlingError:
        return False


@pytest.fixture
def labs() -> Iterator[Labs]:
    made = Labs()
    LocalGrid.labs = made
    yield made
    made.stop()


def unhurried(test: Callable[..., None]) -> Callable[..., None]:
    """A test is made once more where it fails and a round was missed, in rounds five times as long.

    Its rounds of some seconds are too short for a machine that stands still for as long, or that
    is much slower than others; and longer ones would be waited for everywhere.
    """

    @functools.wraps(test)
    def run(labs: Labs, **rest: Any) -> None:
        try:
            test(labs, **rest)
        except (Exception, pytest.fail.Exception) as e:
            if not labs.late(e):
                raise
        else:
            return
        labs.stop()
        labs.times = 5
        test(labs, **rest)

    return run


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """One lab for tests that change nothing of it, or one round: 3 sites, models of 15 numbers."""
    one = start(3, 15, "--rounds", "30", "--round", "3s", "--epsilon", "100")
    yield one
    one.stop()
    shutil.rmtree(one.dir, ignore_errors=True)


class LocalGrid(Grid):
    """Nodes of this process: each runs a ClientApp, as flwr-clientapp does."""

    labs = Labs()  # of the test that runs

    def __init__(
        self, app: ClientApp, configs: list[dict[str, Any]], run_config: dict[str, Any] | None = None
    ) -> None:
        self._app, self._run = app, run_config or {}
        self.contexts = {
            i + 1: Context(
                run_id=1, node_id=i + 1, node_config=c, state=RecordDict(), run_config=self._run
            )
            for i, c in enumerate(configs)
        }
        self.replies: list[Message] = []
        self.only: set[int] | None = None  # nodes that answer; all if None

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def _answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        message.metadata.__dict__["_message_id"] = f"m{node}"
        try:
            return self._app(message, self.contexts[node])
        except Exception as e:  # as flwr-clientapp has it
            LocalGrid.labs.missed |= isinstance(e, RoundMissed)
            return Message(Error(code=2, reason=f"{type(e)}:<'{e}'>"), reply_to=message)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        # Nodes have messages of their own, in other processes.
        asked = [
            Message(
                RecordDict(dict(m.content)),
                dst_node_id=m.metadata.dst_node_id,
                message_type=m.metadata.message_type,
            )
            for m in messages
            if self.only is None or m.metadata.dst_node_id in self.only
        ]
        with ThreadPoolExecutor(32) as pool:
            replies = list(pool.map(self._answer, asked))
        self.replies += replies
        return replies


def model(*shapes: tuple[int, ...]) -> ArrayRecord:
    """Zeros."""
    return ArrayRecord({f"layer{i}": Array(np.zeros(s, dtype=np.float32)) for i, s in enumerate(shapes)})


def trained(message: Message, by: Any) -> Message:
    """A reply as FedAvg's clients have it: each array of the model plus by(its values)."""
    arrays = message.content["arrays"]
    out = ArrayRecord({k: Array((a.numpy() + by(a.numpy())).astype(a.dtype)) for k, a in arrays.items()})
    return Message(
        RecordDict({"arrays": out, "metrics": MetricRecord({"num-examples": 17, "loss": 0.5})}),
        reply_to=message,
    )


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of Flower's, with no agent of this machine and no telemetry."""
    monkeypatch.delenv("STARLING_AGENT", raising=False)
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
