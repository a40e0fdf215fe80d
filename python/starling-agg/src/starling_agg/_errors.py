"""Errors: one class for each thing that a caller may want to tell apart."""

from __future__ import annotations

from typing import Any, ClassVar


class StarlingError(Exception):
    """Base of every error of this package."""

    def __init__(self, problem: str, hint: str = "") -> None:
        super().__init__(problem, hint)
        self.problem = problem  #: what is wrong
        self.hint = hint  #: what to do next; may be empty

    def __str__(self) -> str:
        return f"{self.problem} ({self.hint})" if self.hint else self.problem


class MalformedAnswer(StarlingError):
    """What answered is no Starling of this protocol, or was cut off."""


class BinaryMissing(StarlingError):
    """No `starling` was found to run."""


class FramesMissing(StarlingError):
    """pandas is not installed, which `.frame()` needs."""


class CommandError(StarlingError):
    """The command refused a question, in its own words.

    `kind` is usage, input, unreachable, not-yet, check, failed, interrupted, question or
    internal; `exit` the exit code that the command has for it; `result` what it printed all
    the same, or None.
    """

    def __init__(
        self, problem: str, hint: str = "", kind: str = "failed", exit: int = 1, result: Any = None
    ) -> None:
        super().__init__(problem, hint)
        self.kind = kind
        self.exit = exit
        self.result = result


class AccountantDown(StarlingError):
    """The kept process ended, twice, before it answered; or it took longer than it may."""


class AgentError(StarlingError):
    """The agent refused; `outcome` is the name that docs/agent.md has for it."""

    outcome: str = ""
    _classes: ClassVar[dict[str, type[AgentError]]] = {}

    def __init_subclass__(cls, outcome: str = "", **more: Any) -> None:
        super().__init_subclass__(**more)
        if outcome:
            cls.outcome = outcome
            AgentError._classes[outcome] = cls

    @staticmethod
    def named(outcome: str, problem: str, hint: str = "") -> AgentError:
        """The error of an outcome; of one that is newer than this package the base class."""
        error = AgentError._classes.get(outcome, AgentError)(problem, hint)
        error.outcome = outcome
        return error


class MalformedRequest(AgentError, outcome="malformed"):
    """The agent could not read the request."""


class MethodRefused(AgentError, outcome="method"):
    """The agent has no such method there."""


class NothingThere(AgentError, outcome="not_found"):
    """The agent has nothing under that path."""


class UnknownTask(AgentError, outcome="unknown_task"):
    """The agent answers no such recipe."""


class BadVector(AgentError, ValueError, outcome="bad_vector"):
    """Another length than the task's, a number that is none or infinite, or nothing at all."""


class RoundOver(AgentError, outcome="round_over"):
    """The round is over: an update on an old model counts for nothing."""


class RoundNotBegun(AgentError, outcome="round_not_begun"):
    """The round has not begun."""


class NoModel(AgentError, outcome="no_model"):
    """Nothing is announced for the round that runs."""


class ModelRefused(AgentError, outcome="bad_model"):
    """What was fetched of the training is not what was announced."""


class Contradiction(AgentError, outcome="contradiction"):
    """The controller has signed two announcements that cannot stand together."""


class AlreadyContributed(AgentError, outcome="already_contributed"):
    """The round was paid for, by another update or before the agent was started anew."""


class PolicyRefused(AgentError, outcome="policy"):
    """The agent's own file does not allow it; no process can change that."""


class OverBudget(AgentError, outcome="over_budget"):
    """The ledger has no room for one more round."""


class NoRounds(AgentError, outcome="no_rounds"):
    """This device has paid for as many rounds as the recipe's guarantee covers."""


class TooSoon(AgentError, outcome="too_soon"):
    """The recipe keeps contributions of a device some rounds apart."""


class RecipeRefused(AgentError, outcome="refused"):
    """The recipe itself is not answered: its guarantee, its keys or its log."""


class NoCredentials(AgentError, outcome="no_credentials"):
    """`starling visit` has not been there this epoch."""


class Unavailable(AgentError, outcome="unavailable"):
    """Relay, gateway or servers could not be reached: ask again."""


class LedgerDamaged(AgentError, outcome="ledger"):
    """The ledger is damaged or was put back. It must not be deleted."""


class AgentDown(AgentError, outcome="down"):
    """No agent answers at the socket."""


class AgentTimeout(AgentDown, outcome="timeout"):
    """The agent took longer than the timeout; what was sent may have been taken.

    The same bytes may be sent again: they are accepted again, and cost nothing.
    """
