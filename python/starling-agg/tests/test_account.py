"""The kept accountant against the command, and what can happen to a process."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy
import pytest
import starling_agg as sa
from starling_agg import Accountant
from starling_agg._account import arguments
from starling_agg._process import Process, shared

DELTA = 1e-8
QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    (
        "account",
        {"mechanism": "gaussian", "sigma": 5.1, "sampling": 0.02, "steps": 2500, "delta": DELTA},
    ),
    ("account", {"mechanism": "gaussian", "sigma": 2.0123456789012345, "epsilon": 1}),
    ("account", {"mechanism": "discrete-gaussian", "sigma": 10, "steps": 100, "delta": 1e-6}),
    (
        "account",
        {
            "mechanism": "correlated-gaussian",
            "sigma": 30,
            "bands": 8,
            "rounds": 100,
            "steps": 4,
            "delta": DELTA,
        },
    ),
    ("account", {"mechanism": "laplace", "scale": 3, "delta": 1e-300}),
    ("account", {"mechanism": "discrete-laplace", "scale": 20, "steps": 7, "delta": 1e-7}),
    ("account", {"mechanism": "rr", "epsilon0": 2, "k": 4, "delta": 1e-6}),
    ("account", {"mechanism": "rappor", "epsilon0": 1.5, "k": 8, "ldp": "deletion", "delta": 1e-6}),
    ("account", {"mechanism": "gaussian", "solve": "sigma", "epsilon": 0.1, "delta": DELTA}),
    (
        "account",
        {
            "mechanism": "gaussian",
            "sigma": 4,
            "steps": 3,
            "method": "rdp",
            "orders": "1.5,2,16",
            "delta": 1e-5,
        },
    ),
    ("plan", {"query": "histogram:21", "people": 20000, "within": "1%"}),
    ("plan", {"query": "mean:100", "people": 500, "within": 0.01, "epsilon": 0.5, "rounds": 12}),
]


def command(binary: str, method: str, flags: dict[str, Any]) -> str:
    words = {"account": ["account"], "plan": ["recipe", "plan"], "fl plan": ["fl", "plan"]}[method]
    for k, v in flags.items():
        words += ["--" + k.replace("_", "-"), str(v)]
    done = subprocess.run([binary, *words, "--json"], capture_output=True, text=True)
    assert done.returncode in (0, 6), done.stderr
    return done.stdout


def as_written(text: str | bytes) -> Any:
    """JSON whose numbers are the texts that stood there."""
    return json.loads(text, parse_float=lambda s: "n" + s, parse_int=lambda s: "n" + s)


@pytest.fixture
def accountant(binary: str) -> Accountant:
    return Accountant(binary)


@pytest.mark.parametrize(("method", "flags"), QUESTIONS)
def test_same_digits(binary: str, accountant: Accountant, method: str, flags: dict[str, Any]) -> None:
    """A kept process answers as the command does, to the digit, and so does the object."""
    want = command(binary, method, flags)
    reply = accountant.ask(method, *arguments(flags))
    assert as_written(reply.line)["result"] == as_written(want)
    answer = accountant.account(**flags) if method == "account" else accountant.plan(**flags)
    assert answer.raw == json.loads(want)
    assert answer.epsilon == json.loads(want)["epsilon"]


def test_every_mechanism(accountant: Accountant) -> None:
    """There is a method for each mechanism that the command lists, and for no other."""
    with pytest.raises(sa.CommandError) as e:
        accountant.account("none", sigma=1, delta=DELTA)
    listed = {w.replace("-", "_") for w in e.value.hint.removeprefix("one of ").split(", ")}
    others = {"account", "ask", "close", "curve", "events", "fl_plan", "hello", "plan", "show", "solve"}
    assert listed | others == {m for m in vars(Accountant) if not m.startswith("_")}
    for name in listed:
        with pytest.raises(sa.CommandError) as e:
            getattr(accountant, name)()
        assert e.value.kind == "usage"


def test_refusals_in_the_commands_words(accountant: Accountant) -> None:
    for flags, words in {
        (("sigma", 1), ("sgma", 2)): "no flag --sgma",
        (("sigma", -1), ("delta", 0.1)): "sigma",
        (("sigma", "many"), ("delta", 0.1)): "many",
        (("sigma", 1), ("delta", float("nan"))): "delta",
        (("sigma", 1), ("delta", 0.1), ("neighbours", "<b>twins</b>")): "<b>twins</b>",
    }.items():
        with pytest.raises(sa.CommandError, match=words) as e:
            accountant.gaussian(**dict(flags))
        assert (e.value.kind, e.value.exit) == ("usage", 2)
        assert e.value.hint
    for word in ("json", "serve"):
        with pytest.raises(sa.CommandError):
            accountant.gaussian(sigma=1, delta=0.1, **{word: True})
    with pytest.raises(sa.CommandError, match="no method") as e:
        accountant._raised(accountant.ask("nothing"), False)
    assert e.value.kind == "question"
    with pytest.raises(sa.CommandError, match="bytes"):
        accountant.gaussian(sigma=1, delta=0.1, orders="1," * 3_000_000)
    assert accountant.gaussian(sigma=1, delta=0.1).epsilon


def test_values(accountant: Accountant) -> None:
    """numpy's numbers, fractions and lists are what they say."""
    want = accountant.gaussian(sigma=4.0, steps=3, method="rdp", orders="1.5,2,16", delta=1e-5)
    got = accountant.gaussian(
        sigma=numpy.float64(4),
        steps=numpy.int32(3),
        method="rdp",
        orders=[1.5, 2, numpy.int8(16)],
        delta=1e-5,
    )
    assert got == want
    a = accountant.plan(query="count", people=1000, epsilon=1)
    assert a.fits
    assert a.needs is None
    t = accountant.fl_plan(devices=8000, dimension=650, sample=Fraction(1, 8), rounds=16)
    assert t.participation.endswith("1/8 of them report")


def test_plan_out_of_reach(accountant: Accountant) -> None:
    p = accountant.plan(query="mean:100", people=500, within="1%", epsilon=0.5, rounds=12)
    assert not p.fits
    assert p.needs is not None
    assert p.needs.people > 500


def test_fl_plan(binary: str, accountant: Accountant) -> None:
    """As the command's, but for how fast the machine was."""
    flags = {"devices": 8000, "dimension": 650, "sample": "1/8", "rounds": 16, "epsilon": 2}
    want = as_written(command(binary, "fl plan", flags))
    got = as_written(accountant.ask("fl plan", *(f"--{k}={v}" for k, v in flags.items())).line)["result"]
    for x in (want, got, *want["instead"], *got["instead"]):
        for measured in ("device_seconds", "server_seconds", "busy_seconds"):
            del x[measured]
    assert got == want
    t = accountant.fl_plan(**flags)
    assert [s.rounds for s in t.spent] == list(t.curve().x)
    assert "rounds" in t.svg()


def test_solve_and_events(accountant: Accountant, binary: str, tmp_path: Path) -> None:
    s = accountant.solve("sigma", "gaussian", epsilon=1, delta=DELTA)
    asked = accountant.gaussian(sigma=s.sigma, delta=DELTA)
    assert asked.epsilon is not None
    assert asked.epsilon <= 1
    events = [
        {"mechanism": "gaussian", "sigma": numpy.float32(5), "sampling": 0.02, "count": 2500},
        {"mechanism": "discrete-laplace", "scale": 20, "count": 3},
        {"mechanism": "approx-dp", "epsilon": 0.1, "delta": 1e-10},
    ]
    file = tmp_path / "events.json"
    file.write_text(json.dumps(events, default=float))
    want = json.loads(command(binary, "account", {"events": file, "delta": DELTA}))
    assert accountant.events(events, delta=DELTA).raw == want
    with pytest.raises(sa.CommandError, match="gausian"):
        accountant.events([{"mechanism": "gausian", "sigma": 1}], delta=DELTA)


def test_show(
    binary: str, accountant: Accountant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe is found from where Python is, wherever the process began."""
    accountant.hello()
    monkeypatch.chdir(tmp_path)
    name = "<img src=x onerror=alert(1)> & sons"
    subprocess.run(
        [
            *(
                binary,
                "recipe",
                "new",
                "--name",
                name,
                "--query",
                "count",
                "--leader",
                "http://127.0.0.1:9/",
            ),
            *("--helper", "http://127.0.0.1:10/", "--min-batch", "20", "--epsilon", "1", "r.starling"),
        ],
        check=True,
        capture_output=True,
    )
    r = accountant.show("r.starling")
    assert r.name == name
    assert r.guarantee.epsilon <= 1
    assert accountant.show(tmp_path / "r.starling") == r
    assert "<img" not in r._repr_html_()
    assert "&lt;img" in r._repr_html_()
    with pytest.raises(sa.CommandError) as e:
        accountant.show("none.starling")
    assert e.value.kind == "input"


def test_killed(accountant: Accountant) -> None:
    """A process that is killed between questions, or while one is asked, comes back."""
    want = accountant.gaussian(sigma=3, delta=DELTA)
    process = accountant._process
    before = process.pid
    assert before
    os.kill(before, signal.SIGKILL)
    assert accountant.gaussian(sigma=3, delta=DELTA) == want
    assert process.pid != before

    # Stopped it does not answer; killed then, the question goes to the next one.
    stopped = process.pid
    assert stopped
    os.kill(stopped, signal.SIGSTOP)
    got: list[sa.Guarantee] = []
    asker = threading.Thread(target=lambda: got.append(accountant.gaussian(sigma=3, delta=DELTA)))
    asker.start()
    os.kill(stopped, signal.SIGKILL)
    asker.join(30)
    assert got == [want]
    accountant.close()
    assert process.pid is None
    assert accountant.gaussian(sigma=3, delta=DELTA) == want


def test_threads(accountant: Accountant) -> None:
    """Threads get their own answers, of one process."""
    want = {s: accountant.gaussian(sigma=s, delta=DELTA) for s in range(1, 9)}
    pid = accountant._process.pid
    wrong: list[Any] = []

    def ask(s: int) -> None:
        for _ in range(20):
            if (got := Accountant(accountant._binary).gaussian(sigma=s, delta=DELTA)) != want[s]:
                wrong.append((s, got))

    threads = [threading.Thread(target=ask, args=(s,)) for s in want]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert accountant._process.pid == pid


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork(accountant: Accountant) -> None:
    """A forked child asks a process of its own, even if a thread asked while it was forked."""
    want = accountant.gaussian(sigma=3, delta=DELTA)
    parent = accountant._process.pid
    accountant._process._lock.acquire()  # as a thread has it that is in a question
    try:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                own = accountant.gaussian(sigma=3, delta=DELTA)
                os.write(write, f"{own == want} {accountant._process.pid}".encode())
            finally:
                os._exit(0)
        os.close(write)
        said = os.read(read, 100).split()
        os.waitpid(child, 0)
        os.close(read)
    finally:
        accountant._process._lock.release()
    assert said[0] == b"True"
    assert int(said[1]) != parent
    assert accountant.gaussian(sigma=3, delta=DELTA) == want
    assert accountant._process.pid == parent
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_epsilon, [accountant._binary] * 4) == [want.epsilon] * 4


def _epsilon(binary: str) -> float | None:
    return Accountant(binary).gaussian(sigma=3, delta=DELTA).epsilon


def test_ends_with_the_interpreter(binary: str) -> None:
    """The process ends when the interpreter does, also one that is killed or was forked."""
    program = (
        "import os, sys, time, starling_agg\n"
        "a = starling_agg.Accountant(sys.argv[1]); a.hello()\n"
        "print(a._process.pid, flush=True)\n"
        "if sys.argv[2] == 'fork' and os.fork() == 0: time.sleep(60); os._exit(0)\n"
        "if sys.argv[2] == 'kill': os.kill(os.getpid(), 9)\n"
    )
    for how in ("leave", "kill", "fork"):
        p = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program, binary, how],
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert p.stdout is not None
        pid = int(p.stdout.readline())
        p.wait(30)
        try:
            end = time.monotonic() + 30
            while Path(f"/proc/{pid}").exists() and _state(pid) not in "ZX":
                assert time.monotonic() < end, f"{how}: it is still there"
                time.sleep(0.02)
        finally:
            p.stdout.close()
            if how == "fork":
                os.killpg(p.pid, signal.SIGKILL)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def fake(tmp_path: Path, *lines: str) -> str:
    """A program that says hello as starling does and then what it was told to."""
    program = tmp_path / f"fake{len(list(tmp_path.iterdir()))}"
    body = "".join(f"read q; printf '%s\\n' '{line}'\n" for line in lines)
    program.write_text(f"#!/bin/sh\n{body}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


HELLO = '{"id":1,"result":{"protocol":1,"program":"starling","methods":["hello","account"]}}'


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "[]",
        '{"id":7,"result":{}}',
        '{"result":{}}',
        '{"id":2}',
        '{"id":2,"error":"bad"}',
        '{"id":2,"error":{"hint":"h"}}',
        '{"id":2,"result":[1]}',
        '{"id":2,"result":{},"notes":3}',
        '{"id":2,"result":{"epsilon":1}',
    ],
)
def test_malformed_answers(tmp_path: Path, line: str) -> None:
    with pytest.raises(sa.MalformedAnswer) as e:
        Accountant(fake(tmp_path, HELLO, line)).gaussian(sigma=1, delta=0.1)
    assert len(str(e.value)) < 500


def test_programs_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(sa.AccountantDown, match="ended before"):
        Accountant("/bin/false").hello()
    with pytest.raises(sa.MalformedAnswer, match="protocol"):
        Accountant(fake(tmp_path, '{"id":1,"result":{"protocol":2}}')).hello()
    with pytest.raises(sa.BinaryMissing):
        Accountant(tmp_path / "none").hello()
    slow = fake(tmp_path, HELLO)
    Path(slow).write_text(Path(slow).read_text() + "exec sleep 60\n")
    with pytest.raises(sa.AccountantDown, match="within"):
        Accountant(slow, timeout=0.5).gaussian(sigma=1, delta=0.1)
    monkeypatch.setenv("STARLING", str(tmp_path / "none"))
    with pytest.raises(sa.BinaryMissing, match="STARLING"):
        Accountant()
    monkeypatch.setenv("STARLING", slow)
    assert Accountant()._binary == sa.find_binary() == slow
    monkeypatch.delenv("STARLING_WHOLE", raising=False)
    assert sa.find_binary(whole=True) == slow
    monkeypatch.setenv("STARLING_WHOLE", "/bin/true")
    assert sa.find_binary(whole=True) == "/bin/true"
    assert sa.find_binary() == slow


def test_interrupted(accountant: Accountant, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C the next question does not get the answer of the one before."""
    want = accountant.gaussian(sigma=3, delta=DELTA)

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(Process, "_read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            accountant.gaussian(sigma=2, delta=DELTA)
    assert accountant.gaussian(sigma=3, delta=DELTA) == want


def test_one_process(accountant: Accountant) -> None:
    assert Accountant(accountant._binary)._process is accountant._process
    assert shared((accountant._binary, "account", "--serve")) is accountant._process
