"""The agent's coin: nothing that comes back tells it."""

from __future__ import annotations

from typing import Any

import numpy as np
from conftest import LocalGrid, model, trained, unhurried
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from starling_agg import Agent
from starling_flower import Private, mod


@unhurried
def test_replies_are_the_same(labs: Any) -> None:
    """A hundred sites toss: all replies have the same bytes, and about half have sent.

    That all of them send, or fewer than 20 do, has a probability below 10^-9.
    """
    flags = ("--sample", "1/2", "--rounds", "2", "--round", "5s", "--epsilon", "50")
    lab = labs(100, 15, *flags)
    app = ClientApp()
    app.train(mods=[mod])(lambda m, c: trained(m, np.ones_like))
    grid = LocalGrid(app, [{"starling-agent": a} for a in lab.agents])
    strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": lab.control})
    strategy.start(grid, model((4, 3), (3,)), num_rounds=1)
    assert strategy.history == {1: "stepped"}
    assert len(grid.replies) == 100 and not any(r.has_error() for r in grid.replies)
    assert len({r.content.deflate() for r in grid.replies}) == 1
    reports = strategy._controller.round(0).reports
    assert 20 <= reports < 90, reports  # dummies are among them
    told = {repr(Agent(a).ledger(lab.task).raw) for a in lab.agents}
    assert len(told) == 1  # all have paid alike
