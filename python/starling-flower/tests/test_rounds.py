"""Rounds through leader, helper, relay, gateway, controller and agents, all real."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import starling_flower
from conftest import LocalGrid, model, trained, unhurried
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedProx
from starling_flower import Private

SHAPES = ((4, 3), (3,))
# Noise of the mean of eight sites, at a norm of 10 and epsilon 100 for 4 rounds, has a standard
# deviation below 0.7 in an entry, and of the mean over 15 entries below 0.19: within 1.2 but for
# 10^-9. An entry of a step of 1.5 is negative with odds of 0.02, and six of 15 are with 10^-6.
NEAR = 1.2


def app_of(by: Any, mods: list[Any] | None = None) -> ClientApp:
    app = ClientApp()

    @app.train(mods=[starling_flower.mod] if mods is None else mods)
    def train(message: Message, context: Context) -> Message:
        return trained(message, lambda x: by(x, context))

    return app


def configs(lab: Any) -> list[dict[str, Any]]:
    return [{"starling-agent": a} for a in lab.agents]


def flat(arrays: ArrayRecord) -> np.ndarray[Any, Any]:
    return np.concatenate([a.numpy().ravel() for a in arrays.values()])


@unhurried
def test_two_rounds_of_four_strategies(labs: Any) -> None:
    """The mean of all sites moves the model, whichever strategy steps it."""
    lab = labs(8, 15, "--rounds", "4", "--round", "3s", "--epsilon", "100", "--clip", "10")
    inner = FedAvg(fraction_evaluate=0.0)
    strategy = Private(inner, {"control": lab.control})
    # Sites move each entry by 1 or 2: the mean is 1.5.
    grid = LocalGrid(app_of(lambda x, c: np.full_like(x, 1.0 + c.node_id % 2)), configs(lab))
    seen: list[np.ndarray[Any, Any]] = []
    result = strategy.start(
        grid, model(*SHAPES), num_rounds=1, evaluate_fn=lambda n, a: seen.append(flat(a))
    )
    assert strategy.history == {1: "stepped"}
    assert [tuple(a.shape) for a in result.arrays.values()] == list(SHAPES)
    assert abs(seen[-1].mean() - 1.5) < NEAR
    for reply in grid.replies:
        assert not reply.has_error(), reply.error.reason
        assert list(reply.content) == ["metrics"] and dict(reply.content["metrics"]) == {
            "num-examples": 1
        }
    for inner in (
        FedProx(fraction_evaluate=0.0, proximal_mu=0.1),
        FedAvgM(fraction_evaluate=0.0),
        FedAdam(fraction_evaluate=0.0, eta=0.1),
    ):
        private = Private(inner, {"control": lab.control})
        before = model(*SHAPES)
        after = private.start(grid, before, num_rounds=1).arrays
        assert private.history == {1: "stepped"}
        assert (flat(after) > 0).mean() > 0.6  # Adam's steps have one size, noise or not
    assert private.should_stop(1, None)
    with pytest.raises(starling_flower.TrainingOver):
        private.start(grid, model(*SHAPES), num_rounds=1)
