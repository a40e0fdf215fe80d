"""The example, through a real SuperLink with four SuperNodes and all of Starling's parties."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Lab, start
from egress_harness import Deployment, deployment, until
from starling_agg import Agent

EXAMPLE = Path(__file__).parents[1] / "example"
SITES, ROUNDS = 4, 2


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Deployment, str]]:
    """Two rounds of the example, in which epsilon is one person's."""
    flags = ("--persons", "360", "--epsilon", "4", "--rounds", str(ROUNDS), "--round", "20s")
    lab = start(SITES, 650, *flags)
    try:
        with deployment(tmp_path_factory.mktemp("flower"), EXAMPLE) as flower:
            flower.start_link()
            for i, agent in enumerate(lab.agents):
                config = f'partition-id={i} num-partitions={SITES} starling-agent="{agent}"'
                flower.start_site(f"node{i}", f"127.0.0.1:{flower.port}", config)
            online = [f"node{i}" for i in range(SITES)]
            until("four nodes", lambda: all("SuperNode ID" in flower.log(n) for n in online), 60)
            settings = [f"rounds={ROUNDS}", f"starling='{lab.dir / 'd' / 'starling.toml'}'"]
            said = flower.start_run(settings, "--stream", seconds=240)
            yield lab, flower, said
    finally:
        lab.stop()
        shutil.rmtree(lab.dir, ignore_errors=True)


def test_learns(ran: tuple[Lab, Deployment, str]) -> None:
    """Four sites of 360 people, epsilon 4 for each person: two rounds learn most digits."""
    lab, _, log = ran
    accuracy = float(re.findall(rf"round {ROUNDS}: accuracy ([0-9.]+)", log)[-1])
    print(f"accuracy {accuracy} at epsilon {lab.epsilon:.3f}, delta {lab.delta}")
    # By simulation 0.92 with a standard deviation of 0.008; a model that learned nothing has 0.1.
    assert accuracy > 0.8
    for agent in lab.agents:
        ledger: Any = Agent(agent).ledger(lab.task)
        assert ledger.rounds == ROUNDS and 0 < ledger.loss.epsilon <= 4.001


def test_no_update_at_the_server(ran: tuple[Lab, Deployment, str]) -> None:
    """SuperLink and server app keep no site's update: not in files, databases or logs."""
    _, flower, _ = ran
    import sys

    sys.path.insert(0, str(EXAMPLE))
    from digits import task

    start_ = task.start()
    seen = flower.at_link()
    assert sum(map(len, seen.values())) > 100_000
    # What goes out is a model; what a site became of the first one is known here.
    model = start_.astype("<f4").tobytes()
    assert any(model in data for data in seen.values()), "the server's own model is not found either"
    for i in range(SITES):
        x, y = task.site(i, SITES)
        for g in task.gradients(start_, x, y)[:40]:
            after = (start_ - g).astype("<f4")
            at = int(np.abs(after).argmax())
            needle = struct.pack(
                "<8f", *after.ravel()[max(0, min(at - 4, 642)) : max(0, min(at - 4, 642)) + 8]
            )
            assert not any(needle in data for name, data in seen.items()), i
