"""Restarts in mid-round, and a ledger that has no more room."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import starling_flower
from conftest import Lab, LocalGrid, model, trained, unhurried
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from starling_agg import Agent
from starling_flower import Private, mod
from test_refused import SHAPES, ask, context, never


def private(lab: Lab) -> Private:
    return Private(FedAvg(fraction_evaluate=0.0), {"control": lab.control})


def up(by: float) -> Any:
    return lambda m, c: trained(m, lambda x: np.full_like(x, by))


@unhurried
def test_restarts(labs: Any) -> None:
    """A server app begins anew in mid-round; a client hands in again; then all is spent."""
    lab = labs(2, 15, "--rounds", "2", "--round", "4s", "--epsilon", "50")
    nodes = [{"starling-agent": a} for a in lab.agents]
    arrays = model(*SHAPES)
    first = private(lab)
    messages = list(first.configure_train(1, arrays, ConfigRecord(), LocalGrid(ClientApp(), nodes)))
    begun = messages[0].content["starling"]
    # Another process of the server app: the round under way is nobody's, and it waits for it.
    app = ClientApp()
    app.train(mods=[mod])(up(1))
    grid, second = LocalGrid(app, nodes), private(lab)
    again = list(second.configure_train(1, arrays, ConfigRecord(), grid))
    said = again[0].content["starling"]
    assert said["index"] == begun["index"] + 1 and said["round"] > begun["round"]
    # A client whose process ended after it had handed in, and is asked again.
    agent = Agent(lab.agents[0])
    while agent.task(lab.task).round < said["round"]:
        time.sleep(0.05)
    asked = ask(lab, arrays, said["round"])
    assert mod(asked, context(lab), up(1)).has_content()
    assert mod(asked, context(lab), up(1)).has_content()
    with pytest.raises(starling_flower.NotAllowed, match="already"):
        mod(asked, context(lab), up(2))
    # The first round was begun before anybody could take part in it.
    assert agent.ledger(lab.task).rounds == 1
    replies = list(grid.send_and_receive(again))
    assert not any(r.has_error() for r in replies), [r.error for r in replies if r.has_error()]
    second.aggregate_train(1, replies)
    assert second.history == {1: "stepped"}


@unhurried
def test_out_of_budget(labs: Any) -> None:
    """A ledger without room says so before the app trains, and nothing is tossed."""
    lab = labs(2, 15, "--rounds", "1", "--round", "3s", "--epsilon", "50")
    app = ClientApp()
    app.train(mods=[mod])(up(1))
    strategy = private(lab)
    nodes = [{"starling-agent": a} for a in lab.agents]
    strategy.start(LocalGrid(app, nodes), model(*SHAPES), num_rounds=1)
    assert strategy.history == {1: "stepped"}
    with pytest.raises(starling_flower.NotAllowed, match="no room"):
        mod(ask(lab, model(*SHAPES)), context(lab), never)
    assert Agent(lab.agents[0]).ledger(lab.task).rounds == 1


@unhurried
def test_timeout(labs: Any) -> None:
    """A client that takes longer than the round is named, and the others' round goes on."""
    lab = labs(3, 15, "--rounds", "2", "--round", "3s", "--epsilon", "50")
    app = ClientApp()

    @app.train(mods=[mod])
    def train(message: Message, context: Context) -> Message:
        if context.node_id == 1:
            time.sleep(8 * labs.times)
        return up(1)(message, context)

    grid = LocalGrid(app, [{"starling-agent": a} for a in lab.agents])
    strategy = private(lab)
    strategy.start(grid, model(*SHAPES), num_rounds=1)
    (error,) = [r.error.reason for r in grid.replies if r.has_error()]
    assert "RoundMissed" in error and "longer rounds" in error
    assert strategy.history == {1: "stepped"}
