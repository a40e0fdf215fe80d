"""The accountant and the planner: docs/accounting.md, docs/planning.md.

No parameter is named here: keywords are the command's flags, with _ for -, and what is wrong
with one is said by the command. `starling account --help` lists them.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from ._answer import Answer, frame_of
from ._binary import find
from ._errors import CommandError
from ._process import Process, Reply, shared
from ._svg import lines

_CHECK = "check"  # the problem of a plan that is out of reach, which comes with its result


class Guarantee(Answer):
    """What some noise guarantees, or what a guarantee takes. Bounds are rounded up."""

    __slots__ = ()
    epsilon: float | None  # None: no bound
    epsilon_lower: float | None  # what the true one is at least; 0 where nothing is known
    delta: float | None
    neighbours: str
    method: str
    theorem: str
    assumptions: tuple[str, ...]


class Plan(Answer):
    """A recipe to an accuracy, a loss or both. `fits` says whether they go together."""

    __slots__ = ()
    fits: bool
    needs: Answer | None  # what would do, where it does not fit
    sigma: float | None
    epsilon: float | None
    delta: float | None


class Training(Answer):
    """What a training will be like. Its picture is epsilon after its rounds."""

    __slots__ = ()
    sigma: float
    epsilon: float | None
    delta: float
    spent: tuple[Answer, ...]

    def curve(self) -> Curve:
        """Epsilon after each eighth of the rounds."""
        return Curve("rounds", "epsilon", {}, [(s["rounds"], s) for s in self.spent])

    def svg(self) -> str:
        return self.curve().svg()


class Recipe(Answer):
    """What a recipe asks and what it guarantees."""

    __slots__ = ()
    id: str
    name: str
    guarantee: Answer


class Curve:
    """A guarantee over one of its parameters: `curve[i]` is the answer at `curve.x[i]`."""

    def __init__(
        self,
        over: str,
        what: str,
        flags: Mapping[str, str],
        points: Iterable[tuple[Any, Answer]],
    ) -> None:
        list_ = list(points)
        self.over = over  #: the name on the x axis
        self.what = what  #: the name on the y axis
        self.flags = dict(flags)  #: what is the same at all points
        self.x: tuple[Any, ...] = tuple(x for x, _ in list_)
        self.answers: tuple[Answer, ...] = tuple(a for _, a in list_)
        self.y: tuple[float | None, ...] = tuple(a[what] for a in self.answers)  #: None: no bound

    @property
    def raw(self) -> list[dict[str, Any]]:
        return [{self.over: x} | a.raw for x, a in zip(self.x, self.answers, strict=True)]

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> Answer:
        return self.answers[at]

    def __repr__(self) -> str:
        if not self.x:
            return f"Curve({self.what} over {self.over}, empty)"
        y0, y1 = (("none" if y is None else f"{y:.6g}") for y in (self.y[0], self.y[-1]))
        return (
            f"Curve({self.what} over {self.over}, {len(self)} points: "
            f"{y0} at {self.x[0]} to {y1} at {self.x[-1]})"
        )

    def frame(self) -> Any:
        """A pandas frame, a row for each point."""
        return frame_of(
            [{k: v for k, v in r.items() if not isinstance(v, list | dict)} for r in self.raw]
        )

    def svg(self) -> str:
        """A picture: the bound, and what is known from below where something is."""
        below = [a.raw.get(f"{self.what}_lower") for a in self.answers]
        series = [(self.what, list(self.y))]
        if any(below):
            series.append(("at least", below))
        title = ", ".join(f"{k} {v}" for k, v in self.flags.items())
        return lines(title, self.over, self.what, [float(x) for x in self.x], series)

    def _repr_svg_(self) -> str:
        return self.svg()


class Accountant:
    """Asks a kept `starling account --serve`, which all accountants of an interpreter share.

    The process starts at the first question, is started again if it dies, and ends with the
    interpreter. Threads take turns; a forked child starts a process of its own. `timeout`,
    in seconds, is of one question: None waits, as long as a hard one takes.
    """

    def __init__(
        self, binary: str | os.PathLike[str] | None = None, timeout: float | None = None
    ) -> None:
        self._binary = os.fspath(binary) if binary is not None else find()
        self.timeout = timeout

    def __repr__(self) -> str:
        return f"Accountant({self._binary!r})"

    @property
    def _process(self) -> Process:
        return shared((self._binary, "account", "--serve"))

    def hello(self) -> Answer:
        """What answers: its version and its methods."""
        return Answer(self._process.hello())

    def ask(self, method: str, *args: str, stdin: str = "") -> Reply:
        """One question with the command's own arguments, for what has no method here."""
        return self._process.ask(method, args, stdin, self.timeout)

    def account(self, mechanism: str | None = None, **flags: Any) -> Guarantee:
        """`starling account`: keywords are its flags, `sigma=5.1, sampling=0.02, steps=2500`."""
        if mechanism is not None:
            flags = {"mechanism": mechanism} | flags
        return Guarantee(self._result("account", flags))

    def gaussian(self, **flags: Any) -> Guarantee:
        """Gaussian noise of the servers: sigma."""
        return self.account("gaussian", **flags)

    def discrete_gaussian(self, **flags: Any) -> Guarantee:
        """Whole-number Gaussian noise of the servers: sigma."""
        return self.account("discrete-gaussian", **flags)

    def correlated_gaussian(self, **flags: Any) -> Guarantee:
        """Noise of the servers that cancels over rounds: sigma, bands, rounds."""
        return self.account("correlated-gaussian", **flags)

    def laplace(self, **flags: Any) -> Guarantee:
        """Laplace noise of the servers: scale."""
        return self.account("laplace", **flags)

    def discrete_laplace(self, **flags: Any) -> Guarantee:
        """Whole-number Laplace noise of the servers: scale."""
        return self.account("discrete-laplace", **flags)

    def rr(self, **flags: Any) -> Guarantee:
        """Randomized response on devices: epsilon0, k."""
        return self.account("rr", **flags)

    def rappor(self, **flags: Any) -> Guarantee:
        """RAPPOR on devices: epsilon0, k."""
        return self.account("rappor", **flags)

    def solve(self, what: str, mechanism: str | None = None, **flags: Any) -> Guarantee:
        """What a guarantee takes: `solve("sigma", "gaussian", epsilon=1, delta=1e-8).sigma`."""
        return self.account(mechanism, **{"solve": what} | flags)

    def events(self, events: Iterable[Mapping[str, Any]], **flags: Any) -> Guarantee:
        """A list of different releases, all of them together; keys are those of --events."""
        text = json.dumps([{k: _plain(v) for k, v in e.items()} for e in events], allow_nan=False)
        return Guarantee(self._result("account", {"events": "-"} | flags, text))

    def curve(self, mechanism: str | None = None, **flags: Any) -> Curve:
        """A guarantee over one parameter: the keyword that has a list, or a range, of values.

        `curve("gaussian", sigma=5.1, sampling=0.02, steps=range(100, 2600, 100), delta=1e-8)`
        """
        over = [k for k, v in flags.items() if _is_list(v)]
        if len(over) != 1:
            raise TypeError(f"one keyword of a curve has a list of values, and {len(over)} have: {over}")
        values = list(flags.pop(over[0]))
        solved = flags.get("solve")
        what = str(solved) if solved else "delta" if "epsilon" in {*flags, *over} else "epsilon"
        same = {k: _text(v) for k, v in flags.items() if v is not None and v is not False}
        if mechanism is not None:
            same = {"mechanism": mechanism} | same
        return Curve(
            over[0],
            what,
            same,
            [(v, self.account(mechanism, **flags | {over[0]: v})) for v in values],
        )

    def plan(self, **flags: Any) -> Plan:
        """`starling recipe plan`. A plan that is out of reach has fits=False, and `needs`."""
        return Plan(self._result("plan", flags, fits=True))

    def fl_plan(self, **flags: Any) -> Training:
        """`starling fl plan`: what a training will be like."""
        return Training(self._result("fl plan", flags, fits=True))

    def show(self, file: str | os.PathLike[str]) -> Recipe:
        """`starling recipe show`: what a recipe asks, and its guarantee, computed again."""
        return Recipe(self._raised(self.ask("recipe show", os.fspath(file)), False))

    def close(self) -> None:
        """End the process, which all accountants share; the next question starts another."""
        self._process.close()

    def _result(self, method: str, flags: Mapping[str, Any], stdin: str = "", fits: bool = False) -> Any:
        return self._raised(self.ask(method, *arguments(flags), stdin=stdin), fits)

    def _raised(self, reply: Reply, fits: bool) -> Any:
        if reply.error is None or (fits and reply.error.kind == _CHECK and reply.result is not None):
            return reply.result
        raise reply.error


def arguments(flags: Mapping[str, Any]) -> list[str]:
    """Keywords as flags: `min_batch=20` is --min-batch=20, True the flag alone, None none.

    A flag that is a word of Python's has _ behind it: `from_="2026-01-31T00:00:00Z"`.
    """
    out = []
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if name in ("json", "serve"):
            raise CommandError(f"{flag} is not for questions", "leave it out", "usage", 2)
        if value is True:
            out.append(flag)
        elif value is not None and value is not False:
            out.append(f"{flag}={_text(value)}")
    return out


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | os.PathLike | Mapping)


def _text(value: Any) -> str:
    """A value as the command reads it: numbers by their shortest digits that say the same."""
    value = _plain(value)
    if isinstance(value, float):
        return repr(value)
    if _is_list(value):
        return ",".join(_text(v) for v in value)
    return str(value)


def _plain(value: Any) -> Any:
    """Numbers of other packages, numpy's say, as Python's own."""
    if value is None or isinstance(value, str | bool | Fraction):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    try:
        return operator.index(value)
    except TypeError:
        pass
    if not _is_list(value) and hasattr(value, "__float__"):
        return float(value)
    return value
