"""The client's line: an update goes to the agent, and a receipt to the server."""

from __future__ import annotations

import os
import time
from logging import ERROR, INFO
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MessageType
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.logger import log
from starling_agg import (
    Agent,
    AgentDown,
    AgentError,
    AlreadyContributed,
    NoCredentials,
    NoModel,
    OverBudget,
    PolicyRefused,
    RecipeRefused,
    RoundNotBegun,
    RoundOver,
    Task,
    Unavailable,
    UnknownTask,
)

from ._arrays import Vector, difference, flatten
from ._errors import (
    AgentAway,
    BadArrays,
    ConfigError,
    FlowerError,
    NotAllowed,
    OtherModel,
    RoundMissed,
    TrainingFailed,
)
from ._receipt import asked, receipt

#: Where the agent's socket stands in a node's configuration, and in a run's.
SOCKET = "starling-agent"
_VARIABLE = "STARLING_AGENT"
_POLL = 0.1  # seconds


def agent_of(context: Context) -> Agent:
    """The agent of a node: --node-config 'starling-agent="/path"', $STARLING_AGENT, or run_config.

    `{partition-id}` and other values of the node's configuration may stand in the path, for
    simulations, whose nodes have no configuration of their own.
    """
    path = context.node_config.get(SOCKET) or os.environ.get(_VARIABLE) or context.run_config.get(SOCKET)
    if not isinstance(path, str) or not path:
        raise ConfigError(
            "no agent is named",
            f"flower-supernode --node-config '{SOCKET}=\"/path/agent.sock\"', or ${_VARIABLE}",
        )
    try:
        return Agent(path.format_map({str(k): v for k, v in context.node_config.items()}))
    except (KeyError, ValueError, IndexError):
        raise ConfigError(
            f"the agent's path {path!r} names what the node's configuration does not have",
            "as /path/{partition-id}/agent.sock",
        ) from None


def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Train as the app does, hand the update to the agent, and return a receipt.

    For `@app.train(mods=[mod])`. The app's function returns a reply with the arrays of the
    model that it was sent, as for FedAvg; where the agent takes the updates of several
    persons in a contribution, one ArrayRecord for each of them, under any names. Its metrics
    go nowhere. Nothing is sent to the server but the receipt, or the name of what went wrong:
    whatever an exception says stays here.
    """
    if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
        raise ConfigError(
            f"the mod is of training, and this is {message.metadata.message_type!r}",
            "@app.train(mods=[mod]), and not the app's mods",
        )
    said = asked(message)
    before = _model(message)
    parameters = flatten(before)
    agent = agent_of(context)
    task = _allowed(agent, said["task"], parameters)
    try:
        reply = call_next(message, context)
    except Exception as e:
        log(ERROR, "the app's function raised", exc_info=e)
        raise TrainingFailed("the app's function raised", "the client's log says what") from None
    updates = _updates(before, reply, task)
    _contribute(agent, task, int(said["round"]), parameters, updates)
    log(INFO, "the agent has the update of round %d", said["round"])
    return Message(receipt(), reply_to=message)


def _model(message: Message) -> ArrayRecord:
    records = message.content.array_records
    if len(records) != 1:
        raise BadArrays(
            f"the server sent {len(records)} models", "a message for training has one ArrayRecord"
        )
    # The app may put other arrays into the very record that it was given.
    return ArrayRecord(dict(next(iter(records.values()))))


def _allowed(agent: Agent, id: str, parameters: Vector) -> Task:
    """The task, if it may be contributed to: asked before the work, and nothing is tossed."""
    try:
        task = agent.task(id)
        if not task.allowed:
            raise NotAllowed(
                f"the agent does not answer: {task.reason}", "its owner runs starling check agent.toml"
            )
        if agent.ledger(id).would_exceed:
            raise NotAllowed(
                "the ledger has no room for one more round", "its owner's agent.toml has the budget"
            )
    except AgentError as e:
        raise _away(e) from None
    if task.numbers != parameters.size:
        raise BadArrays(
            f"the model has {parameters.size} numbers, and the recipe {task.numbers}",
            "the server's model is not that of the training",
        )
    return task


def _updates(before: ArrayRecord, reply: Message, task: Task) -> list[Vector]:
    if reply.has_error() or not reply.has_content():
        raise TrainingFailed("the app's function answered with an error", "the client's log says what")
    records = list(reply.content.array_records.values())
    if not records:
        raise BadArrays("the app returned no arrays", "return the arrays of the model, as for FedAvg")
    if len(records) > task.persons:
        raise BadArrays(
            f"the app returned {len(records)} models, and a contribution has {task.persons} at most",
            "persons in agent.toml says how many",
        )
    return [difference(before, after) for after in records]


def _contribute(agent: Agent, task: Task, round: int, parameters: Vector, updates: list[Vector]) -> None:
    """Wait for the round, hold the model to what was announced to all, and hand the updates in."""
    vector = np.concatenate(updates)
    held = False
    while True:
        try:
            now = agent.task(task)
            if now.round > round:
                raise RoundMissed(
                    f"round {round} is over", "longer rounds: --round of the recipe, or less to train on"
                )
            if now.round == round and now.model is not None:
                if not held:
                    _held(agent, now.model, parameters)
                    held = True
                agent.contribute(now, round, vector, persons=len(updates), **_data(now))
                return
        except (NoModel, RoundNotBegun, Unavailable):
            pass  # announcements come by the relay, and servers come back
        except RoundOver:
            raise RoundMissed(
                f"round {round} is over", "longer rounds: --round of the recipe, or less to train on"
            ) from None
        except AgentError as e:
            raise _away(e) from None
        time.sleep(_POLL)


def _held(agent: Agent, hash: str, parameters: Vector) -> None:
    announced = np.frombuffer(agent.model(hash).parameters, dtype=np.float32)
    if not np.array_equal(announced, parameters):
        raise OtherModel(
            "the server sent this node another model than was announced to all",
            "nothing was handed in; ask whoever runs the server why",
        )


def _data(task: Task) -> dict[str, Any]:
    """What an update is made of, where the agent's file has but one word for it."""
    return {"data": task.data[0]} if task.data and len(task.data) == 1 else {}


def _away(e: AgentError) -> FlowerError:
    """The name of an outcome, in this package's words."""
    if isinstance(e, OverBudget | PolicyRefused | RecipeRefused | UnknownTask | NoCredentials):
        return NotAllowed(f"the agent refuses: {e.outcome}", "its owner runs starling status agent.toml")
    if isinstance(e, AlreadyContributed):
        return NotAllowed(
            "the round has an update of this node already",
            "after a restart in mid-round: wait for the next",
        )
    if isinstance(e, AgentDown):
        return AgentAway(
            "the agent does not answer",
            "starling serve agent agent.toml, and the socket in the node's configuration",
        )
    return AgentAway(f"the agent refuses: {e.outcome}", "its owner runs starling status agent.toml")
