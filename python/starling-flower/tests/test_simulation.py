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


def simulated(dir: Path, length: int) -> tuple[str, list[int]]:
    """What a run in rounds of some seconds prints, and how many each site has taken part in."""
    dir.mkdir()
    flags = ("--persons", "180", "--epsilon", "4", "--rounds", str(ROUNDS), "--round", f"{length}s")
    lab = start(SITES, 650, *flags)
    flower = Deployment(dir, EXAMPLE)  # for its environment: no SuperLink of its own
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
                dir / "app",
                "--stream",
                "--federation-config",
                f"num-supernodes={SITES} client-resources-num-cpus=1",
                "--run-config",
                " ".join(config),
            ],
            env=flower._environment(home) | {"RAY_DEDUP_LOGS": "0"},
            cwd=dir,
            capture_output=True,
            text=True,
            check=False,
            timeout=300 + ROUNDS * length,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, [Agent(a).ledger(lab.task).rounds for a in lab.agents]
    finally:
        lab.stop()
        shutil.rmtree(lab.dir, ignore_errors=True)
        # The SuperLink that flwr starts for simulations outlives the command.
        subprocess.run(["pkill", "-f", str(dir)], check=False)


def test_simulation(tmp_path: Path) -> None:
    """The example learns; a node's agent is found by its partition.

    Ray takes some seconds to start, in which the first round may go by. On a machine that is so
    slow that all go by for a site, there is a run of longer ones.
    """
    said, paid = simulated(tmp_path / "one", 15)
    if min(paid) == 0:
        said, paid = simulated(tmp_path / "two", 75)
    accuracy = float(re.findall(rf"round {ROUNDS}: accuracy ([0-9.]+)", said)[-1])
    assert accuracy > 0.75, said[-3000:]
    assert all(1 <= n <= ROUNDS for n in paid), paid
