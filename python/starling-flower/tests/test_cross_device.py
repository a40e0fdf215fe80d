"""Mode cross_device: the server app announces and reads sums, and asks nobody."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
from conftest import LocalGrid, model, unhurried
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAdam, FedAvg
from starling_agg import Agent, AgentError
from starling_flower import Private


def device(socket: str, task: str, done: threading.Event) -> None:
    """Follow the training as a process beside an agent does, each round once."""
    agent, last = Agent(socket), -1
    while not done.wait(0.1):
        try:
            now = agent.task(task)
            if now.model is None or now.round == last:
                continue
            parameters = np.frombuffer(agent.model(now.model).parameters, dtype=np.float32)
            agent.contribute(now, now.round, parameters - (parameters + 1))  # one step up
            last = now.round
        except AgentError:
            time.sleep(0.1)  # the model is on its way


@unhurried
def test_cross_device(labs: Any) -> None:
    """Two rounds without a node: FedAvg moves by the mean, and FedAdam by its own step."""
    lab = labs(4, 15, "--rounds", "4", "--round", "3s", "--epsilon", "100", "--clip", "4")
    done = threading.Event()
    devices = [threading.Thread(target=device, args=(a, lab.task, done)) for a in lab.agents]
    for d in devices:
        d.start()
    try:
        grid = LocalGrid(ClientApp(), [])
        for inner in (FedAvg(fraction_evaluate=0.0), FedAdam(fraction_evaluate=0.0, eta=0.1)):
            private = Private(inner, {"control": lab.control, "mode": "cross_device"})
            result = private.start(grid, model((4, 3), (3,)), num_rounds=2)
            steps = list(private.history.values())
            assert len(steps) == 2 and "stepped" in steps, steps
            moved = np.concatenate([a.numpy().ravel() for a in result.arrays.values()])
            # Noise of a round's mean has a standard deviation of 0.6 in an entry at most; of the
            # mean over 15 entries 0.16, beside a step of 1 a round, or of Adam's 0.1.
            assert moved.mean() > (0 if isinstance(inner, FedAdam) else 0.1), moved
        assert not grid.replies
    finally:
        done.set()
        for d in devices:
            d.join()
