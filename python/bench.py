"""How long questions take: the kept accountant's, and a process each.

    python python/bench.py [--times 20]

Medians and 95th percentiles in milliseconds, of this machine as it is now. "Another" asks
with one more step each time, so that no answer is remembered.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

from starling_agg import Accountant

QUESTIONS: dict[str, dict[str, Any]] = {
    "gaussian, one release": {"mechanism": "gaussian", "sigma": 5, "delta": 1e-8},
    "gaussian, sampled": {
        "mechanism": "gaussian",
        "sigma": 5.1,
        "sampling": 0.02,
        "steps": 2500,
        "delta": 1e-8,
    },
    "gaussian, solved for sigma": {
        "mechanism": "gaussian",
        "solve": "sigma",
        "epsilon": 1,
        "delta": 1e-8,
        "sampling": 0.1,
        "steps": 100,
    },
    "discrete-laplace, composed": {
        "mechanism": "discrete-laplace",
        "scale": 20,
        "steps": 7,
        "delta": 1e-7,
    },
}


def timed(ask: Callable[[int], object], times: int) -> str:
    """Median and 95th percentile of so many runs, in milliseconds."""
    took = []
    for i in range(times):
        begun = time.perf_counter()
        ask(i)
        took.append(1000 * (time.perf_counter() - begun))
    took.sort()
    return f"{statistics.median(took):9.2f} {took[max(0, -(-95 * times // 100) - 1)]:9.2f}"


def asked(acc: Accountant, flags: dict[str, Any], more: int) -> Callable[[int], object]:
    """A question, the i-th time with `more` times i + 1 steps added."""
    steps = flags.get("steps", 1)
    return lambda i: acc.account(**flags | {"steps": steps + more * (i + 1)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="runs of each question")
    times = parser.parse_args().times
    acc = Accountant()
    begun = time.perf_counter()
    acc.hello()
    print(f"{'start, and hello':34}{1000 * (time.perf_counter() - begun):9.2f}")
    print(f"{'':34}{'median':>9} {'95 %':>9}")
    print(f"{'hello':34}{timed(lambda _: acc.hello(), times)}")
    for name, flags in QUESTIONS.items():
        acc.account(**flags)
        for what, question in {name: asked(acc, flags, 0), "  another": asked(acc, flags, 1)}.items():
            print(f"{what:34}{timed(question, times)}")
    plan = {"query": "histogram:21", "people": 20000, "within": "1%"}
    print(f"{'recipe plan, a histogram':34}{timed(lambda _: acc.plan(**plan), times)}")
    command = [
        acc._binary,
        "account",
        "--mechanism",
        "gaussian",
        "--sigma",
        "5",
        "--delta",
        "1e-8",
        "--json",
    ]
    one = timed(lambda _: subprocess.run(command, check=True, capture_output=True), times)
    print(f"{'a process, one release':34}{one}")


if __name__ == "__main__":
    main()
