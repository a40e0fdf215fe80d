"""The published accountant's side of the speed comparison: one question, asked by turns with the Go benchmark.

    GOMAXPROCS=1 taskset -c 0 python speed.py

Prints how long dp-accounting (PLD) and this module take, and the ratio. Run it on one core, where the packages of
../requirements.txt are installed, from within the repository.
"""
import os
import re
import statistics
import subprocess
import tempfile
import time
from importlib.metadata import version

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import dp_accounting  # noqa: E402
from dp_accounting import pld  # noqa: E402

SIGMA, RATE, STEPS, DELTA, ASKS = 5.1, 0.02, 2500, 1e-8, 15


def ask():
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(SIGMA)), STEPS)
    accountant = pld.PLDAccountant()
    accountant.compose(event)
    return accountant.get_epsilon(DELTA)


def main():
    root = subprocess.run(["git", "rev-parse", "--show-toplevel"], check=True, capture_output=True, text=True).stdout.strip()
    package = os.path.join(root, "dp", "accountant")
    theirs, ours = [], []
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "accountant.test")
        subprocess.run(["go", "test", "-c", "-o", binary, "."], check=True, cwd=package)
        for _ in range(ASKS):  # by turns, so that what else the machine does falls on both
            start = time.perf_counter()
            epsilon = ask()
            theirs.append(time.perf_counter() - start)
            out = subprocess.run([binary, "-test.run", "^$", "-test.bench", "^BenchmarkSampledGaussian$", "-test.cpu", "1",
                                  "-test.benchtime", "20x"], check=True, capture_output=True, text=True, cwd=package).stdout
            ours.append(float(re.search(r"([0-9.]+) ns/op", out)[1]) / 1e9)
    ratio = statistics.median(t / o for t, o in zip(theirs, ours))
    print(f"dp-accounting {version('dp-accounting')}: epsilon {epsilon:.6f}, median {statistics.median(theirs) * 1e3:.1f} ms")
    print(f"starling: median {statistics.median(ours) * 1e3:.1f} ms, bounds on both sides within 1e-4 relative")
    print(f"ratio {ratio:.1f} (median of {ASKS} turns)")


if __name__ == "__main__":
    main()
