"""Seconds of a round of 20 clients at 26,010 numbers, from announcing to the mean.

    python bench.py [CLIENTS [NUMBERS [ROUND]]]

All of Starling's parties are real and on this machine; clients are threads of this process,
whose training is nothing, so that what Flower's processes take to start is apart.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "tests"))
import numpy as np
from conftest import LocalGrid, model, start, trained
from flwr.app import ConfigRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity
from starling_flower import Private, mod


def main(clients: int = 20, numbers: int = 26010, length: str = "5s") -> None:
    """Three rounds, each by itself."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    app = ClientApp()
    app.train(mods=[mod])(lambda m, c: trained(m, np.ones_like))
    lab = start(clients, numbers, "--rounds", "3", "--round", length, "--epsilon", "8")
    try:
        grid = LocalGrid(app, [{"starling-agent": a} for a in lab.agents])
        strategy = Private(FedAvg(fraction_evaluate=0.0), {"control": lab.control})
        arrays = model((numbers,))
        for number in range(1, 4):
            begun = time.monotonic()
            messages = list(strategy.configure_train(number, arrays, ConfigRecord(), grid))
            replies = list(grid.send_and_receive(messages))
            handed = time.monotonic()
            strategy.aggregate_train(number, replies)
            ended = time.monotonic()
            taken = sum(not r.has_error() for r in replies)
            print(
                f"round {number}: {ended - begun:.1f} s, of which {handed - begun:.1f} until all handed in; "
                f"{taken} of {clients} taken; {strategy.history[number]}"
            )
    finally:
        lab.stop()


if __name__ == "__main__":
    main(*(int(x) for x in sys.argv[1:3]), *sys.argv[3:4])
