"""Bad input: each has a name, a message that says what to do, and nothing is handed in."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import starling_flower
from conftest import Lab, LocalGrid, model, trained, unhurried
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg
from starling_agg import Agent
from starling_flower import Private, mod

SHAPES = ((4, 3), (3,))


def context(lab: Lab, site: int = 0, **node: Any) -> Context:
    return Context(
        run_id=1,
        node_id=7,
        node_config={"starling-agent": lab.agents[site], **node},
        state=RecordDict(),
        run_config={},
    )


def ask(lab: Lab, arrays: ArrayRecord, round: int | None = None, **said: Any) -> Message:
    """A message as Private's server sends it."""
    now = Agent(lab.agents[0]).task(lab.task).round
    record = ConfigRecord(
        {"task": lab.task, "round": now if round is None else round, "mode": "cross_silo", **said}
    )
    message = Message(
        RecordDict({"arrays": arrays, "config": ConfigRecord(), "starling": record}),
        dst_node_id=7,
        message_type="train",
    )
    message.metadata.__dict__["_message_id"] = "m7"
    return message


def paid(lab: Lab) -> int:
    return sum(Agent(a).ledger(lab.task).rounds for a in lab.agents)


def arrays(**named: Any) -> ArrayRecord:
    return ArrayRecord({k: Array(np.asarray(v)) for k, v in named.items()})


GOOD = {"layer0": np.zeros((4, 3), np.float32), "layer1": np.zeros(3, np.float32)}


@pytest.mark.parametrize(
    ("after", "says"),
    [
        ({"layer0": GOOD["layer0"]}, "1 arrays, where the model has 2"),
        ({"layer1": GOOD["layer1"], "layer0": GOOD["layer0"]}, "'layer1'"),
        ({**GOOD, "more": np.zeros(1, np.float32)}, "3 arrays"),
        ({**GOOD, "layer1": np.zeros((3, 1), np.float32)}, "(3, 1)"),
        ({**GOOD, "layer1": np.zeros(3, np.float64)}, "float64"),
        ({**GOOD, "layer1": np.zeros(3, np.int64)}, "int64"),
        ({**GOOD, "layer1": np.array([0, np.nan, 0], np.float32)}, "none or infinite"),
        ({**GOOD, "layer1": np.array([0, np.inf, 0], np.float32)}, "none or infinite"),
    ],
)
def test_drift(lab: Lab, after: dict[str, Any], says: str, caplog: pytest.LogCaptureFixture) -> None:
    """Key, shape, type or number: the update is not the model's, and no coin was tossed."""
    before = paid(lab)

    def app(message: Message, _: Context) -> Message:
        return Message(
            RecordDict({"arrays": arrays(**after), "metrics": MetricRecord({"num-examples": 1})}),
            reply_to=message,
        )

    with pytest.raises(starling_flower.BadArrays, match=r"starling: ") as e:
        mod(ask(lab, arrays(**GOOD)), context(lab), app)
    assert says in caplog.text and says not in str(e.value) and e.value.hint
    assert paid(lab) == before


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"a": np.zeros(15, np.int32)}, "only floats"),
        ({"a": np.zeros(14, np.float32), "b": np.float32(1)}, "no dimension"),
        ({"a": np.zeros(15, np.float32), "b": np.zeros(0, np.float32)}, "is empty"),
        ({"a": np.full(15, np.nan, np.float32)}, "none or infinite"),
        ({"a": np.zeros(16, np.float32)}, "16 numbers"),
        ({}, "no arrays"),
    ],
)
def test_models(lab: Lab, bad: dict[str, Any], says: str) -> None:
    """A model that is none is refused on both sides, before anything is announced or trained."""
    with pytest.raises(starling_flower.BadArrays) as e:
        mod(ask(lab, arrays(**bad)), context(lab), never)
    assert says in str(e.value)
    strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": lab.control})
    grid = LocalGrid(ClientApp(), [{}] * 3)
    with pytest.raises(starling_flower.BadArrays) as e:
        strategy.configure_train(1, arrays(**bad), ConfigRecord(), grid)
    assert says in str(e.value)


def never(message: Message, context: Context) -> Message:
    raise AssertionError("the app was run")


def test_without_wrapper(lab: Lab) -> None:
    """A server whose strategy is not in Private: the app is not run, and no update leaves."""
    message = Message(
        RecordDict({"arrays": model(*SHAPES), "config": ConfigRecord()}),
        dst_node_id=7,
        message_type="train",
    )
    message.metadata.__dict__["_message_id"] = "m7"
    with pytest.raises(starling_flower.WrapperMissing, match="Private"):
        mod(message, context(lab), never)
    # And plain FedAvg raises on receipts, in place of training on nothing.
    receipt = Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)
    with pytest.raises(Exception, match=r"(?i)arrayrecord"):
        FedAvg(fraction_evaluate=0.0).aggregate_train(1, [receipt])


def test_not_of_training(lab: Lab) -> None:
    message = ask(lab, model(*SHAPES))
    message.metadata.__dict__["_message_type"] = "evaluate"
    with pytest.raises(starling_flower.ConfigError, match="train"):
        mod(message, context(lab), never)


def test_no_agent(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """No agent, or one that is down: before the work, and there is no other way out."""
    message = ask(lab, model(*SHAPES))
    bare = Context(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={})
    with pytest.raises(starling_flower.ConfigError, match="no agent is named"):
        mod(message, bare, never)
    monkeypatch.setenv("STARLING_AGENT", str(lab.dir / "none.sock"))
    with pytest.raises(starling_flower.AgentAway, match="serve agent"):
        mod(message, bare, never)
    monkeypatch.setenv("STARLING_AGENT", "/{partition-id}.sock")
    with pytest.raises(starling_flower.ConfigError, match="partition-id"):
        mod(message, bare, never)


def test_what_an_exception_says_stays(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    def app(message: Message, _: Context) -> Message:
        raise ValueError("weights 3.14159")

    with caplog.at_level(logging.ERROR, "flwr"), pytest.raises(starling_flower.TrainingFailed) as e:
        mod(ask(lab, model(*SHAPES)), context(lab), app)
    assert "3.14159" not in str(e.value) and e.value.__cause__ is None and e.value.__context__ is None
    assert "3.14159" in caplog.text  # in the client's own log


def test_unknown_task(lab: Lab) -> None:
    with pytest.raises(starling_flower.NotAllowed):
        mod(ask(lab, model(*SHAPES), task="0" * 64), context(lab), never)


def test_round_over(lab: Lab) -> None:
    now = Agent(lab.agents[0]).task(lab.task).round
    with pytest.raises(starling_flower.RoundMissed, match="longer rounds"):
        mod(
            ask(lab, model(*SHAPES), round=now - 1), context(lab), lambda m, c: trained(m, np.zeros_like)
        )


def test_too_many_persons(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    def app(message: Message, _: Context) -> Message:
        return Message(RecordDict({"a": model(*SHAPES), "b": model(*SHAPES)}), reply_to=message)

    with pytest.raises(starling_flower.BadArrays, match="no update of the model"):
        mod(ask(lab, model(*SHAPES)), context(lab), app)
    assert "2 models, and a contribution has 1" in caplog.text


def _one(message: Message) -> ArrayRecord:
    return trained(message, np.ones_like).content.array_records["arrays"]


def _minus_zero(message: Message) -> ArrayRecord:
    return ArrayRecord({key: Array(-a.numpy()) for key, a in message.content["arrays"].items()})


@pytest.mark.parametrize("other", [_one, _minus_zero])
@unhurried
def test_a_model_of_ones_own(labs: Any, other: Callable[[Message], ArrayRecord]) -> None:
    """A server that sends one node another model than it announced: found out, before handing in."""
    lab = labs(3, 15, "--rounds", "2", "--round", "3s", "--epsilon", "100")
    strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": lab.control})
    app = ClientApp()
    app.train(mods=[mod])(lambda m, c: trained(m, np.ones_like))

    class Lying(LocalGrid):
        def _answer(self, message: Message) -> Message:
            if message.metadata.dst_node_id == 2:
                message.content["arrays"] = other(message)
            return super()._answer(message)

    grid = Lying(app, [{"starling-agent": a} for a in lab.agents])
    before = [Agent(a).ledger(lab.task).rounds for a in lab.agents]
    start = arrays(layer0=np.zeros((4, 3), np.float32), layer1=np.full(3, -0.0, np.float32))
    strategy.start(grid, start, num_rounds=1)
    errors = [r.error.reason for r in grid.replies if r.has_error()]
    assert len(errors) == 1 and "OtherModel" in errors[0] and "another model" in errors[0]
    assert [Agent(a).ledger(lab.task).rounds for a in lab.agents] == [
        before[0] + 1,
        before[1],
        before[2] + 1,
    ]
    assert strategy.history == {1: "stepped"}  # the other two are as many as the recipe asks for


def test_without_mod(lab: Lab) -> None:
    """A client whose app does not use the mod ends the run, with its id, and is averaged with nobody."""
    strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": lab.control})
    app = ClientApp()
    app.train()(lambda m, c: trained(m, np.ones_like))
    with pytest.raises(starling_flower.ModMissing, match=r"node [123] "):
        strategy.start(LocalGrid(app, [{}] * 3), model(*SHAPES), num_rounds=1)


def test_too_few(lab: Lab) -> None:
    """One site alone: the round is skipped, and the model stays."""
    strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": lab.control})
    app = ClientApp()
    app.train(mods=[mod])(lambda m, c: trained(m, np.ones_like))
    grid = LocalGrid(app, [{"starling-agent": a} for a in lab.agents])
    grid.only = {1}
    for _ in range(2):  # a second run of the same strategy says so too
        with pytest.raises(starling_flower.NoSum, match="none of 1 rounds was released: too few"):
            strategy.start(grid, model(*SHAPES), num_rounds=1)


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        (lambda: flower.Krum(), "single clients"),
        (lambda: flower.MultiKrum(), "single clients"),
        (lambda: flower.Bulyan(), "single clients"),
        (lambda: flower.FedMedian(), "single clients"),
        (lambda: flower.FedTrimmedAvg(), "single clients"),
        (lambda: flower.QFedAvg(client_learning_rate=0.1), "single clients"),
        (lambda: flower.FedXgbBagging(), "single clients"),
        (lambda: flower.FedXgbCyclic(), "single clients"),
        (lambda: flower.DifferentialPrivacyClientSideFixedClipping(FedAvg(), 1.0, 1.0, 3), "adds noise"),
        (lambda: flower.DifferentialPrivacyServerSideFixedClipping(FedAvg(), 1.0, 1.0, 3), "adds noise"),
        (lambda: flower.DifferentialPrivacyClientSideAdaptiveClipping(FedAvg(), 1.0, 100), "adds noise"),
        (lambda: flower.DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), 1.0, 100), "adds noise"),
        (lambda: Private(FedAvg(), {"control": "x"}), "wrap it once"),
        (lambda: object(), "no strategy"),
    ],
)
def test_strategies(inner: Callable[[], Any], says: str) -> None:
    with pytest.raises(starling_flower.StrategyRefused, match=says):
        Private(inner(), {"control": "x"})


def test_strategies_of_ones_own() -> None:
    """What Flower's own class below decides: one of a later Flower is not known, and refused."""

    class Mine(FedAvg): ...

    Private(Mine(), {"control": "x"})

    class Robust(flower.Krum): ...

    with pytest.raises(starling_flower.StrategyRefused, match="Krum"):
        Private(Robust(), {"control": "x"})
    later = type("FedLater", (FedAvg,), {"__module__": "flwr.serverapp.strategy.fedlater"})
    with pytest.raises(starling_flower.StrategyRefused, match="not known whether FedLater"):
        Private(later(), {"control": "x"})


def test_unknown_strategy() -> None:
    """One that is of nobody we know says itself whether a mean will do."""

    class Own(flower.Strategy):
        def configure_train(self, *a: Any) -> Any: ...
        def aggregate_train(self, *a: Any) -> Any: ...
        def configure_evaluate(self, *a: Any) -> Any: ...
        def aggregate_evaluate(self, *a: Any) -> Any: ...
        def summary(self) -> None: ...

    with pytest.raises(starling_flower.StrategyRefused, match="starling_takes_a_mean"):
        Private(Own(), {"control": "x"})
    Own.starling_takes_a_mean = True  # type: ignore[attr-defined]
    Private(Own(), {"control": "x"})


def test_asked_in_part(lab: Lab) -> None:
    """A server that samples nodes would see whom: the coin is the agent's."""
    strategy = Private(FedAvg(fraction_train=0.5, fraction_evaluate=0.0), {"control": lab.control})
    with pytest.raises(starling_flower.ConfigError, match=r"fraction_train=1\.0"):
        strategy.configure_train(1, model(*SHAPES), ConfigRecord(), LocalGrid(ClientApp(), [{}] * 6))


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"control": 1},
        {"control": "x", "mode": "silo"},
        {"control": "x", "patience": 0},
        {"control": "x", "more": 1},
        "nowhere.toml",
        {"control": "x", "poll": True},
    ],
)
def test_configs(config: Any) -> None:
    with pytest.raises(starling_flower.ConfigError):
        Private(FedAvg(), config)


def test_controller_down(lab: Lab) -> None:
    strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": str(lab.dir / "none.sock")})
    with pytest.raises(starling_flower.NoSum, match="serve controller"):
        strategy.summary()


def test_no_sum_in_time(labs: Any) -> None:
    """The controller goes away in mid-round: nothing is averaged, and the run ends with a name."""
    own = labs(2, 15, "--round", "3s", "--rounds", "5", "--epsilon", "50")
    strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": own.control, "patience": 2})
    grid = LocalGrid(ClientApp(), [{}] * 2)
    strategy.configure_train(1, model(*SHAPES), ConfigRecord(), grid)
    own.process.send_signal(signal.SIGINT)
    own.process.wait(60)
    with pytest.raises(starling_flower.NoSum, match="no sum of round 1"):
        strategy.aggregate_train(1, [])
