"""Draws settings of `starling account` and writes what is known of each by other means.

    python settings.py --seed 20261122 > settings.csv      # the committed table
    python settings.py --again settings.csv --pick HASH --most 40

A row is a command line (without `--json`), perhaps a list of events for its standard input, and the interval [least, most] of the
true answer: of epsilon where --delta is given, of delta where --epsilon is. Least is empty or 0 and most is empty where nothing is
known. `source` says what the interval rests on:

    formula       a closed form in 40 digits
    enumeration   a sum over all outcomes (or over a sufficient statistic of them) and, for shuffled reports, over all data sets
    data set      the same for one pair of data sets: it bounds the truth from below only
    dp-accounting, PLD_accounting, prv-accountant   a published accountant's interval

`tight` is yes where the theorem asked is exact, so that the answer must not lie above `most` by more than its grid. The test
TestSettings of cmd/starling asks all rows.
"""

import argparse
import csv
import hashlib
import itertools
import json
import math
import random
import sys

import mpmath
import numpy as np
from scipy import stats

FIELDS = ["kind", "args", "events", "least", "most", "source", "tight"]
mpmath.mp.dps = 40


def short(x, digits=3):
    return float(f"{x:.{digits}g}")


def log_uniform(rng, low, high):
    return short(math.exp(rng.uniform(math.log(low), math.log(high))))


def whole(rng, low, high):
    return max(low, int(log_uniform(rng, low, high)))


def some_delta(rng):
    return short(10 ** -rng.uniform(3, 12), 2)


# Pairs of laws, as two arrays of equal length.


def divergence(p, q, epsilon):
    """max over both directions of sum max(0, p - e^epsilon q)."""
    e = math.exp(min(epsilon, 700))
    return max(np.maximum(p - e * q, 0).sum(), np.maximum(q - e * p, 0).sum())


def epsilon_at(curve, delta, most=700.0):
    """Where the falling curve gets down to delta."""
    if curve(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while curve(high) > delta:
        low, high = high, 2 * high
        if high > most:
            raise ValueError("no epsilon")
    for _ in range(200):
        mid = (low + high) / 2
        if curve(mid) > delta:
            low = mid
        else:
            high = mid
        if high - low <= 1e-13 * high:
            break
    return high


def product(*pairs):
    p, q = np.ones(1), np.ones(1)
    for a, b in pairs:
        p, q = np.outer(p, a).ravel(), np.outer(q, b).ravel()
    return p, q


def flip(e0):
    return 1 / (1 + math.exp(e0))


def responses(e0, count):
    j = np.arange(count + 1)
    f = flip(e0)
    return stats.binom.pmf(j, count, 1 - f), stats.binom.pmf(j, count, f)


def mixture(e0, slots, picks, rate):
    """Answers of `slots` responses of which `picks` are the person's, who takes part with probability rate: (present, absent)."""
    j = np.arange(slots + 1)
    q = stats.binom.pmf(j, slots, flip(e0))
    ratio = np.zeros(slots + 1)
    for i in range(picks + 1):
        # i of the picks fall on the j answers that speak for the person
        w = np.array([math.comb(int(x), i) * math.comb(slots - int(x), picks - i) / math.comb(slots, picks) for x in j])
        ratio += w * math.exp((2 * i - picks) * e0)
    return q * (1 - rate + rate * ratio), q


def repeated(pair, count):
    return product(*[pair] * count)


def few(pair, count):
    """count compositions of a pair of two outcomes, by how many were the first."""
    (p, _), (q, _) = pair
    j = np.arange(count + 1)
    return stats.binom.pmf(j, count, p), stats.binom.pmf(j, count, q)


def counts_of_ones(e0, n):
    """For each data set of n - 1 others: the laws of the number of ones if the person holds 1, or 0."""
    f = flip(e0)
    for ones in range(n):
        others = np.convolve(stats.binom.pmf(np.arange(ones + 1), ones, 1 - f),
                             stats.binom.pmf(np.arange(n - ones), n - 1 - ones, f))
        yield np.convolve(others, [f, 1 - f]), np.convolve(others, [1 - f, f])


def histograms(rows, n):
    """For each data set of n - 1 others: laws of the histogram of reports if the person holds value 0, or 1. rows[v] is the law of a
    report of v."""
    k = len(rows[0])

    def add(law, row):
        out = {}
        for h, p in law.items():
            for i in range(k):
                g = h[:i] + (h[i] + 1,) + h[i + 1:]
                out[g] = out.get(g, 0) + p * row[i]
        return out

    for others in itertools.combinations_with_replacement(range(len(rows)), n - 1):
        law = {(0,) * k: 1.0}
        for v in others:
            law = add(law, rows[v])
        p, q = add(law, rows[0]), add(law, rows[1])
        keys = sorted(p)
        yield np.array([p[h] for h in keys]), np.array([q[h] for h in keys])


def of_curve(curve, question):
    """The answer to ("delta", d), which epsilon, or to ("epsilon", e), which delta."""
    name, value = question
    return epsilon_at(curve, value) if name == "delta" else curve(value)


def of_pair(pair, question):
    return of_curve(lambda e: divergence(*pair, e), question)


def worst(pairs, question):
    return max(of_pair(x, question) for x in pairs)


def gaussian_curve(mu):
    mu = mpmath.mpf(mu)

    def curve(e):
        t = e / mu - mu / 2
        return float(mpmath.ncdf(-t) - mpmath.exp(e) * mpmath.ncdf(-t - mu))

    return curve


def lattice_gaussian(sigma):
    reach = int(14 * sigma) + 10
    z = np.arange(-reach, reach + 1)
    w = np.exp(-z.astype(float) ** 2 / (2 * sigma * sigma))
    return z, w / w.sum()


def discrete_gaussian_pair(sigma, count, shift):
    """count releases: the sum of the outcomes decides."""
    _, w = lattice_gaussian(sigma)
    law = w
    for _ in range(count - 1):
        law = np.convolve(law, w)
    half = len(law) // 2
    z = np.arange(-half, half + 1)
    loss = (2 * shift * z - count * shift * shift) / (2 * sigma * sigma)
    return law * np.exp(loss), law


def shifted(law, shift):
    pad = np.zeros(shift)
    return np.concatenate([pad, law]), np.concatenate([law, pad])


def discrete_laplace_pair(rate, count, shift):
    """By the loss, rate (shift - 2j), j = 0 .. shift, of each release."""
    z = 1 + math.exp(-rate)
    inner = [(1 - math.exp(-rate)) / z * math.exp(-rate * j) for j in range(1, shift)]
    one = np.array([1 / z] + inner + [math.exp(-rate * shift) / z])
    law = one
    for _ in range(count - 1):
        law = np.convolve(law, one)
    loss = rate * (shift * count - 2 * np.arange(len(law)))
    return law, law * np.exp(-loss)


# Published accountants.


def by_dp_accounting(build, question, interval=1e-4):
    """build(pessimistic) is the composed distribution."""
    name, value = question
    ask = (lambda d: d.get_epsilon_for_delta(value)) if name == "delta" else (lambda d: d.get_delta_for_epsilon(value))
    return ask(build(False)), ask(build(True))


def releases(maker, count, **kw):
    def build(pessimistic):
        return maker(pessimistic_estimate=pessimistic, use_connect_dots=pessimistic, **kw).self_compose(count)

    return build


def pld():
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution


def by_prv(sigma, rate, count, delta):
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    a = PRVAccountant(prvs=[PoissonSubsampledGaussianMechanism(sampling_probability=rate, noise_multiplier=sigma)],
                      max_self_compositions=[count], eps_error=0.01, delta_error=delta * 1e-4)
    low, _, high = a.compute_epsilon(delta=delta, num_self_compositions=[count])
    return low, high


def by_pld_accounting(sigma, slots, picks, epochs, delta):
    import PLD_accounting as allocation

    out = []
    for bound in (allocation.BoundType.IS_DOMINATED, allocation.BoundType.DOMINATES):
        out.append(allocation.gaussian_allocation_epsilon_configurable(
            params=allocation.PrivacyParams(sigma=sigma, num_steps=slots, num_selected=picks, num_epochs=epochs, delta=delta),
            config=allocation.AllocationSchemeConfig(convolution_method=allocation.ConvolutionMethod.GEOM), bound_type=bound))
    return out


# The kinds of settings. Each draws one, and returns (command line, least, most, source,
# tight) and perhaps a list of events.

KINDS = {}


def kind(share):
    def register(f):
        KINDS[f.__name__.replace("_", "-")] = (share, f)
        return f

    return register


def asked(rng, guess=None):
    """Mostly which epsilon at some delta, sometimes which delta at an epsilon of the order of guess."""
    if guess is None or rng.random() < 0.75:
        return "delta", some_delta(rng)
    return "epsilon", short(guess * rng.uniform(0.2, 0.8))


def exactly(args, value, source="enumeration", tight=True):
    return args, value, value, source, tight


@kind(17)
def gaussian(rng):
    sigma, count, c = log_uniform(rng, 1e-3, 1e3), whole(rng, 1, 1e6), rng.choice([1, 1, 0.5, 7])
    sigma = short(max(sigma, c * math.sqrt(count) / 1000))
    honest, replace = rng.choice([1, 1, 2]), rng.random() < 0.3
    mu = c * (2 if replace else 1) * math.sqrt(count / honest) / sigma
    question = asked(rng, mu * mu / 2 + mu)
    args = f"--mechanism gaussian --sigma {sigma} --steps {count} --sensitivity {c} --servers-honest {honest}"
    if replace:
        args += " --neighbours replace"
    return exactly(args, of_curve_long(gaussian_curve(mu), question), "formula"), question


def of_curve_long(curve, question):
    name, value = question
    return epsilon_at(curve, value, 2e6) if name == "delta" else curve(value)


@kind(8)
def laplace(rng):
    scale = short(math.exp(rng.uniform(math.log(0.02), math.log(1000))), 16)
    question = ("delta", 10 ** -rng.uniform(3, 16)) if rng.random() < 0.7 else ("epsilon", short(0.7 / scale))
    mu = 1 / scale
    curve = lambda e: max(0.0, -math.expm1((e - mu) / 2))
    value = curve(question[1]) if question[0] == "epsilon" else max(0, mu + 2 * math.log1p(-question[1]))
    return exactly(f"--mechanism laplace --scale {scale}", value, "formula"), question


@kind(4)
def laplace_of_two(rng):
    scale = log_uniform(rng, 0.1, 30)
    mu, question = 1 / scale, asked(rng, 1 / scale)

    def tail(x):  # P(X > x) of density (1+|x|) e^-|x| / 4
        return (2 + x) * math.exp(-x) / 4 if x >= 0 else 1 - (2 - x) * math.exp(x) / 4

    def curve(e):
        if e >= mu:
            return 0.0
        loss = lambda x: math.log1p(abs(x)) - abs(x) + abs(x + mu) - math.log1p(abs(x + mu))  # of N at x, Q sees x + mu
        low, high = -mu / 2, 1e4
        for _ in range(200):
            mid = (low + high) / 2
            low, high = (low, mid) if loss(mid) > e else (mid, high)
        return max(0.0, tail(high) - math.exp(e) * tail(high + mu))

    return exactly(f"--mechanism laplace --scale {scale} --servers-honest 2", of_curve(curve, question), "formula"), question


@kind(7)
def laplace_many(rng):
    scale, count = log_uniform(rng, 0.5, 30), whole(rng, 2, 400)
    question = ("delta", some_delta(rng))
    low, high = by_dp_accounting(releases(pld().from_laplace_mechanism, count, parameter=scale, value_discretization_interval=1e-4), question)
    return (f"--mechanism laplace --scale {scale} --steps {count}", low, min(high, count / scale), "dp-accounting", True), question


@kind(14)
def discrete_gaussian(rng):
    sigma, count, c = short(rng.uniform(0.5, 9), 4), whole(rng, 1, 30), rng.choice([1, 1, 2, 5])
    mu = c * math.sqrt(count) / sigma
    question = asked(rng, mu * mu / 2 + mu)
    value = of_pair(discrete_gaussian_pair(sigma, count, c), question)
    return exactly(f"--mechanism discrete-gaussian --sigma {sigma} --steps {count} --sensitivity {c}", value), question


@kind(5)
def discrete_gaussian_of_two(rng):
    sigma, c = short(rng.uniform(0.5, 6), 4), rng.choice([1, 3])
    _, w = lattice_gaussian(sigma)
    question = asked(rng, 2 * c / sigma)
    value = of_pair(shifted(np.convolve(w, w), c), question)
    return exactly(f"--mechanism discrete-gaussian --sigma {sigma} --sensitivity {c} --servers-honest 2", value), question


@kind(4)
def correlated_gaussian(rng):
    # One band is noise that does not cancel.
    sigma, count, rounds = short(rng.uniform(3, 9), 4), whole(rng, 1, 10), 12
    mu = math.sqrt(count) / sigma
    question = ("delta", some_delta(rng))
    value = of_pair(discrete_gaussian_pair(sigma, count, 1), question)
    return (f"--mechanism correlated-gaussian --sigma {sigma} --bands 1 --rounds {rounds} --steps {count}", value, "", "enumeration", False), question


@kind(12)
def discrete_laplace(rng):
    scale, count, c = log_uniform(rng, 0.3, 50), whole(rng, 1, 60), rng.choice([1, 1, 2, 6])
    pure = c * count / scale
    question = asked(rng, pure)
    value = of_pair(discrete_laplace_pair(1 / scale, count, c), question) if pure < 600 else None
    return exactly(f"--mechanism discrete-laplace --scale {scale} --steps {count} --sensitivity {c}", value, tight=c == 1 or count == 1), question


@kind(4)
def discrete_laplace_of_two(rng):
    scale, c = log_uniform(rng, 0.3, 20), rng.choice([1, 4])
    z = np.arange(-int(60 * scale) - 5, int(60 * scale) + 6)
    w = np.exp(-np.abs(z) / scale)
    w /= w.sum()
    question = asked(rng, c / scale)
    value = of_pair(shifted(np.convolve(w, w), c), question)
    return exactly(f"--mechanism discrete-laplace --scale {scale} --sensitivity {c} --servers-honest 2", value), question


@kind(10)
def rr(rng):
    e0, count = log_uniform(rng, 0.02, 6), whole(rng, 1, 2000)
    question = asked(rng, min(e0 * count, e0 * e0 * count / 2 + 3 * e0 * math.sqrt(count)))
    value = of_pair(responses(e0, count), question)
    return exactly(f"--mechanism rr --epsilon0 {e0} --steps {count}", value), question


@kind(8)
def rr_of_many(rng):
    e0, k, count = log_uniform(rng, 0.1, 4), rng.choice([3, 5, 20]), whole(rng, 1, 12)
    z = math.exp(e0) + k - 1
    one = (np.array([math.exp(e0) / z, 1 / z, (k - 2) / z]), np.array([1 / z, math.exp(e0) / z, (k - 2) / z]))
    a, b = [], []
    for i in range(count + 1):
        for j in range(count + 1 - i):
            a.append(stats.multinomial.pmf([i, j, count - i - j], count, one[0]))
            b.append(stats.multinomial.pmf([i, j, count - i - j], count, one[1]))
    question = asked(rng, e0 * math.sqrt(count))
    return exactly(f"--mechanism rr --epsilon0 {e0} --k {k} --steps {count}", of_pair((np.array(a), np.array(b)), question)), question


@kind(8)
def rappor(rng):
    e0, k, count, deletion = log_uniform(rng, 0.1, 4), rng.choice([2, 5, 30]), whole(rng, 1, 40), rng.random() < 0.5
    bits = count * (1 if deletion else 2)  # that change
    question = asked(rng, e0 * math.sqrt(bits))
    args = f"--mechanism rappor --epsilon0 {e0} --k {k} --steps {count}" + (" --ldp deletion" if deletion else "")
    return exactly(args, of_pair(responses(e0, bits), question)), question


@kind(22)
def sampled_gaussian(rng):
    sigma, rate, count = log_uniform(rng, 0.6, 8), log_uniform(rng, 0.0005, 0.5), whole(rng, 1, 3000)
    question = ("delta", short(10 ** -rng.uniform(4, 9), 2))
    if rng.random() < 0.4:
        low, high = by_prv(sigma, rate, count, question[1])
        source = "prv-accountant"
    else:
        low, high = by_dp_accounting(releases(pld().from_gaussian_mechanism, count, standard_deviation=sigma, sampling_prob=rate,
                                              value_discretization_interval=1e-4), question)
        source = "dp-accounting"
    return (f"--mechanism gaussian --sigma {sigma} --sampling {rate} --steps {count}", low, high, source, True), question


@kind(6)
def sampled_gaussian_once(rng):
    sigma, rate = log_uniform(rng, 0.4, 5), log_uniform(rng, 1e-4, 0.9)
    curve = gaussian_curve(1 / sigma)

    def both(e):
        remove = rate * curve(math.log1p(math.expm1(e) / rate))
        rest = 1 - math.exp(e) * (1 - rate)
        add = 0.0
        if rest > 0:
            x = e + math.log(rate / rest)
            # D(x) for negative x: D(-x) e^x + 1 - e^x
            add = rest * (curve(x) if x >= 0 else math.exp(x) * curve(-x) + 1 - math.exp(x))
        return max(remove, add)

    question = ("delta", short(rate * both(0.0) * 10 ** -rng.uniform(1, 6), 2))
    return exactly(f"--mechanism gaussian --sigma {sigma} --sampling {rate}", of_curve(both, question), "formula"), question


@kind(10)
def sampled_laplace(rng):
    scale, rate, count = log_uniform(rng, 0.5, 10), log_uniform(rng, 0.001, 0.5), whole(rng, 1, 400)
    question = ("delta", short(10 ** -rng.uniform(4, 9), 2))
    low, high = by_dp_accounting(releases(pld().from_laplace_mechanism, count, parameter=scale, sampling_prob=rate,
                                          value_discretization_interval=1e-4), question)
    return (f"--mechanism laplace --scale {scale} --sampling {rate} --steps {count}", low, high, "dp-accounting", True), question


@kind(8)
def sampled_discrete(rng):
    rate, count = log_uniform(rng, 0.002, 0.5), whole(rng, 1, 200)
    question = ("delta", short(10 ** -rng.uniform(4, 9), 2))
    if rng.random() < 0.5:
        sigma = short(rng.uniform(1, 9), 3)
        maker, args = pld().from_discrete_gaussian_mechanism, f"--mechanism discrete-gaussian --sigma {sigma}"
        kw = dict(sigma=sigma)
    else:
        scale = rng.choice([0.5, 1, 2, 4, 8, 20])
        maker, args = pld().from_discrete_laplace_mechanism, f"--mechanism discrete-laplace --scale {scale}"
        kw = dict(parameter=1 / scale)
    low, high = by_dp_accounting(releases(maker, count, sampling_prob=rate, value_discretization_interval=1e-4, **kw), question)
    return (f"{args} --sampling {rate} --steps {count}", low, high, "dp-accounting", True), question


@kind(8)
def sampled_rr(rng):
    e0, rate, count = log_uniform(rng, 0.2, 5), log_uniform(rng, 0.001, 0.8), whole(rng, 1, 300)
    pair = mixture(e0, 1, 1, rate)
    question = asked(rng, math.log1p(rate * math.expm1(e0)) * math.sqrt(count))
    relation = rng.choice(["add-remove", "zero-out"])
    value = of_pair(few(pair, count), question)
    return exactly(f"--mechanism rr --epsilon0 {e0} --sampling {rate} --steps {count} --neighbours {relation}", value), question


@kind(8)
def replaced_gaussian(rng):
    from dp_accounting.pld import privacy_loss_distribution as p

    sigma, rate, count = log_uniform(rng, 0.8, 8), log_uniform(rng, 0.005, 0.5), whole(rng, 3, 1000)
    question = ("delta", short(10 ** -rng.uniform(4, 8), 2))
    low, high = by_dp_accounting(releases(pld().from_gaussian_mechanism, count, standard_deviation=sigma, sampling_prob=rate,
                                          neighboring_relation=p.NeighborRel.REPLACE_ONE, value_discretization_interval=1e-4), question)
    return (f"--mechanism gaussian --sigma {sigma} --sampling {rate} --steps {count} --neighbours replace", low, high, "dp-accounting", True), question


@kind(8)
def public_count(rng):
    # All others hold -C, the person C or -C: the sum moves by 2C with the probability of
    # being in the sample.
    sigma, rate, count = log_uniform(rng, 1, 9), log_uniform(rng, 0.005, 0.5), whole(rng, 1, 300)
    question = ("delta", short(10 ** -rng.uniform(4, 8), 2))
    low, _ = by_dp_accounting(releases(pld().from_gaussian_mechanism, count, standard_deviation=sigma / 2, sampling_prob=rate,
                                       value_discretization_interval=1e-4), question)
    args = f"--mechanism gaussian --sigma {sigma} --sampling {rate} --steps {count} --count public"
    if rng.random() < 0.5:
        args += f" --population {whole(rng, 1000, 1e6)}"
    return (args, low, "", "data set", False), question


@kind(5)
def allocated_gaussian(rng):
    sigma, slots, runs = log_uniform(rng, 0.8, 5), whole(rng, 5, 100), rng.choice([1, 1, 3])
    question = ("delta", short(10 ** -rng.uniform(4, 8), 2))
    low, high = by_pld_accounting(sigma, slots, 1, runs, question[1])
    return (f"--mechanism gaussian --sigma {sigma} --allocation 1/{slots} --steps {runs}", low, high, "PLD_accounting", True), question


@kind(4)
def allocated_gaussian_often(rng):
    # Below: the sum of all steps. Above: the published bound, of blocks.
    sigma, picks, runs = log_uniform(rng, 1, 5), rng.randint(2, 3), 1
    slots = picks * rng.randint(4, 12)
    question = ("delta", short(10 ** -rng.uniform(4, 8), 2))
    _, high = by_pld_accounting(sigma, slots, picks, runs, question[1])
    low = of_curve(gaussian_curve(picks * math.sqrt(runs / slots) / sigma), question)
    args = f"--mechanism gaussian --sigma {sigma} --allocation {picks}/{slots} --steps {runs}"
    return (args, low, high, "PLD_accounting", True), question


@kind(20)
def allocated_rr(rng):
    e0, slots, runs = log_uniform(rng, 0.2, 4), whole(rng, 2, 60), rng.choice([1, 1, 2])
    picks = min(slots, rng.choice([1, 1, 2, 3, 7]))
    rate = rng.choice([1, 1, 0.3, 0.02])
    pair = repeated(mixture(e0, slots, picks, rate), runs)
    question = asked(rng, rate * picks * e0 * 0.5)
    args = f"--mechanism rr --epsilon0 {e0} --allocation {picks}/{slots} --steps {runs} --neighbours add-remove"
    if rate != 1:
        if picks == slots:
            raise ValueError("a composition is not sampled from")
        args += f" --sampling {rate}"
    return exactly(args, of_pair(pair, question), tight=picks == 1), question


@kind(12)
def shuffled_rr(rng):
    e0, n = log_uniform(rng, 0.2, 5), whole(rng, 1, 60)
    question = asked(rng, e0 / math.sqrt(n))
    return exactly(f"--mechanism rr --epsilon0 {e0} --shuffle-n {n}", worst(counts_of_ones(e0, n), question), tight=False), question


@kind(4)
def shuffled_rr_again(rng):
    e0, n, count = log_uniform(rng, 0.2, 4), whole(rng, 2, 30), rng.choice([2, 3])
    question = asked(rng, e0 * math.sqrt(count / n))
    value = worst((repeated(x, count) for x in list(counts_of_ones(e0, n))[:: max(1, n // 4)]), question)
    return (f"--mechanism rr --epsilon0 {e0} --shuffle-n {n} --steps {count}", value, "", "data set", False), question


@kind(10)
def shuffled_rr_of_many(rng):
    e0, k = log_uniform(rng, 0.3, 4), rng.choice([3, 4])
    n = rng.randint(1, 6 if k == 3 else 4)
    z = math.exp(e0) + k - 1
    rows = [[(math.exp(e0) if i == v else 1) / z for i in range(k)] for v in range(k)]
    question = asked(rng, e0 / math.sqrt(n))
    return exactly(f"--mechanism rr --epsilon0 {e0} --k {k} --shuffle-n {n}", worst(histograms(rows, n), question), tight=False), question


@kind(3)
def shuffled_rr_of_many_again(rng):
    # Two rounds of the same data set.
    e0, k, n = log_uniform(rng, 0.3, 3), 3, rng.randint(1, 4)
    z = math.exp(e0) + k - 1
    rows = [[(math.exp(e0) if i == v else 1) / z for i in range(k)] for v in range(k)]
    question = asked(rng, 2 * e0 / math.sqrt(n))
    value = worst((repeated(x, 2) for x in histograms(rows, n)), question)
    return (f"--mechanism rr --epsilon0 {e0} --k {k} --shuffle-n {n} --steps 2", value, "", "data set", False), question


@kind(7)
def shuffled_rappor_deleted(rng):
    # Of the person's column; all others say nothing of it.
    e0, n = log_uniform(rng, 0.2, 5), whole(rng, 1, 60)
    question = asked(rng, e0 / math.sqrt(n))
    args = f"--mechanism rappor --epsilon0 {e0} --k {rng.choice([2, 6])} --shuffle-n {n} --neighbours zero-out"
    return exactly(args, worst(counts_of_ones(e0, n), question), tight=False), question


@kind(5)
def shuffled_rappor(rng):
    e0, n = log_uniform(rng, 0.2, 2), rng.randint(1, 4)
    f = flip(e0)
    rows = [[math.prod(f if bit != (i == v) else 1 - f for i, bit in enumerate(report)) for report in itertools.product([0, 1], repeat=2)]
            for v in range(2)]
    question = asked(rng, 2 * e0 / math.sqrt(n))
    return exactly(f"--mechanism rappor --epsilon0 {e0} --shuffle-n {n}", worst(histograms(rows, n), question), tight=False), question


@kind(6)
def shuffled_laplace(rng):
    # Reports cut at a threshold, all others at the far end, counted.
    scale, n, discrete = rng.choice([0.5, 1, 2, 4, 10]), whole(rng, 1, 200), rng.random() < 0.4

    def above(center, x):
        if discrete:  # P(center + Y >= x), whole x
            a = math.exp(-1 / scale)
            d = x - center
            return a**d / (1 + a) if d >= 1 else 1 - a ** (1 - d) / (1 + a)
        d = (x - center) / scale
        return math.exp(-d) / 2 if d >= 0 else 1 - math.exp(d) / 2

    def pairs():
        for x in (range(-2, 4) if discrete else np.linspace(-1.5, 1.5, 13)):
            far, near = above(-1, x), above(1, x)
            others = stats.binom.pmf(np.arange(n), n - 1, far)
            yield np.convolve(others, [1 - near, near]), np.convolve(others, [1 - far, far])

    name = "discrete-laplace" if discrete else "laplace"
    question = asked(rng, 2 / scale / math.sqrt(n))
    return (f"--mechanism {name} --scale {scale} --shuffle-n {n}", worst(pairs(), question), "", "data set", False), question


@kind(14)
def checked_in_rr(rng):
    e0, m, p0 = log_uniform(rng, 0.2, 4), whole(rng, 1, 200), rng.choice([1, 1, 0.5, 0.05])
    way, relation = rng.choice(["fixed", "sliding"]), rng.choice(["zero-out", "add-remove", "replace"])
    question = asked(rng, p0 * e0 / math.sqrt(m))
    args = f"--mechanism rr --epsilon0 {e0} --checkin {way} --window {m} --neighbours {relation}"
    if p0 < 1:
        args += f" --p0 {p0}"
    value = of_pair(mixture(e0, m, 1, p0), question)  # all others hold 0
    if relation == "replace":
        return (args, value, "", "data set", False), question
    return exactly(args, value), question


@kind(4)
def checked_in_averaged(rng):
    # A window of one slot: all check in at once.
    e0, n = log_uniform(rng, 0.3, 3), whole(rng, 2, 60)
    question = ("delta", some_delta(rng))
    value = worst(counts_of_ones(e0, n), question)
    return (f"--mechanism rr --epsilon0 {e0} --checkin averaged --window 1 --shuffle-n {n}", value, "", "data set", False), question


@kind(14)
def checked_in(rng):
    # In the other slots, and in the person's if she is absent, are clients who hold the
    # opposite.
    way = rng.choice(["fixed", "sliding"])
    relation = rng.choice(["", " --neighbours add-remove", " --neighbours zero-out"])
    draw = rng.choice(["gaussian", "gaussian", "laplace", "discrete-gaussian", "discrete-laplace", "rappor"])
    question = ("delta", short(10 ** -rng.uniform(4, 8), 2))
    if draw == "gaussian":
        sigma, m = log_uniform(rng, 1.6, 8), rng.choice([1, 1, 5, 30])
        low = of_curve(gaussian_curve(2 / sigma), question) if m == 1 else by_pld_accounting(sigma / 2, m, 1, 1, question[1])[0]
        args = f"--sigma {sigma}"
    else:
        m = rng.choice([1, 2])
        scale = rng.choice([1, 2, 4])
        if draw == "laplace":  # by the sign of the outcome
            far = math.exp(-1 / scale) / 2
            p, q = np.array([1 - far, far]), np.array([far, 1 - far])
            args = f"--scale {scale}"
        elif draw == "discrete-laplace":
            p, q = discrete_laplace_pair(1 / scale, 1, 2)
            args = f"--scale {scale}"
        elif draw == "discrete-gaussian":
            p, q = discrete_gaussian_pair(scale, 1, 2)
            args = f"--sigma {scale}"
        else:
            p, q = responses(1 / scale, 2)
            args = f"--epsilon0 {1 / scale}"
        if m == 2:
            p, q = (np.outer(p, q) + np.outer(q, p)).ravel() / 2, np.outer(q, q).ravel()
        low = of_pair((p, q), question)
    if draw == "rappor" and not relation:
        relation = " --ldp deletion"
    return (f"--mechanism {draw} {args} --checkin {way} --window {m}{relation}", low, "", "data set", False), question


@kind(11)
def list_of_responses(rng):
    question = ("delta", some_delta(rng))
    events, pairs = [], []
    for _ in range(rng.randint(2, 3)):
        e0, count = log_uniform(rng, 0.1, 2), whole(rng, 1, 15)
        if rng.random() < 0.4:
            fail = some_delta(rng) * 1e-3
            p, q = responses(e0, 1)
            p, q = np.concatenate([p * (1 - fail), [fail, 0]]), np.concatenate([q * (1 - fail), [0, fail]])
            events.append({"mechanism": "approx-dp", "epsilon": e0, "delta": fail, "count": 1})
            pairs.append((p, q))
        else:
            events.append({"mechanism": "rr", "epsilon0": e0, "count": count})
            pairs.append(responses(e0, count))
    return exactly("--events - --neighbours replace", of_pair(product(*pairs), question)), question, events


@kind(10)
def list_of_noise(rng):
    question = ("delta", short(10 ** -rng.uniform(4, 8), 2))
    events, makers = [], []
    for _ in range(rng.randint(2, 4)):
        rate, count = rng.choice([None, log_uniform(rng, 0.01, 0.5)]), whole(rng, 1, 60)
        draw = rng.choice(["gaussian", "laplace", "discrete-laplace"])
        if draw == "gaussian":
            sigma = log_uniform(rng, 2, 20)
            e, kw, maker = {"sigma": sigma}, {"standard_deviation": sigma}, pld().from_gaussian_mechanism
        elif draw == "laplace":
            scale = log_uniform(rng, 2, 30)
            e, kw, maker = {"scale": scale}, {"parameter": scale}, pld().from_laplace_mechanism
        else:
            scale = rng.choice([2, 5, 10, 40])
            e, kw, maker = {"scale": scale}, {"parameter": 1 / scale}, pld().from_discrete_laplace_mechanism
        e.update(mechanism=draw, count=count)
        if rate:
            e["sampling"] = kw["sampling_prob"] = rate
        events.append(e)
        makers.append(releases(maker, count, value_discretization_interval=1e-4, **kw))

    def build(pessimistic):
        whole_list = makers[0](pessimistic)
        for m in makers[1:]:
            whole_list = whole_list.compose(m(pessimistic))
        return whole_list

    low, high = by_dp_accounting(build, question)
    return ("--events -", low, high, "dp-accounting", True), question, events


def fmt(x):
    return "" if x is None or x == "" or not math.isfinite(x) else f"{x:.15g}"


def setting(name, seed):
    """One row: the first of a stream of draws that makes sense, in a stream of its own."""
    rng = random.Random(f"{name} {seed}")
    for _ in range(1000):
        try:
            (args, least, most, source, tight), question, *events = KINDS[name][1](rng)
        except (ValueError, OverflowError, ZeroDivisionError):
            continue
        value = most if most != "" else least
        if value is None or not math.isfinite(value) or value > (9.9e5 if name == "gaussian" else 100) or question[0] == "epsilon" and value > 0.9:
            continue
        if value < (1e-4 if question[0] == "delta" else 1e-14):
            continue
        return dict(kind=name, args=f"{args} --{question[0]} {question[1]}", events=json.dumps(events[0]) if events else "",
                    least=fmt(least), most=fmt(most), source=source, tight="yes" if tight else "")
    raise RuntimeError(name)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=20261122)
    p.add_argument("--only", default="", help="one kind")
    p.add_argument("--again", help="a table to compare with")
    p.add_argument("--pick", default="", help="what picks the rows of --again")
    p.add_argument("--most", type=int, default=40)
    a = p.parse_args()
    names = [(name, i) for name, (share, _) in KINDS.items() for i in range(share) if a.only in ("", name)]
    if a.again:
        rows = list(csv.DictReader(line for line in open(a.again) if not line.startswith("#")))
        order = sorted(range(len(rows)), key=lambda i: hashlib.sha256(f"{a.pick} {i}".encode()).digest())
        bad = 0
        for i in order[: a.most]:
            name, index = names[i]
            again = setting(name, f"{a.seed} {index}")
            same = again["args"] == rows[i]["args"] and again["events"] == rows[i]["events"]
            for end in ("least", "most"):
                x, y = again[end], rows[i][end]
                same = same and (x == y or x != "" and y != "" and abs(float(x) - float(y)) <= 1e-6 * abs(float(y)))
            if not same:
                bad += 1
                print(f"{again} now, {rows[i]} in the table")
        print(f"{min(a.most, len(rows)) - bad} passed, {bad} failed")
        sys.exit(bad > 0)
    print(f"# seed {a.seed}; made by settings.py")
    out = csv.DictWriter(sys.stdout, FIELDS, lineterminator="\n")
    out.writeheader()
    for name, i in names:
        out.writerow(setting(name, f"{a.seed} {i}"))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
