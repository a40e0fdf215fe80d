"""docs/flower.md runs as it stands: the plain apps, and then with the two changed lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from conftest import LocalGrid, unhurried
from flwr.app import Context, RecordDict

PAGE = (Path(__file__).parents[3] / "docs" / "flower.md").read_text("utf-8")


def parts() -> tuple[str, str, dict[str, tuple[str, str]]]:
    """The two apps, and for each the line that goes and the one that comes."""
    server, client = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    (diff,) = re.findall(r"^```diff\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    changes = re.findall(r"^--- (\S+)\n\+\+\+ \1\n@@\n-(.*)\n\+(.*)\n", diff, flags=re.MULTILINE)
    assert diff.count("\n") == 5 * len(changes) == 10, "two changed lines and no more"
    return server, client, {name: (old, new) for name, old, new in changes}


def run(server: str, client: str, nodes: list[dict[str, Any]], **config: Any) -> Any:
    """What the server app's training results in."""
    there: dict[str, Any] = {}
    exec(client, there)
    grid = LocalGrid(there["app"], nodes)
    here: dict[str, Any] = {}
    exec(server, here)
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config)
    here["main"](grid, context)
    return context.state["result"]["mean"].numpy(), grid.replies


@unhurried
def test_page(labs: Any, tmp_path: Path) -> None:
    """Plain FedAvg gets the clients' own values; with the change it gets their mean alone."""
    server, client, changes = parts()
    lab = labs(6, 8, "--rounds", "2", "--round", "3s", "--epsilon", "100", "--clip", "5")
    nodes = [
        {"own": x, "starling-agent": a} for x, a in zip((1.0, 2.0, 3.0) * 2, lab.agents, strict=True)
    ]
    mean, replies = run(server, client, nodes)
    assert np.abs(mean - 1.5).max() < 1e-6  # 2 (1 - 1/4)
    assert all("arrays" in r.content for r in replies)
    for name, text in (("server.py", server), ("client.py", client)):
        old, new = changes[name]
        assert text.count(old + "\n") == 1, name
        text = "import starling_flower\n" + text.replace(old + "\n", new + "\n")
        if name == "server.py":
            server = text
        else:
            client = text
    mean, replies = run(server, client, nodes, starling=str(lab.dir / "d" / "starling.toml"))
    # Noise of a round's mean has a standard deviation below 0.4 in an entry; of the mean over
    # eight entries of two rounds below 0.2: off by 1.3 with odds below 10^-9.
    assert mean.shape == (8,) and 0.2 < mean.mean() < 2.8
    assert len(replies) == 12
    assert not any("arrays" in r.content for r in replies if r.has_content())
