"""Answers, curves, vectors, frames, pictures, and what another server may say."""

from __future__ import annotations

import json
import math
import pickle
import re
import socket
import socketserver
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from array import array
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pytest
import starling_agg as sa
from conftest import Deployment, wait_for
from starling_agg._svg import lines, number, ticks
from starling_agg._vector import floats, read_floats

HOSTILE = "</td><script>alert('x')</script>\"&"


def test_answer() -> None:
    raw = {"a": 1, "list": [1, {"b": 2}], "within": {"c": None}, HOSTILE: HOSTILE, "frame": 3}
    x = sa.Answer(raw)
    assert (x.a, x["frame"], x.list[1].b, x.within.c) == (1, 3, 2, None)
    with pytest.raises(AttributeError, match="has no 'x'"):
        _ = x.x
    with pytest.raises(AttributeError, match="frozen"):
        x.a = 2
    with pytest.raises(AttributeError, match="frozen"):
        x.new = 2
    with pytest.raises(AttributeError, match="frozen"):
        del x.a
    x.raw["list"].append(3)
    assert x.raw == raw, "raw is a copy"
    assert x == pickle.loads(pickle.dumps(x))
    assert hash(x) == hash(sa.Answer(raw))
    assert x != sa.Guarantee(raw)
    assert "a" in x
    assert "b" not in x
    assert set(raw) <= set(dir(x))
    assert repr(x).startswith("Answer(a=1, list=(1, {b=2}), within={c=None}")
    html = x._repr_html_()
    assert "<script" not in html
    ET.fromstring(html)
    with pytest.raises(sa.MalformedAnswer):
        sa.Guarantee([1])  # type: ignore[arg-type]
    assert sa.Task({"task": "x"}).model is None
    assert len(repr(sa.Answer({"x": list(range(1000)), "y": "z" * 10000}))) < 500


def test_curve(binary: str) -> None:
    c = sa.Accountant(binary).curve(
        "gaussian", sigma=5.1, sampling=0.02, steps=range(500, 2501, 500), delta=1e-8
    )
    assert (c.over, c.what, c.x) == ("steps", "epsilon", (500, 1000, 1500, 2000, 2500))
    assert c.y == tuple(a.epsilon for a in c.answers)
    assert list(c.y) == sorted(c.y, key=float)  # type: ignore[arg-type]
    assert c[-1] == sa.Accountant(binary).gaussian(sigma=5.1, sampling=0.02, steps=2500, delta=1e-8)
    assert c.raw[0]["steps"] == 500
    assert "5 points" in repr(c)
    root = ET.fromstring(c.svg())
    texts = {"".join(e.itertext()) for e in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"steps", "epsilon", "at least"} <= texts
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 10
    assert c._repr_svg_() == c.svg()
    d = sa.Accountant(binary).curve("gaussian", sigma=[1, 2.5], epsilon=1)
    assert d.what == "delta"
    s = sa.Accountant(binary).curve("gaussian", solve="sigma", epsilon=[0.5, 1], delta=1e-6)
    assert s.what == "sigma"
    assert s[0].sigma > s[1].sigma
    for flags in ({"sigma": 1}, {"sigma": [1], "steps": [1, 2]}):
        with pytest.raises(TypeError, match="one keyword"):
            sa.Accountant(binary).curve("gaussian", delta=1e-6, **flags)


def test_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pandas is there rows go to it; where not, an error says what to do."""
    made: list[Any] = []

    class Pandas:
        @staticmethod
        def DataFrame(rows: Any) -> str:
            made.append(rows)
            return "frame"

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    assert sa.Answer({"a": 1, "b": [1]}).frame() == "frame"
    curve = sa.Curve("steps", "epsilon", {}, [(1, sa.Answer({"epsilon": 2, "list": []}))])
    curve.frame()
    sa.Result(
        {"estimate": [1.5, 2], "interval95": [[1, 2], [0, 4]], "stderr": [1, 2], "raw": [1, 2]}
    ).frame()
    assert made[0] == [{"a": 1}]
    assert made[1] == [{"steps": 1, "epsilon": 2}]
    assert made[2][1] == {"bucket": 1, "estimate": 2, "stderr": 2, "low": 0, "high": 4}
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(sa.FramesMissing, match="pip install pandas"):
        curve.frame()


def test_pictures() -> None:
    """Pictures are XML whatever stands in them, and a missing number is a gap."""
    svg = lines(HOSTILE, HOSTILE, HOSTILE, [0, 1, 2, 3], [(HOSTILE, [1, None, math.inf, 2])])
    assert "<script" not in svg
    root = ET.fromstring(svg)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
    for x, ys in (([], []), ([1], [0.0]), ([1, 1], [None, None]), ([-5, 1e9], [1e-300, 1e300])):
        text = lines("t", "x", "y", x, [("s", ys)])
        assert not re.search("nan|inf", ET.tostring(ET.fromstring(text), "unicode"))
    for low, high in ((0, 1), (3, 2500), (0, 1e-9), (-7, 7), (5, 5), (0.1, 0.30000000000000004)):
        t = ticks(low, high)
        assert t[0] <= low + 1e-12
        assert t[-1] >= high - 1e-12
        assert 2 <= len(t) <= 9
    assert [number(v) for v in (2500, 0.1 + 0.2, 1e8)] == ["2,500", "0.3", "1e+08"]


VECTORS: list[Any] = [
    [1, -2.5, 0, 0.125],
    (1.0, -2.5, 0.0, 0.125),
    array("f", [1, -2.5, 0, 0.125]),
    array("d", [1, -2.5, 0, 0.125]),
    numpy.array([1, -2.5, 0, 0.125]),
    numpy.array([[1, -2.5], [0, 0.125]], dtype="<f4"),
    numpy.asfortranarray(numpy.array([[1, -2.5], [0, 0.125]], dtype="f4")),
    numpy.array([1, 9, -2.5, 9, 0, 9, 0.125, 9], dtype=">f4")[::2],
    numpy.array([1, -2.5, 0, 0.125], dtype="f2"),
    memoryview(numpy.array([1, -2.5, 0, 0.125], dtype="f4").tobytes()).cast("f"),
    (x for x in (1, -2.5, 0, 0.125)),
]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: type(v).__name__)
def test_vectors(vector: Any) -> None:
    want = numpy.array([1, -2.5, 0, 0.125], dtype="<f4").tobytes()
    assert floats(vector) == want
    assert read_floats(want) == array("f", [1, -2.5, 0, 0.125])


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ([], "empty"),
        (numpy.zeros((0,), "f4"), "empty"),
        ([1, math.nan], "number 1 of the vector is nan"),
        ([-math.inf, 1], "number 0"),
        ([math.inf, -math.inf], "number 0"),
        ([1e39], "number 0|32 bits"),
        (array("d", [1e39]), "number 0|32 bits"),
        (numpy.array([1, 2]), "no float"),
        (numpy.array([True]), "no float"),
        (numpy.array([1j]), "no float"),
        (b"1234", "no float"),
        ("1234", "text"),
        (3.5, "no vector"),
        (None, "no vector"),
        (["1"], "no run of numbers"),
        ([[1.0]], "no run of numbers"),
        ([1.0, 2.0], "2 numbers, and 3 are wanted"),
    ],
)
def test_bad_vectors(vector: Any, words: str) -> None:
    with pytest.raises(sa.BadVector, match=words) as e:
        floats(vector, 3 if words.endswith("wanted") else None)
    assert isinstance(e.value, ValueError)
    assert e.value.hint


class Server:
    """A unix socket that answers each connection as it is told, and counts."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked = path, 0
        self.answers: list[bytes | None] = []
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                head = b""
                while b"\r\n\r\n" not in head and (line := self.rfile.readline()):
                    head += line
                if m := re.search(rb"(?i)content-length: (\d+)", head):
                    self.rfile.read(int(m[1]))
                answer = outer.answers[min(outer.asked, len(outer.answers) - 1)]
                outer.asked += 1
                if answer is not None:
                    self.wfile.write(answer)

        self.server = socketserver.UnixStreamServer(str(path), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def says(self, *answers: bytes | None) -> Server:
        self.asked, self.answers = 0, list(answers)
        return self


def http(status: int, body: bytes, *headers: str) -> bytes:
    head = "".join(h + "\r\n" for h in (f"Content-Length: {len(body)}", *headers))
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    s = Server(tmp_path / "s")
    yield s
    s.server.shutdown()
    s.thread.join()
    s.server.server_close()


OK = http(200, b'{"accepted":true}')


def test_agent_answers(server: Server) -> None:
    """Another's answers are refused; broken connections are tried again where it is harmless."""
    a = sa.Agent(server.path, timeout=60)
    task = sa.Task({"task": "0" * 64, "allowed": True, "numbers": 1})
    give = partial(a.contribute, task, 1, [1.0])
    for answer in (
        http(200, b"accepted"),
        http(200, b"{}"),
        http(200, b'{"accepted":false}'),
        http(200, b'{"accepted":1}'),
        http(500, b"oops"),
        http(500, b"[]"),
        http(302, b"", "Location: http://127.0.0.1/"),
    ):
        with pytest.raises(sa.MalformedAnswer):
            server.says(answer) and give()
    for breaks in (None, b"HTTP/1.1 200 X\r\nContent-Length: 40\r\n\r\n{"):
        server.says(breaks, breaks, OK)
        give()
        assert server.asked == 3
        with pytest.raises(sa.AgentDown):
            server.says(breaks) and give()
        assert server.asked == 3
    server.says(OK)
    a.contribute(task, 1, (x for x in [1.0]))  # what can be read once
    said = http(503, json.dumps({"error": "unavailable", "problem": HOSTILE}).encode())
    with pytest.raises(sa.Unavailable):
        server.says(said) and give()
    assert server.asked == 1, "the agent has tried itself"
    with pytest.raises(sa.MalformedAnswer):
        server.says(http(200, b"{}")) and a.tasks()
    for headers in ((), ("Starling-Round: x", "Starling-Clip: 1")):
        with pytest.raises(sa.MalformedAnswer):
            server.says(http(200, b"1234", *headers)) and a.model("0" * 64)
    with pytest.raises(sa.MalformedAnswer):
        server.says(http(200, b"12345", "Starling-Round: 1", "Starling-Clip: 1")) and a.model("0" * 64)
    server.says(http(200, b"[]"))
    assert a.tasks() == []


def test_controller_answers(server: Server) -> None:
    c = sa.Controller(server.path, timeout=60)
    with pytest.raises(sa.ControllerDown, match="whether the round has begun"):
        server.says(None) and c.begin()
    assert server.asked == 1, "a round is never begun twice"
    for status, cls in {
        400: sa.BadModel,
        404: sa.NotThere,
        409: sa.Busy,
        410: sa.Ended,
        413: sa.BadModel,
        503: sa.ControllerUnavailable,
        500: sa.ControllerError,
    }.items():
        with pytest.raises(cls, match="why") as e:
            server.says(http(status, b'{"error":"why"}')) and c.begin([1.0])
        assert type(e.value) is cls
        assert e.value.status == status
    with pytest.raises(sa.ControllerUnavailable, match="not started"):
        server.says(http(503, b"not started\n")) and c.status()


def test_timeout(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(tmp_path / "s"))
        s.listen()
        with pytest.raises(sa.AgentTimeout, match="the same bytes cost nothing"):
            sa.Agent(tmp_path / "s", timeout=0.2).tasks()
        with pytest.raises(sa.ControllerDown):
            sa.Controller(tmp_path / "s", timeout=0.2).begin()


def test_collect(whole: str, tmp_path: Path) -> None:
    """A batch of a lab's deployment, asked for again, and one of which nothing comes."""
    subprocess.run(
        [whole, "lab", "--rows", "300", "--keep", "lab", "--out", "."],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    lab = tmp_path / "lab"
    state = json.loads((lab / "collector.state").read_text())
    d = Deployment(whole, lab)
    for role in ("leader", "helper"):
        d.start(role, f"{role}.toml")
    try:
        end = datetime.fromisoformat(state["next"])
        begin, to = (t.strftime("%Y-%m-%dT%H:%M:%SZ") for t in (end - timedelta(seconds=10), end))
        got: list[sa.Result] = []

        def asked() -> bool:
            got[:] = sa.collect(lab / "collector.toml", whole, from_=begin, to=to, timeout="5s")
            return True

        wait_for(asked, sa.CollectError, d)
        (r,) = got
        assert r.report_count == 300
        assert r.buckets is not None
        assert len(r.estimate) == len(r.buckets) == len(r["raw"]) == 21
        assert r.raw["raw"] == list(r["raw"])
        assert (r["from"], r["to"]) == (begin, to)
        again = sa.collect(lab / "collector.toml", whole, from_=begin, to=to)
        assert again == [r], "the same question has the same answer"
    finally:
        for config in list(d.running):
            d.stop(config)
    with pytest.raises(sa.CollectError) as e:
        sa.collect(tmp_path / "none.toml", whole)
    assert (e.value.kind, e.value.exit, e.value.results) == ("input", 3, ())
    assert e.value.hint
    with pytest.raises(sa.CollectError, match="no flag --nothing"):
        sa.collect(lab / "collector.toml", whole, nothing=3)


def test_collect_keeps_what_came(tmp_path: Path) -> None:
    """Rounds that were released before a failure are not lost."""
    program = tmp_path / "starling"
    program.write_text(
        '#!/bin/sh\nprintf \'{"report_count": 1}\\n{\\n "report_count": 2}\\n\'\n'
        "echo 'starling: error: gone' >&2; echo 'starling: hint: ask again' >&2; exit 5\n"
    )
    program.chmod(0o700)
    with pytest.raises(sa.CollectError, match="gone") as e:
        sa.collect("collector.toml", program)
    assert [r.report_count for r in e.value.results] == [1, 2]
    assert (e.value.kind, e.value.hint) == ("not-yet", "ask again")
    program.write_text("#!/bin/sh\necho no JSON\n")
    with pytest.raises(sa.MalformedAnswer):
        sa.collect("collector.toml", program)
