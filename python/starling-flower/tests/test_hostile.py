"""Apps and servers that mean no good, or blunder: nothing of an update is in what the server gets."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import starling_flower
from conftest import Lab, model
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg
from starling_agg import Agent
from starling_flower import Private, mod
from starling_flower._arrays import flatten, moved
from test_refused import SHAPES, arrays, ask, context, never, paid

SECRET = "3.14159"


def _reply(message: Message, *records: ArrayRecord) -> Message:
    return Message(RecordDict({f"p{i}": r for i, r in enumerate(records)}), reply_to=message)


def _raw(data: bytes, shape: tuple[int, ...] = (3,), stype: str = "numpy.ndarray") -> ArrayRecord:
    """The model, but for a last array whose bytes are others than it says."""
    one = Array(dtype="float32", shape=shape, stype=stype, data=data)
    return ArrayRecord({"layer0": Array(np.zeros((4, 3), np.float32)), "layer1": one})


@pytest.mark.parametrize(
    "after",
    [
        lambda m: _reply(m, arrays(**{SECRET: np.zeros(15, np.float32)})),  # a key
        lambda m: _reply(m, *[model(*SHAPES)] * 37),  # how many persons are there
        lambda m: _reply(m, arrays(layer0=np.zeros((4, 314159), np.float32))),  # words of a site
        lambda m: _reply(m, _raw(b"\x93NUMPY\x01\x00\x10\x00" + SECRET.encode() + b" " * 9)),
        lambda m: _reply(m, _raw(b"", stype=SECRET)),
        lambda m: _reply(m, _raw(Array(np.ones(1, np.float32)).data)),  # one number for three
        lambda m: _reply(m, _raw(Array(np.ones(3, np.complex64)).data)),
        lambda m: SECRET,  # no message at all
        lambda m: None,
    ],
)
def test_no_text_of_an_update(lab: Lab, after: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The server learns that there is no update, and the client's log why."""
    before = paid(lab)
    with caplog.at_level(logging.ERROR, "flwr"), pytest.raises(starling_flower.BadArrays) as e:
        mod(ask(lab, model(*SHAPES)), context(lab), lambda m, c: after(m))
    assert str(e.value) == (
        "starling: the app's function returned no update of the model (the client's log says what is wrong)"
    )
    assert e.value.__context__ is None and "no update of the model" in caplog.text
    assert paid(lab) == before


def test_a_mark_in_low_bits(lab: Lab) -> None:
    """What a model of binary64 has beyond what was announced does not reach the app."""
    sent = arrays(layer0=np.full((4, 3), 1 + 2.0**-40), layer1=np.full(3, -1 - 2.0**-50))
    seen: list[ArrayRecord] = []

    def app(message: Message, _: Any) -> Message:
        seen.append(message.content["arrays"])
        raise ValueError

    message = ask(lab, sent)
    with pytest.raises(starling_flower.TrainingFailed):
        mod(message, context(lab), app)
    assert [(k, a.dtype, a.numpy().tolist()) for k, a in seen[0].items()] == [
        ("layer0", "float64", np.ones((4, 3)).tolist()),
        ("layer1", "float64", [-1.0] * 3),
    ]


@pytest.mark.parametrize(
    ("raised", "seen"),
    [
        (SystemExit(SECRET), starling_flower.TrainingFailed),
        (BaseExceptionGroup(SECRET, [KeyboardInterrupt(SECRET)]), starling_flower.TrainingFailed),
        (GeneratorExit(SECRET), starling_flower.TrainingFailed),
        (starling_flower.BadArrays(SECRET), starling_flower.TrainingFailed),
        (KeyboardInterrupt(SECRET), KeyboardInterrupt),
        (SystemExit(3), SystemExit),
    ],
)
def test_exceptions_of_every_kind(lab: Lab, raised: BaseException, seen: Any) -> None:
    """What is no Exception has no text either; who stops the process stops it."""

    def app(*_: Any) -> Message:
        raise raised

    with pytest.raises(BaseException) as e:
        mod(ask(lab, model(*SHAPES)), context(lab), app)
    assert type(e.value) is seen and SECRET not in str(e.value) + repr(e.value)


@pytest.mark.parametrize("ahead", [1 << 62, 1 << 20])
def test_a_round_that_never_comes(lab: Lab, ahead: int) -> None:
    """A server that names a round years ahead holds no client up."""
    now = Agent(lab.agents[0]).task(lab.task).round
    with pytest.raises(starling_flower.RoundMissed, match="far ahead"):
        mod(ask(lab, model(*SHAPES), round=now + ahead), context(lab), never)


@pytest.mark.parametrize("back", [1, 1 << 40])
def test_a_round_that_is_gone(lab: Lab, back: int) -> None:
    """It is known before the work."""
    now = Agent(lab.agents[0]).task(lab.task).round
    with pytest.raises(starling_flower.RoundMissed, match="is over"):
        mod(ask(lab, model(*SHAPES), round=now - back), context(lab), never)


def test_paths_stay(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the server learn of paths, or of values in a node's configuration."""
    bare = context(lab)
    bare.node_config = {"secret": SECRET}
    for path in ("/site/{0}", "/site/{secret.x}", "/site/{secret[x]}", "/site/{secret:x}"):
        monkeypatch.setenv("STARLING_AGENT", path)
        with pytest.raises(starling_flower.ConfigError) as e:
            mod(ask(lab, model(*SHAPES)), bare, never)
        assert "/site" not in str(e.value) and SECRET not in str(e.value)


def test_bytes_of_another_type() -> None:
    """What an array says of itself is held against its bytes, on the server too."""
    for data in (
        np.ones(1, np.float32),
        np.ones(3, np.float64),
        np.ones(3, ">f4"),
        np.ones(3, np.int32),
    ):
        record = _raw(Array(data).data)
        with pytest.raises(starling_flower.BadArrays, match="says"):
            flatten(record)
    order = np.asfortranarray(np.arange(12, dtype=np.float32).reshape(4, 3))
    assert flatten(arrays(a=order)).tolist() == list(range(12))
    assert flatten(arrays(a=np.arange(12, dtype=np.float32)[::-2])).tolist() == [11, 9, 7, 5, 3, 1]


def test_a_step_too_far() -> None:
    """A model of few bits does not become infinite in silence."""
    with pytest.raises(starling_flower.BadArrays, match="infinite"):
        moved(arrays(a=np.full(2, 65000, np.float16)), [0.0, -2000.0])
    with pytest.raises(starling_flower.BadArrays, match="infinite"):
        moved(arrays(a=np.zeros(2, np.float32)), [0.0, float("nan")])


def test_one_node_answers_twice(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": lab.control})
    asked = ask(lab, model(*SHAPES))
    one = Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=asked)
    assert strategy._receipts([one, one]) == 1


def test_a_second_run(lab: Lab) -> None:
    """The controller of a run is asked anew, for another may stand at the socket by then."""
    strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": lab.control})
    strategy._said = {"recipe": "0" * 64, "dimension": 1, "rounds": 1, "clip": 1.0}
    strategy.history[9] = "stepped"
    strategy.summary()
    assert strategy._session["recipe"] == lab.task and not strategy.history


@pytest.mark.parametrize(
    "config",
    [
        {"control": ""},
        {"control": "x\0y"},
        {"control": "x", "patience": float("nan")},
        {"control": "x", "poll": float("inf")},
        {"control": "x", 1: "y"},
        5,
    ],
)
def test_odd_configs(config: Any) -> None:
    with pytest.raises(starling_flower.ConfigError):
        Private(FedAvg(), config)


def test_odd_config() -> None:
    for odd in ({"control": 1}, {"control": "x", "mode": []}, {"control": "x", "poll": "1"}):
        with pytest.raises(starling_flower.ConfigError):
            starling_flower.Config(**odd)  # type: ignore[arg-type]
    assert starling_flower.Config("unix:/x").control == "unix:/x"
    assert Private(FedAvg(), {"control": "unix:/x"}).config.control == str(Path("/x"))


def test_no_privacy_is_no_bargain(lab: Lab) -> None:
    """An agent says -1, or nothing, where an epsilon has no bound."""
    from starling_agg import Answer, Task, TaskLedger

    a = starling_flower.accountant(lab.agents[0], lab.task, 3)
    loss = {"epsilon": None, "delta": 1.0}
    a._task = Task({**a._task.raw, "epsilon": -1})
    a._ledger = lambda: TaskLedger({"rounds": 1, "loss": loss, "next": loss, "would_exceed": False})  # type: ignore[method-assign]
    event: Any = None
    assert isinstance(a._ledger().loss, Answer)
    assert a.would_exceed(event, 5.0) and a.would_exceed(event, 5.0, count=2)
    assert a.get_epsilon(0.5) == float("inf") and a.get_delta(5.0) == 1.0


def test_one_of_several_decides_nothing() -> None:
    """A person whose numbers are none counts as zeros; a site's own update is refused."""
    from starling_flower._errors import NotFinite
    from starling_flower._mod import _update

    before = ArrayRecord({"a": Array(np.ones(3, dtype=np.float32))})
    for bad in (np.nan, np.inf, -np.inf):
        after = ArrayRecord({"a": Array(np.array([1, bad, 2], dtype=np.float32))})
        assert not _update(before, after, True).any()
        with pytest.raises(NotFinite):
            _update(before, after, False)
    other = ArrayRecord({"b": Array(np.ones(3, dtype=np.float32))})
    with pytest.raises(starling_flower.BadArrays):  # the app's mistake, and no person's
        _update(before, other, True)
