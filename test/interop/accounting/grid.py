"""Asks two published accountants what they answer, for settings drawn at random, and writes the answers as a table.

    python grid.py --seed 20261121 --rows 520 > grid.csv     # the committed table
    python grid.py --again grid.csv                          # ask its rows again and compare
    python grid.py --again grid.csv --pick WORD --most 40    # or 40 of them, which the word picks

`scale` is sigma, the Laplace scale b, the discrete Laplace parameter a = 1/scale, or epsilon_0 of k-ary randomized response.
Each row is one question, "which epsilon at this delta?", with a bracket: `upper` is the package's pessimistic answer and
`lower` its optimistic one (empty where it has none). The Go test accountant_grid_test.go puts the same questions to ours.
"""

import argparse
import csv
import hashlib
import importlib.metadata
import math
import multiprocessing
import random
import signal
import sys

from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import rdp_privacy_accountant as rdp
import dp_accounting
import PLD_accounting as allocation

FIELDS = ["mechanism", "scale", "k", "sampling", "steps", "selected", "slots", "neighbours", "delta", "method", "lower", "upper"]
INTERVAL = 1e-4
PATIENCE = 15  # seconds for one question
# How far an answer may be from the table's, relative to it. The packages convolve by FFT and cut
# the tails off where rounding decides: the same versions differ by 2e-5 between two processors.
# A mistake worth finding is larger than the 1e-3 by which the Go test wants our bounds to agree.
NEAR = 1e-4

NEIGHBOURS = {
    "add-remove": pld.NeighborRel.ADD_OR_REMOVE_ONE,
    "replace": pld.NeighborRel.REPLACE_ONE,
}


def short(x):
    return float(f"{x:.3g}")


def log_uniform(rng, low, high):
    return short(math.exp(rng.uniform(math.log(low), math.log(high))))


def draw(rng):
    """One question, as a dictionary of FIELDS without the answers."""
    kind = rng.choice(
        ["gaussian"] * 2 + ["sampled-gaussian"] * 5 + ["laplace"] * 2 + ["sampled-laplace"] * 2
        + ["discrete-gaussian"] * 2 + ["discrete-laplace"] * 2 + ["rr"] * 2 + ["rdp"] * 3 + ["allocation"] * 3)
    q = dict(mechanism=kind, scale="", k="", sampling=1, steps=1, selected="", slots="", neighbours="add-remove",
             delta=10.0 ** -rng.randint(4, 9), method="pld")
    steps = int(log_uniform(rng, 1, 3000))
    if kind == "gaussian":
        q.update(scale=log_uniform(rng, 0.5, 50), steps=steps)
    elif kind == "sampled-gaussian":
        q.update(scale=log_uniform(rng, 0.6, 8), sampling=log_uniform(rng, 0.0005, 0.5), steps=steps,
                 neighbours=rng.choice(["add-remove", "add-remove", "replace"]))
    elif kind == "laplace":
        q.update(scale=log_uniform(rng, 0.7, 50), steps=min(steps, 500))
    elif kind == "sampled-laplace":
        q.update(scale=log_uniform(rng, 0.5, 10), sampling=log_uniform(rng, 0.001, 0.5), steps=min(steps, 500))
    elif kind == "discrete-gaussian":
        q.update(scale=rng.randint(1, 40), steps=min(steps, 300))
    elif kind == "discrete-laplace":
        q.update(scale=log_uniform(rng, 0.05, 1.5), steps=min(steps, 300))
    elif kind == "rr":
        q.update(scale=log_uniform(rng, 0.05, 3), k=rng.choice([2, 2, 3, 8, 32]), steps=min(steps, 300), neighbours="replace")
    elif kind == "rdp":
        q.update(mechanism="sampled-gaussian", scale=log_uniform(rng, 0.8, 8), sampling=log_uniform(rng, 0.001, 0.5), steps=steps, method="rdp")
    elif kind == "allocation":
        q.update(scale=log_uniform(rng, 0.8, 5), slots=int(log_uniform(rng, 5, 1000)), selected=1, steps=rng.choice([1, 1, 3, 10]))
    return q


def answer(q):
    """(lower, upper) for one question; lower is None where the package gives none."""
    kind, delta, steps = q["mechanism"], float(q["delta"]), int(q["steps"])
    if kind == "allocation":
        bounds = []
        for bound in (allocation.BoundType.IS_DOMINATED, allocation.BoundType.DOMINATES):
            bounds.append(allocation.gaussian_allocation_epsilon_configurable(
                params=allocation.PrivacyParams(sigma=float(q["scale"]), num_steps=int(q["slots"]), num_selected=1, num_epochs=steps, delta=delta),
                config=allocation.AllocationSchemeConfig(convolution_method=allocation.ConvolutionMethod.GEOM), bound_type=bound))
        return bounds[0], bounds[1]
    if q["method"] == "rdp":
        accountant = rdp.RdpAccountant(orders=list(range(2, 257)))
        accountant.compose(dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(float(q["sampling"]), dp_accounting.GaussianDpEvent(float(q["scale"]))), steps))
        return None, accountant.get_epsilon(delta)
    found = []
    for pessimistic in (False, True):
        kw = dict(value_discretization_interval=INTERVAL, pessimistic_estimate=pessimistic)
        dots = dict(use_connect_dots=pessimistic)
        scale, sampling = float(q["scale"]), float(q["sampling"])
        if kind in ("gaussian", "sampled-gaussian"):
            one = pld.from_gaussian_mechanism(scale, sampling_prob=sampling, neighboring_relation=NEIGHBOURS[q["neighbours"]], **kw, **dots)
        elif kind in ("laplace", "sampled-laplace"):
            one = pld.from_laplace_mechanism(scale, sampling_prob=sampling, **kw, **dots)
        elif kind == "discrete-gaussian":
            one = pld.from_discrete_gaussian_mechanism(scale, **kw, **dots)
        elif kind == "discrete-laplace":
            one = pld.from_discrete_laplace_mechanism(scale, **kw, **dots)
        elif kind == "rr":
            k = int(q["k"])
            one = pld.from_randomized_response(k / (math.exp(scale) + k - 1), k, neighboring_relation=pld.NeighborRel.REPLACE_ONE, **kw)
        found.append(one.self_compose(steps).get_epsilon_for_delta(delta))
    return found[0], found[1]


def fmt(x):
    return "" if x is None or not math.isfinite(x) else f"{x:.9g}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=20261121)
    p.add_argument("--rows", type=int, default=520)
    p.add_argument("--again", help="a table to compare with")
    p.add_argument("--pick", default="", help="what picks the rows of --again")
    p.add_argument("--most", type=int, help="how many rows of --again, where not all")
    a = p.parse_args()
    versions = ", ".join(f"{n} {importlib.metadata.version(n)}" for n in ("dp-accounting", "PLD_accounting", "numpy", "scipy"))
    if a.again:
        lines = [l for l in open(a.again) if not l.startswith("#")]
        rows = list(csv.DictReader(lines))
        rows.sort(key=lambda r: hashlib.sha256((a.pick + repr(sorted(r.items()))).encode()).digest())
        rows = rows[: a.most]
        bad = 0
        with multiprocessing.Pool() as pool:
            answers = pool.map(answer, rows, chunksize=1)
        for row, bounds in zip(rows, answers):
            for name, got in zip(("lower", "upper"), bounds):
                want = row[name]
                if fmt(got) == "" and want == "":
                    continue
                if want == "" or fmt(got) == "" or abs(got - float(want)) > NEAR * abs(float(want)) + 1e-9:
                    bad += 1
                    print(f"{name}: {fmt(got)} now, {want} in the table: {row}")
        print(f"{len(rows) - bad} passed, {bad} failed")
        sys.exit(bad > 0)
    def give_up(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, give_up)
    rng = random.Random(a.seed)
    out = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    print(f"# {versions}; seed {a.seed}; value_discretization_interval {INTERVAL}")
    out.writeheader()
    done = 0
    while done < a.rows:
        q = draw(rng)
        try:
            signal.alarm(PATIENCE)
            lower, upper = answer(q)
            signal.alarm(0)
        except Exception as e:  # a package that gives no answer in time is passed over, and said so
            signal.alarm(0)
            print(f"no answer ({type(e).__name__}): {q}", file=sys.stderr)
            continue
        if not math.isfinite(upper) or upper > 60:
            continue
        q.update(lower=fmt(lower), upper=fmt(upper))
        out.writerow(q)
        sys.stdout.flush()
        done += 1


if __name__ == "__main__":
    main()
