"""The client's line: an update goes to the agent, and a receipt to the server."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
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
    StarlingError,
    Task,
    Unavailable,
    UnknownTask,
)

from ._arrays import Vector, difference, flatten, rounded
from ._errors import (
    AgentAway,
    BadArrays,
    ConfigError,
    FlowerError,
    NotAllowed,
    NotFinite,
    OtherModel,
    RoundMissed,
    TrainingFailed,
)
from ._receipt import asked, receipt

#: Where the agent's socket stands in a node's configuration, and in a run's.
SOCKET = "starling-agent"
_VARIABLE = "STARLING_AGENT"
_POLL = 0.1  # seconds
#: A round is waited for that begins within so many rounds, or within so long.
_ROUNDS_AHEAD = 2
_TIME_AHEAD = timedelta(hours=1)


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
    except (KeyError, ValueError, IndexError, AttributeError, TypeError):
        raise ConfigError(  # the path is this machine's own affair
            "the agent's path names what the node's configuration does not have",
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
    before, parameters = _model(message)
    agent = agent_of(context)
    task = _allowed(agent, said["task"], parameters)
    _timely(task, said["round"])
    reply = _trained(call_next, message, context)
    updates = _taken(before, reply, task)
    _contribute(agent, task, said["round"], parameters, updates)
    log(INFO, "the agent has the update of round %d", said["round"])
    return Message(receipt(), reply_to=message)


def _trained(call_next: ClientAppCallable, message: Message, context: Context) -> Message:
    """The app's answer. What it raises has a name that tells nothing, be it an Exception or not."""
    try:
        return call_next(message, context)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None
    except BaseException as e:
        if isinstance(e, SystemExit) and (e.code is None or type(e.code) is int):
            raise SystemExit(e.code) from None  # Flower stops its processes so
        log(ERROR, "the app's function raised", exc_info=e)
    raise TrainingFailed("the app's function raised", "the client's log says what")


def _taken(before: ArrayRecord, reply: Message, task: Task) -> list[Vector]:
    """The updates of an answer. Keys, shapes and how many persons there are stay here too."""
    try:
        return _updates(before, reply, task)
    except TrainingFailed:
        raise
    except Exception as e:
        log(ERROR, "the app's function returned no update of the model: %s", e, exc_info=e)
    raise BadArrays(  # outside, and so with no other exception as its context
        "the app's function returned no update of the model", "the client's log says what is wrong"
    )


def _timely(task: Task, round: int) -> None:
    """Refuse, before the work, a round that is over, and one that no client could wait for."""
    if task.round > round:
        raise _over(round)
    ahead = round - task.round
    if ahead <= _ROUNDS_AHEAD:
        return
    length = datetime.fromisoformat(task.ends) - datetime.fromisoformat(task.begins)
    if ahead > _TIME_AHEAD / max(length, timedelta(seconds=1)):
        raise RoundMissed(
            f"round {round} is far ahead of {task.round}, which runs",
            "the server's clock, or the client's, is wrong, or the server names rounds that are none",
        )


def _over(round: int) -> RoundMissed:
    return RoundMissed(
        f"round {round} is over", "longer rounds, as fl lab --round 30s, or less to train on"
    )


def _model(message: Message) -> tuple[ArrayRecord, Vector]:
    """The model, and its numbers as they are held to the announcement.

    The app gets these and no others: what binary32 does not have could mark one node's copy.
    """
    records = message.content.array_records
    if len(records) != 1:
        raise BadArrays(
            f"the server sent {len(records)} models", "a message for training has one ArrayRecord"
        )
    key, sent = next(iter(records.items()))
    parameters = flatten(sent)
    before = rounded(sent, parameters)
    # A copy, for the app may put other arrays into the very record that it is given.
    message.content[key] = ArrayRecord(dict(before))
    return before, parameters


def _allowed(agent: Agent, id: str, parameters: Vector) -> Task:
    """The task, if it may be contributed to: asked before the work, and nothing is tossed."""
    try:
        task = agent.task(id)
        if not task.allowed:
            log(ERROR, "the agent does not answer the recipe: %s", task.reason)
            raise NotAllowed(
                "the agent does not answer the recipe", "its owner runs starling check agent.toml"
            )
        if agent.ledger(id).would_exceed:
            raise NotAllowed(
                "the ledger has no room for one more round", "its owner's agent.toml has the budget"
            )
    except StarlingError as e:
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
            "fl lab --persons, or persons in agent.toml and --reduce shared:P of the recipe, say how many",
        )
    return [_update(before, after, task.persons > 1) for after in records]


def _update(before: ArrayRecord, after: ArrayRecord, one_of_several: bool) -> Vector:
    """One update; zeros where one of several persons has numbers that are none or infinite.

    Else one person would decide whether the site hands in anything, which the server sees.
    """
    try:
        return difference(before, after)
    except NotFinite as e:
        if not one_of_several:
            raise
        log(ERROR, "one person's update counts as zeros: %s", e.problem)
        return np.zeros_like(flatten(before))


def _contribute(agent: Agent, task: Task, round: int, parameters: Vector, updates: list[Vector]) -> None:
    """Wait for the round, hold the model to what was announced to all, and hand the updates in."""
    vector = np.concatenate(updates)
    held = False
    while True:
        try:
            now = agent.task(task)
            if now.round > round:
                raise _over(round)
            if now.round == round and now.model is not None:
                if not held:
                    _held(agent, now.model, parameters)
                    held = True
                agent.contribute(now, round, vector, persons=len(updates), **_data(now))
                return
        except (NoModel, RoundNotBegun, Unavailable):
            pass  # announcements come by the relay, and servers come back
        except RoundOver:
            raise _over(round) from None
        except StarlingError as e:
            raise _away(e) from None
        time.sleep(_POLL)


def _held(agent: Agent, hash: str, parameters: Vector) -> None:
    announced = np.frombuffer(agent.model(hash).parameters, dtype=np.float32)
    if announced.tobytes() != parameters.tobytes():  # by bits, for -0 and 0 would mark a copy
        raise OtherModel(
            "the server sent this node another model than was announced to all",
            "nothing was handed in; ask whoever runs the server why",
        )


def _data(task: Task) -> dict[str, Any]:
    """What an update is made of, where the agent's file has but one word for it."""
    return {"data": task.data[0]} if task.data and len(task.data) == 1 else {}


def _away(e: StarlingError) -> FlowerError:
    """The name of an outcome, in this package's words; where and why stay in the client's log."""
    log(ERROR, "the agent: %s", e)
    if not isinstance(e, AgentError):
        return AgentAway(
            "what answers at the socket is no agent", "the socket in the node's configuration"
        )
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
