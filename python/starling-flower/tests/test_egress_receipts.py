"""The filter at the socket of receipts of a real agent, and what else that socket answers."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Lab
from egress_harness import free_port, until
from starling_agg import Agent, AgentError, Controller, find_binary
from starling_flower import egress
from starling_flower._egress_agent import Agent as Asked
from starling_flower._egress_agent import AgentError as NoAnswer
from starling_flower._egress_outer import Outer
from test_egress import Rig

DIMENSION = 15


@contextmanager
def an_agent(lab: Lab) -> Iterator[tuple[str, str]]:
    """Run one more agent of the lab, with both sockets; gives their paths."""
    home, receipts = lab.dir / "d/agents/own", lab.dir / "receipts"
    home.mkdir(mode=0o700)
    receipts.mkdir()
    receipts.chmod(0o2750)
    text = (home.parent / "0/agent.toml").read_text()
    text = re.sub(r"(?m)^address = .*", f'address = "127.0.0.1:{free_port()}"', text)
    (home / "agent.toml").write_text(f'receipts = "{receipts}/agent.sock"\n{text}')
    command = [find_binary(whole=True), "serve", "agent", str(home / "agent.toml")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            until("the agent's sockets", Path(receipts / "agent.sock").exists, 30)
            yield str(home / "agent.sock"), str(receipts / "agent.sock")
        finally:
            process.terminate()
    assert process.returncode == 0


def contribute(lab: Lab, agent: Agent) -> int:
    """Have a round begin, and an update taken in it; gives the round."""
    Controller(lab.control).begin()
    taken: list[int] = []

    def once() -> bool:
        task = agent.task(lab.task)
        if task.model:
            agent.contribute(task, task.round, [0.5] * DIMENSION)
            taken.append(task.round)
        return bool(taken)

    until("an update to be taken", once)
    return taken[0]


def test_filter_at_the_socket_of_receipts(labs: Any) -> None:
    """A round that the agent took an update in gets the receipt, another the error."""
    lab: Lab = labs(2, DIMENSION, "--rounds", "2", "--round", "3s", "--epsilon", "50")
    rig = Rig()
    with an_agent(lab) as (own, receipts):
        round_ = contribute(lab, Agent(own))
        rig.outer = Outer(rig.desk, lab.task, 1.0, rig.clock)
        asked = Asked(receipts, lab.task)
        threading.Thread(target=egress.questions, args=(rig.desk, asked), daemon=True).start()
        messages = [rig.link.ask(one, task=lab.task) for one in (round_, round_ - 1)]
        rig.step()
        for _ in messages:
            message_id = rig.pull()
            assert message_id
            rig.answer(message_id)
        until("both rounds", lambda: None not in map(rig.desk.decided, (round_, round_ - 1)), 20)
        rig.step()
        assert rig.replies() == [(messages[0], True), (messages[1], False)]
        assert asked.contributed(round_) and Agent(own).contributed(lab.task, round_)
        with pytest.raises(NoAnswer, match="404, unknown_task"):
            Asked(receipts, "5a" * 32).contributed(round_)

        spent = Agent(own).ledger().raw
        there = Agent(receipts)
        for refused in (there.tasks, there.ledger, there.status, lambda: there.task(lab.task)):
            with pytest.raises(AgentError, match="nothing but GET /v1/contributions"):
                refused()
        with pytest.raises(AgentError, match="nothing is contributed here"):
            there._ask("POST", f"/v1/contributions?task={lab.task}&round={round_}", bytes(60))
        assert Agent(own).ledger().raw == spent
    rig.inner.shutdown()
    rig.inner.server_close()
    with pytest.raises(NoAnswer, match="cannot be used"):
        asked.contributed(round_)
