"""`flwr run` in simulation: eight nodes in Ray's actors, and all of Starling's parties real."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from conftest import start
from egress_harness import BIN, Deployment
from starling_agg import Agent

EXAMPLE = Path(__file__).parents[1] / "example"
SITES, ROUNDS = 8, 3


def test_simulation(tmp_path: Path) -> None:
    """The example learns; a node's agent is found by its partition.

    Ray takes some seconds to start, in which the first round may go by.
    """
    flags = ("--persons", "180", "--epsilon", "4", "--rounds", str(ROUNDS), "--round", "15s")
    lab = start(SITES, 650, *flags)
    flower = Deployment(tmp_path, EXAMPLE)  # for its environment: no SuperLink of its own
    try:
        config = [
            f"rounds={ROUNDS}",
            f"starling='{lab.dir / 'd' / 'starling.toml'}'",
            f"starling-agent='{lab.dir / 'd' / 'agents' / '{partition-id}' / 'agent.sock'}'",
        ]
        home = flower._home("simulation")
        done = subprocess.run(
            [
                BIN / "flwr",
                "run",
                tmp_path / "app",
                "--stream",
                "--federation-config",
                f"num-supernodes={SITES} client-resources-num-cpus=1",
                "--run-config",
                " ".join(config),
            ],
            env=flower._environment(home) | {"RAY_DEDUP_LOGS": "0"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        accuracy = float(re.findall(rf"round {ROUNDS}: accuracy ([0-9.]+)", done.stdout)[-1])
        assert accuracy > 0.75, done.stdout[-3000:]
        paid = [Agent(a).ledger(lab.task).rounds for a in lab.agents]
        assert all(1 <= n <= ROUNDS for n in paid), paid
    finally:
        lab.stop()
        shutil.rmtree(lab.dir, ignore_errors=True)
        # The SuperLink that flwr starts for simulations outlives the command.
        subprocess.run(["pkill", "-f", str(tmp_path)], check=False)
