"""Flower's accountant protocol, over the ledger that an agent keeps anyway."""

from __future__ import annotations

import math
import os
from typing import cast

from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    PrivacySpent,
    SamplingMethod,
)
from starling_agg import Agent, StarlingError, Task, TaskLedger

from ._errors import AgentAway, ConfigError

_SCHEMA = 1
_METHOD = "starling-ledger"


class LedgerAccountant:
    """`flwr.serverapp.PrivacyAccountant` of one recipe, as one agent's ledger has it.

    The agent charges its ledger whenever it tosses a coin, so nothing is composed here:
    `compose` holds what Flower says against what was charged. Numbers are the recipe's own,
    with its amplification by secret coins, which Flower's accountants refuse to count because
    a server that samples knows whom it asked. Where an epsilon or delta is asked for that the
    ledger has no number for, the answer is on the safe side, or an error.
    """

    def __init__(self, agent: Agent, task: str | Task, population_size: int) -> None:
        self._agent = agent
        self._task = self._ask_task(task)
        try:
            said = agent.ledger()
        except StarlingError as e:
            raise AgentAway(f"the ledger cannot be read: {e.problem}", e.hint) from None
        self._config = PrivacyConfig(
            # The ledger rounds what it adds up, and so its delta, upwards.
            target_delta=self._task.delta * (1 + 1e-9),
            population_size=population_size,
            neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
            sampling_method=SamplingMethod.NO_AMPLIFICATION,
            max_epsilon=said.max_epsilon,
        )
        self._composed = self._ledger().rounds

    @property
    def config(self) -> PrivacyConfig:
        """Delta of the recipe, epsilon of the agent's budget.

        The sampling method reads as no amplification, for the server amplifies nothing; what
        the device's coin amplifies is in the ledger's numbers.
        """
        return self._config

    @property
    def num_releases(self) -> int:
        """Rounds that the agent has paid for."""
        return self._ledger().rounds

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Hold what was released against the ledger; charging is the agent's alone.

        Raises ConfigError where the ledger has fewer rounds than are composed: something was
        released that no agent paid for.
        """
        del event  # its noise is what a server claims; the ledger has what the recipe proves
        _positive(count)
        have = self._ledger().rounds
        if self._composed + count > have:
            raise ConfigError(
                f"{count} releases are composed, and the agent has paid for {have - self._composed} since the last",
                "compose after aggregate_train; an agent that took no part has nothing to compose",
            )
        self._composed += count

    def get_epsilon(self, delta: float) -> float:
        """Epsilon at a delta: the ledger's, which is of the recipe's delta, or more than is needed."""
        if not 0 < delta < 1:
            raise ValueError("delta must be above 0 and below 1")
        ledger = self._ledger()
        if ledger.rounds == 0:
            return 0.0
        if delta >= ledger.loss.delta:
            return _bounded(ledger.loss.epsilon)
        if delta >= self._task.delta:
            return _bounded(self._task.epsilon)  # of all rounds, at the recipe's own delta
        raise ConfigError(
            f"the ledger is of delta {ledger.loss.delta}, and nothing is said of a smaller one",
            "starling account computes any",
        )

    def get_delta(self, epsilon: float) -> float:
        """Delta at an epsilon: the recipe's where epsilon is at least the ledger's, else 1."""
        if not epsilon >= 0:
            raise ValueError("epsilon must be 0 or more")
        spent = self._ledger().loss
        return float(spent.delta) if epsilon >= _bounded(spent.epsilon) else 1.0

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """What the recipe has cost this agent."""
        at = self._config.target_delta if delta is None else delta
        return PrivacySpent(
            epsilon=self.get_epsilon(at),
            delta=at,
            num_releases=self.num_releases,
            accounting_method=_METHOD,
        )

    def would_exceed(
        self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """Would more rounds exceed an epsilon, or the agent's budget? Nothing is tossed or charged."""
        del event
        _positive(count)
        ledger = self._ledger()
        if ledger.would_exceed or ledger.rounds + count > self._task.rounds:
            return True
        most = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if most is None or not most > 0:
            raise ValueError("max_epsilon must be positive")
        # What several more rounds cost is at most what all of the recipe's do.
        next = _bounded(ledger.next.epsilon if count == 1 else self._task.epsilon)
        return next > most

    def state_dict(self) -> dict[str, object]:
        """What was composed; the ledger itself is the agent's."""
        return {
            "schema_version": _SCHEMA,
            "backend": _METHOD,
            "task": self._task.task,
            "composed": self._composed,
        }

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on from a state of the same task. A ledger with fewer rounds was put back."""
        if state.get("schema_version") != _SCHEMA or state.get("backend") != _METHOD:
            raise ConfigError("it is no state of this accountant", "as state_dict returned it")
        composed = state.get("composed")
        if state.get("task") != self._task.task or type(composed) is not int or composed < 0:
            raise ConfigError("the state is of another task", "as state_dict returned it")
        if composed > self._ledger().rounds:
            raise ConfigError(
                f"{composed} rounds were composed, and the ledger has {self._ledger().rounds}",
                "it was put back: docs/recovery.md",
            )
        self._composed = composed

    def _ledger(self) -> TaskLedger:
        try:
            ledger = self._agent.ledger(self._task)
        except StarlingError as e:
            raise AgentAway(f"the ledger cannot be read: {e.problem}", e.hint) from None
        return cast(TaskLedger, ledger)

    def _ask_task(self, task: str | Task) -> Task:
        try:
            return self._agent.task(task)
        except StarlingError as e:
            raise AgentAway(f"the task cannot be read: {e.problem}", e.hint) from None


def accountant(
    socket: str | os.PathLike[str] | None = None, task: str | None = None, population_size: int = 1
) -> LedgerAccountant:
    """The accountant of an agent's task; of its only one where none is named."""
    agent = Agent(socket)
    if task is None:
        tasks = agent.tasks()
        if len(tasks) != 1:
            raise ConfigError(f"the agent answers {len(tasks)} recipes", "accountant(socket, task=ID)")
        task = tasks[0].task
    return LedgerAccountant(agent, task, population_size)


def _bounded(epsilon: float | None) -> float:
    """An epsilon as agents write it: -1, or nothing, where it has no bound."""
    return math.inf if epsilon is None or not epsilon >= 0 else float(epsilon)


def _positive(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ValueError("count must be a positive integer")
