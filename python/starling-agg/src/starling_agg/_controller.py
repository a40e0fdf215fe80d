"""The client of a controller's control socket: docs/learning.md."""

from __future__ import annotations

import os
from array import array
from typing import Any

from ._answer import Answer
from ._errors import MalformedAnswer, StarlingError
from ._http import Down, Reply, Unix
from ._vector import Model, floats, read_floats


class ControllerError(StarlingError):
    """The controller refused."""

    def __init__(self, problem: str, hint: str = "", status: int = 0) -> None:
        super().__init__(problem, hint)
        self.status = status  #: of HTTP


class NotThere(ControllerError):
    """No such round, or its sum is not there: not yet, or no longer."""


class Busy(ControllerError):
    """A round is under way, or rounds do not begin by hand here."""


class Ended(ControllerError):
    """The training has no more rounds."""


class BadModel(ControllerError, ValueError):
    """Parameters of another length, or that are no numbers."""


class ControllerUnavailable(ControllerError):
    """A relay that is asked before each announcement does not answer, or the controller starts."""


class ControllerDown(ControllerError):
    """No controller answers at the socket."""


_CLASSES: dict[int, tuple[type[ControllerError], str]] = {
    400: (BadModel, "Controller.session().dimension says how many parameters there are"),
    404: (NotThere, "Controller.round(index).state says how far a round is"),
    409: (Busy, "wait for the round, Controller.status(); rounds begin by hand with manual = true"),
    410: (Ended, "Controller.model() and average() have what came of it"),
    413: (BadModel, "Controller.session().dimension says how many parameters there are"),
    503: (ControllerUnavailable, "ask again"),
}


class Session(Answer):
    """What a training is: its recipe, layout, clipping and number of rounds."""

    __slots__ = ()
    recipe: str
    session: str
    controller: str
    tensors: tuple[Answer, ...]
    dimension: int
    algorithm: str
    local_steps: int
    local_rate: float
    clip: float
    adaptive: Answer | None
    rounds: int
    first_round: int


class Round(Answer):
    """How far a round is."""

    __slots__ = ()
    index: int  # from 0
    round: int  # of the recipe
    begin: str  # RFC 3339
    end: str
    state: str  # announced, collected or skipped
    reason: str | None
    reports: int
    stepped: bool
    model: str


class TrainingStatus(Answer):
    """How far a training is."""

    __slots__ = ()
    recipe: str
    session: str
    of: int
    announced: int
    stepped: int
    skipped: int
    clip: float
    ended: str | None
    rounds: tuple[Answer, ...]


class Controller:
    """A client of a controller at its control socket. It keeps nothing between calls."""

    def __init__(self, socket: str | os.PathLike[str], timeout: float = 60) -> None:
        self._unix = Unix(socket, timeout)

    def __repr__(self) -> str:
        return f"Controller({self._unix.path!r})"

    def session(self) -> Session:
        """Recipe, layout, clipping, number of rounds."""
        return Session(self._ask("GET", "/v1/session").json())

    def status(self) -> TrainingStatus:
        """The rounds so far."""
        return TrainingStatus(self._ask("GET", "/v1/status").json())

    def model(self) -> Model:
        """The newest parameters, and their clipping norm."""
        reply = self._ask("GET", "/v1/model")
        try:
            return Model(read_floats(reply.body), float(reply.headers["Starling-Clip"]))
        except (KeyError, TypeError, ValueError):
            raise MalformedAnswer("the answer does not say the clipping norm") from None

    def average(self) -> Model:
        """The mean of the models after the last steps, where `average` says of which."""
        return Model(read_floats(self._ask("GET", "/v1/average").body))

    def begin(self, parameters: Any = None) -> Round:
        """Begin a round, with these parameters or with the optimizer's.

        It is never asked twice: after ControllerDown, `status()` says whether it has begun.
        """
        body = None if parameters is None else floats(parameters)
        return Round(self._ask("POST", "/v1/rounds", body, again=False, want=201).json())

    def round(self, index: int) -> Round:
        """The round of an index, from 0."""
        return Round(self._ask("GET", f"/v1/rounds/{int(index)}").json())

    def aggregate(self, index: int) -> array[float]:
        """The mean update of a round, over the planned cohort. NotThere before it is collected."""
        return read_floats(self._ask("GET", f"/v1/rounds/{int(index)}/aggregate").body)

    def _ask(
        self, method: str, path: str, body: bytes | None = None, again: bool = True, want: int = 200
    ) -> Reply:
        try:
            reply = self._unix.ask(method, path, body, again=again)
        except Down as e:
            hint = (
                "starling serve controller controller.toml runs one; its file names the socket: control"
            )
            if e.sent and not again:
                hint = "Controller.status() says whether the round has begun"
            raise ControllerDown(f"{self._unix.path}: no controller answers: {e}", hint) from e
        if reply.status == want:
            return reply
        cls, hint = _CLASSES.get(reply.status, (ControllerError, "starling fl status controller.toml"))
        try:
            problem = str(reply.json()["error"])
        except (MalformedAnswer, KeyError, TypeError):
            problem = reply.body[:200].decode(errors="replace").strip()
        raise cls(problem or f"status {reply.status}", hint, reply.status)
