"""The published accountant's side of the speed comparison: one question, asked as often as the Go benchmark asks it.

    GOMAXPROCS=1 taskset -c 0 python speed.py

Prints the seconds of each ask by dp-accounting (PLD), the Go benchmark's, and their ratio. Run it where the packages of
../requirements.txt are installed, from within the repository.
"""
import os
import re
import statistics
import subprocess
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import dp_accounting  # noqa: E402
from dp_accounting import pld  # noqa: E402

SIGMA, RATE, STEPS, DELTA, ASKS = 5.1, 0.02, 2500, 1e-8, 5


def ask():
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(SIGMA)), STEPS)
    accountant = pld.PLDAccountant()
    accountant.compose(event)
    return accountant.get_epsilon(DELTA)


def main():
    times = []
    for _ in range(ASKS):
        start = time.perf_counter()
        epsilon = ask()
        times.append(time.perf_counter() - start)
    theirs = statistics.median(times)
    out = subprocess.run(["go", "test", "./dp/accountant", "-run", "^$", "-bench", "^BenchmarkSampledGaussian$", "-cpu", "1",
                          "-count", str(ASKS)], check=True, capture_output=True, text=True,
                         cwd=subprocess.run(["git", "rev-parse", "--show-toplevel"], check=True, capture_output=True,
                                            text=True).stdout.strip()).stdout
    ours = statistics.median(float(x) / 1e9 for x in re.findall(r"([0-9.]+) ns/op", out))
    print(f"dp-accounting: epsilon {epsilon:.6f}, {theirs:.3f} s (median of {ASKS})")
    print(f"starling: {ours:.4f} s (median of {ASKS} benchmark runs)")
    print(f"ratio {theirs / ours:.1f}")


if __name__ == "__main__":
    main()
