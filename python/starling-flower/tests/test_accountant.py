"""Flower's accountant protocol, over the ledger of a real agent."""

from __future__ import annotations

from typing import Any

import pytest
import starling_flower
from conftest import Lab, LocalGrid, model, trained, unhurried
from flwr.clientapp import ClientApp
from flwr.serverapp import GaussianPrivacyEvent, PrivacyAccountant
from flwr.serverapp.strategy import FedAvg
from starling_agg import Agent
from starling_flower import LedgerAccountant, Private, accountant

EVENT = GaussianPrivacyEvent(noise_multiplier=1.0, sample_size=3, population_size=3)


@unhurried
def test_ledger(labs: Any) -> None:
    """It answers from the ledger, tosses nothing, and composes no more than was paid for."""
    lab: Lab = labs(2, 15, "--rounds", "2", "--round", "3s", "--epsilon", "50")
    a = accountant(lab.agents[0], population_size=2)
    protocol: PrivacyAccountant = a  # as mypy sees it
    assert protocol.num_releases == 0 and a.get_epsilon(1e-5) == 0.0
    assert not a.would_exceed(EVENT) and not a.would_exceed(EVENT, count=2)
    assert a.would_exceed(EVENT, count=3) and a.would_exceed(EVENT, max_epsilon=1.0)
    with pytest.raises(starling_flower.ConfigError, match="0 since the last"):
        a.compose(EVENT)
    assert Agent(lab.agents[0]).ledger(lab.task).rounds == 0
    app = ClientApp()
    app.train(mods=[starling_flower.mod])(lambda m, c: trained(m, lambda x: x + 1))
    grid = LocalGrid(app, [{"starling-agent": x} for x in lab.agents])
    strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": lab.control})
    strategy.start(grid, model((4, 3), (3,)), num_rounds=1)
    a.compose(EVENT)
    with pytest.raises(starling_flower.ConfigError):
        a.compose(EVENT)
    loss: Any = Agent(lab.agents[0]).ledger(lab.task).loss
    assert a.num_releases == 1 and a.get_epsilon(loss.delta) == loss.epsilon > 0
    assert a.get_epsilon(0.5) == loss.epsilon
    assert (a.get_delta(loss.epsilon), a.get_delta(loss.epsilon / 2)) == (loss.delta, 1.0)
    with pytest.raises(starling_flower.ConfigError, match="smaller one"):
        a.get_epsilon(loss.delta / 2)
    spent = a.get_privacy_spent()
    assert (spent.epsilon, spent.num_releases) == (loss.epsilon, 1)
    for bad in (0, -1, True, 1.5):
        with pytest.raises(ValueError):
            a.would_exceed(EVENT, count=bad)  # type: ignore[arg-type]
    state = a.state_dict()
    again = LedgerAccountant(Agent(lab.agents[0]), lab.task, 2)
    again.load_state_dict(state)
    for changed in ({"task": "0" * 64}, {"composed": 9}, {"composed": -1}, {"schema_version": 9}):
        with pytest.raises(starling_flower.ConfigError):
            again.load_state_dict({**state, **changed})
    lab.stop()
    with pytest.raises(starling_flower.AgentAway):
        a.get_epsilon(0.5)
