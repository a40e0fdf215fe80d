"""A training through real servers, with a process beside controller and agents."""

from __future__ import annotations

import math
import signal
from array import array
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import starling_agg as sa
from conftest import NUMBERS, ROUNDS, Deployment, wait_for

DOCS = Path(__file__).parents[3] / "docs"
NO_TASK = "0" * 64


def begun(a: sa.Agent, round: int) -> sa.Task:
    """The task, once the round runs and its model is announced."""
    return wait_for(lambda: (t := a.tasks()[0]).round == round and t.model and t)  # type: ignore[no-any-return]


def test_training(deployment: Deployment) -> None:
    """Two rounds from parameters of a process to the mean update, and a third that is lost."""
    c, agents = deployment.controller(), [deployment.agent("one"), deployment.agent("two")]
    s = c.session()
    assert (s.dimension, s.rounds, s.adaptive, s.tensors[0].shape) == (NUMBERS, ROUNDS, None, (2, 3))
    assert set(s) <= set(sa.Session.__annotations__)
    with pytest.raises(sa.NotThere):
        c.aggregate(0)
    with pytest.raises(sa.BadModel, match="dimension"):
        c.begin([1.0] * (NUMBERS + 1))

    start = array("f", [0.25] * NUMBERS)
    r = c.begin(start)
    assert (r.index, r.state) == (0, "announced")
    with pytest.raises(sa.Busy) as busy:
        c.begin()
    assert busy.value.status == 409
    assert busy.value.hint
    task = begun(agents[0], r.round)
    assert set(task) <= set(sa.Task.__annotations__)
    assert (task.numbers, task.bound, task.session, task.reason) == (NUMBERS, 1, s.session, None)
    model = agents[0].model(task.model or "")
    assert model == sa.Model(start, 1.0, r.round)
    assert c.model().clip == 1

    updates = [[0.5, -0.25, 0, 0, 0, 0.125], numpy.array([[0, 0.25, 0], [0.5, 0, 0.125]])]
    for a, update in zip(agents, updates, strict=True):
        begun(a, r.round)
        assert not a.contributed(task, r.round)
        a.contribute(task.task, r.round, update, data="digits")
        a.contribute(task, r.round, update, data="digits")  # the same bytes again
        assert a.contributed(task.task, r.round)
        with pytest.raises(sa.AlreadyContributed):
            a.contribute(task, r.round, [0.1] * NUMBERS, data="digits")
    ledger = agents[0].ledger()
    assert isinstance(ledger, sa.Ledger)
    assert set(ledger) <= set(sa.Ledger.__annotations__)
    assert 0 < ledger.epsilon < ledger.max_epsilon
    assert [t.rounds for t in ledger.tasks if t.task == task.task] == [1]
    one = agents[0].ledger(task)
    assert isinstance(one, sa.TaskLedger)
    assert one.next.epsilon > one.loss.epsilon > 0
    assert not one.would_exceed
    assert agents[0].status().contributions.raw == {"accepted": 2, "already_contributed": 1}

    wait_for(lambda: c.round(0).state == "collected", dep=deployment)
    mean = c.aggregate(0)
    # Both servers' noise for epsilon 100 has a deviation of 0.22 in the mean: more is off once
    # in 10^7 rounds.
    for got, want in zip(mean, [0.25, 0, 0, 0.25, 0, 0.125], strict=True):
        assert abs(got - want) < 1.3
    status = c.status()
    assert set(status) <= set(sa.TrainingStatus.__annotations__)
    assert set(c.round(0)) <= set(sa.Round.__annotations__)
    assert (status.announced, status.skipped) == (1, 0)
    wait_for(lambda: c.round(0).stepped, dep=deployment)
    moved = c.model().parameters
    assert all(math.isclose(m, s - u, abs_tol=1e-5) for m, s, u in zip(moved, start, mean, strict=True))
    assert c.average().parameters == moved

    # A round that is over, and one that has not begun.
    with pytest.raises(sa.RoundOver):
        agents[0].contribute(task, r.round, updates[0], data="digits")
    r = c.begin()
    task = begun(agents[0], r.round)
    with pytest.raises((sa.RoundNotBegun, sa.RoundOver)):
        agents[0].contribute(task, r.round + 5, updates[0], data="digits")

    # Killed and started anew the agent has lost what it was told, and kept what it paid.
    agents[0].contribute(task, r.round, updates[0], data="digits")
    deployment.stop("one/agent.toml", signal.SIGKILL)
    with pytest.raises(sa.AgentDown, match="starling serve agent"):
        agents[0].tasks()
    deployment.start("agent", "one/agent.toml")
    deployment.agent("one")
    with pytest.raises((sa.AlreadyContributed, sa.RoundOver)):
        agents[0].contribute(task, r.round, updates[0], data="digits")


def test_refusals(deployment: Deployment) -> None:
    """What the agent refuses comes as a class of its own, with what to do."""
    a = deployment.agent("two")
    task = a.tasks()[1]
    assert a.task(task.task) == a.task(task) == task
    assert (task.session, task.model, task.numbers) == (None, None, NUMBERS)
    refused: dict[type[sa.AgentError], Callable[[], object]] = {
        sa.UnknownTask: lambda: a.task(NO_TASK),
        sa.MalformedRequest: lambda: a.ledger("xy"),
        sa.NothingThere: lambda: a._get("/v1/nothing"),
        sa.MethodRefused: lambda: a._ask("POST", "/v1/tasks"),
        sa.NoModel: lambda: a.model("0" * 64),
        sa.PolicyRefused: lambda: a.contribute(task, task.round, [0.1] * NUMBERS, data="other"),
        sa.RoundOver: lambda: a.contribute(task, task.round - 1, [0.1] * NUMBERS, data="digits"),
        sa.RoundNotBegun: lambda: a.contribute(task, task.round + 1, [0.1] * NUMBERS, data="digits"),
    }
    for cls, ask in refused.items():
        with pytest.raises(cls) as e:
            ask()
        assert e.value.problem
        assert e.value.outcome == cls.outcome
        assert (cls is sa.MethodRefused) or e.value.hint
    with pytest.raises(sa.PolicyRefused, match="persons"):
        a.contribute(task, task.round, [0.1] * 2 * NUMBERS, data="digits", persons=2)
    before = a.status().contributions.raw
    for vector in (
        [],
        [0.1],
        [0.1] * (NUMBERS + 1),
        [math.nan] * NUMBERS,
        [math.inf] * NUMBERS,
        [1e39] * NUMBERS,
    ):
        with pytest.raises(sa.BadVector):
            a.contribute(task, task.round, vector, data="digits")
    assert a.status().contributions.raw == before, "a bad vector was sent"


def test_outcomes() -> None:
    """Each name of docs/agent.md has a class, and no class has another name."""
    table = (DOCS / "agent.md").read_text().split("| name | status |")[1].split("\n\n")[0]
    names = {n for row in table.splitlines()[2:] for n in row.split("|")[1].split("`")[1::2]}
    assert names == set(sa.AgentError._classes) - {"down", "timeout"}
    newer = sa.AgentError.named("brand_new", "p", "h")
    assert type(newer) is sa.AgentError
    assert newer.outcome == "brand_new"


def test_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No agent, no controller: said with what to do, and at once."""
    monkeypatch.delenv("STARLING_AGENT", raising=False)
    with pytest.raises(sa.AgentDown, match=r"\$STARLING_AGENT"):
        sa.Agent()
    monkeypatch.setenv("STARLING_AGENT", f"unix:{tmp_path}/none.sock")
    with pytest.raises(sa.AgentDown, match="starling serve agent"):
        sa.Agent().tasks()
    with pytest.raises(sa.AgentDown, match="100 bytes"):
        sa.Agent(tmp_path / ("x" * 200)).tasks()
    with pytest.raises(sa.ControllerDown, match="starling serve controller"):
        sa.Controller(tmp_path / "none.sock").begin()
    monkeypatch.delattr("socket.AF_UNIX")
    with pytest.raises(sa.AgentDown, match="no unix sockets"):
        sa.Agent().tasks()
