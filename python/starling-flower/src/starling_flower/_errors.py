"""What goes wrong, by name. No text of these has a number of an update in it."""

from __future__ import annotations


class FlowerError(Exception):
    """Base of every error of this package; `hint` says what to do next."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem, hint)
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        return f"starling: {self.problem}" + (f" ({self.hint})" if self.hint else "")


class ConfigError(FlowerError, ValueError):
    """The configuration, or what stands around it, does not fit."""


class StrategyRefused(ConfigError):
    """The inner strategy needs the updates of single clients, or adds noise of its own."""


class BadArrays(FlowerError, ValueError):
    """Arrays that are no update: other keys, shapes or types, no numbers, nothing at all."""


class NotFinite(BadArrays):
    """Numbers that are none, or infinite in 32 bits."""


class ModMissing(FlowerError):
    """A client answered with more than a receipt: its app does not use `mod`."""


class WrapperMissing(FlowerError):
    """The server's message says nothing of a round: its strategy is not in `Private`."""


class OtherModel(FlowerError):
    """The server sent this client another model than it announced to all."""


class NotAllowed(FlowerError):
    """The agent's own file or its ledger does not allow a contribution."""


class AgentAway(FlowerError):
    """The agent is down, or does not take the update now."""


class RoundMissed(FlowerError):
    """The round was over before the update was there."""


class TrainingFailed(FlowerError):
    """The app's own function raised; what it said stays on this machine, in the log."""


class NoSum(FlowerError):
    """The controller is down, or the sum of a round did not come in time."""


class TrainingOver(FlowerError):
    """The guarantee covers no more rounds."""
