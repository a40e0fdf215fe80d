"""The server's line: a strategy that sees one mean, with noise, in place of updates."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from logging import INFO, WARNING
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from starling_agg import (
    Busy,
    Controller,
    ControllerDown,
    ControllerUnavailable,
    Ended,
    NotThere,
    Round,
    Session,
    StarlingError,
)

from ._arrays import flatten, moved
from ._config import CROSS_DEVICE, SAID, Config, load
from ._errors import BadArrays, ConfigError, ModMissing, NoSum, StrategyRefused, TrainingOver
from ._receipt import METRICS, RECORD, is_receipt

#: Strategies that look at the updates of single clients.
_SINGLE = (
    "Krum",
    "MultiKrum",
    "Bulyan",
    "FedMedian",
    "FedTrimmedAvg",
    "QFedAvg",
    "FedXgbBagging",
    "FedXgbCyclic",
)
#: Strategies that clip and add noise of their own.
_NOISY = (
    "DifferentialPrivacyClientSideFixedClipping",
    "DifferentialPrivacyServerSideFixedClipping",
    "DifferentialPrivacyClientSideAdaptiveClipping",
    "DifferentialPrivacyServerSideAdaptiveClipping",
)
#: Strategies to which one reply is as good as many: what they make of a mean is post-processing.
_MEANS = ("FedAvg", "FedProx", "FedAvgM", "FedOpt", "FedAdam", "FedAdagrad", "FedYogi")


def _refuse(inner: Strategy) -> None:
    """Refuse what could not work, before anything is announced.

    The class of Flower's own that a strategy is made of decides: one that is not known, or
    comes with a later Flower, may need the updates of single clients.
    """
    if not isinstance(inner, Strategy):
        raise StrategyRefused(
            f"{type(inner).__name__} is no strategy of flwr.serverapp",
            "as Private(FedAvg(), 'starling.toml')",
        )
    if isinstance(inner, Private):
        raise StrategyRefused("the strategy is in Private already", "wrap it once")
    name = next(c.__name__ for c in type(inner).__mro__ if c.__module__.split(".")[0] == "flwr")
    if name in _SINGLE:
        raise StrategyRefused(
            f"{name} compares the updates of single clients, and nobody has them here",
            "a client's update is bounded by proof, which stops what it would: use FedAvg, FedProx or a FedOpt strategy",
        )
    if name in _NOISY:
        raise StrategyRefused(
            f"{name} clips and adds noise, which the agents and both servers do",
            "wrap the strategy that it wraps",
        )
    if name not in _MEANS and not getattr(inner, "starling_takes_a_mean", False):
        raise StrategyRefused(
            f"it is not known whether {type(inner).__name__} needs the updates of single clients",
            "if one reply with the mean will do, say so: starling_takes_a_mean = True in its class",
        )


class _Nobody(Grid):
    """As many nodes as a strategy waits for, of which none is there."""

    def __init__(self, inner: Strategy) -> None:
        names = ("min_available_nodes", "min_train_nodes")
        self._nodes = range(1, 1 + max(2, *(int(getattr(inner, name, 0)) for name in names)))

    def get_node_ids(self) -> Iterable[int]:
        return self._nodes

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        raise NotImplementedError


@dataclass
class _Open:
    """The round under way."""

    number: int  # Flower's
    round: Round
    arrays: ArrayRecord
    nodes: int


class Private(Strategy):
    """A strategy whose clients' updates nobody sees.

    `inner` gets one synthetic reply a round: the model, moved by the mean update that leader
    and helper released, each with noise of its own. FedAvg, FedProx and the FedOpt family
    work on it unchanged, and what they do is post-processing. `config` is the path of
    starling.toml, a mapping, or a Config.

    Everything fails closed: a client that answers with anything but a receipt ends the run
    with its id; a round without a sum leaves the model as it is, or raises NoSum where the
    controller is away; evaluation on clients is off, for its metrics are not private.
    """

    def __init__(
        self,
        inner: Strategy,
        config: Config | Mapping[str, Any] | str | os.PathLike[str] = "starling.toml",
    ) -> None:
        _refuse(inner)
        self.inner = inner
        self.config = load(config)
        self._controller = Controller(self.config.control)
        self._said: Session | None = None
        self._open: _Open | None = None
        #: What became of each of Flower's rounds: "stepped" or why it was skipped.
        self.history: dict[int, str] = {}

    # --- training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's messages, each with the round that was announced for the model."""
        if self.config.mode == CROSS_DEVICE:
            # Strategies note the model where they ask for training; what they ask goes nowhere.
            for _ in self.inner.configure_train(server_round, arrays, config, _Nobody(self.inner)):
                pass
            self._begin(server_round, arrays, 0)
            return []
        nodes = len(set(grid.get_node_ids()))
        messages = list(self.inner.configure_train(server_round, arrays, config, grid))
        asked = {m.metadata.dst_node_id for m in messages}
        if not messages:
            self._open = None
            return []
        if len(asked) != nodes:
            raise ConfigError(
                f"the strategy asks {len(asked)} of {nodes} nodes, and the SuperLink would see which",
                "fraction_train=1.0: agents decide by secret coins who takes part, as the recipe says",
            )
        opened = self._begin(server_round, arrays, nodes)
        said = ConfigRecord(
            {
                "task": self._session.recipe,
                "round": int(opened.round.round),
                "index": int(opened.round.index),
                "begin": str(opened.round.begin),
                "end": str(opened.round.end),
                "mode": self.config.mode,
            }
        )
        for m in messages:
            m.content[RECORD] = said
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """One reply to the inner strategy, with the mean of all; None where there is no sum."""
        opened, self._open = self._open, None
        receipts = self._receipts(replies)
        if opened is None:
            return None, None
        if opened.nodes:
            log(
                INFO,
                "aggregate_train: %d of %d nodes have handed in their updates",
                receipts,
                opened.nodes,
            )
        done = self._wait(opened)
        if done.state == "skipped":
            self.history[server_round] = str(done.reason or "skipped")
            log(
                WARNING,
                "aggregate_train: nothing is released of the round: %s; the model stays",
                self.history[server_round],
            )
            return None, None
        try:
            mean = self._controller.aggregate(done.index)
        except StarlingError as e:
            raise NoSum(
                f"the sum of round {server_round} cannot be read: {e}",
                "starling fl status controller.toml",
            ) from None
        after = moved(opened.arrays, mean)
        self.history[server_round] = "stepped"
        key = str(getattr(self.inner, "arrayrecord_key", "arrays"))
        weight = str(getattr(self.inner, "weighted_by_key", "num-examples"))
        content = RecordDict({key: after, METRICS: MetricRecord({weight: 1})})
        one = Message(content=content, dst_node_id=0, message_type=MessageType.TRAIN)
        return self.inner.aggregate_train(server_round, [one])

    def _begin(self, number: int, arrays: ArrayRecord, nodes: int) -> _Open:
        """Announce the model, for the next round of the recipe."""
        parameters = flatten(arrays)
        if parameters.size != (want := self._session.dimension):
            raise BadArrays(
                f"the model has {parameters.size} numbers, and the training {want}",
                "the recipe's terms say the layout: starling fl status",
            )
        until = time.monotonic() + self.config.patience
        while True:
            try:
                opened = _Open(number, self._controller.begin(parameters), arrays, nodes)
                break
            except Ended:
                raise TrainingOver(
                    "the guarantee covers no more rounds",
                    "num_rounds at most as many as the recipe has: starling fl status",
                ) from None
            except (Busy, ControllerUnavailable) as e:
                # One from before a restart: it ends by itself, and its sum is nobody's.
                if time.monotonic() > until:
                    raise NoSum(f"no round begins: {e}", "starling fl status controller.toml") from None
                time.sleep(self.config.poll)
            except ControllerDown as e:
                raise NoSum(
                    f"no round begins: {e}", "starling serve controller controller.toml"
                ) from None
        log(
            INFO,
            "round %d is the training's %d, from %s to %s",
            number,
            opened.round.index + 1,
            opened.round.begin,
            opened.round.end,
        )
        self._open = opened
        return opened

    def _receipts(self, replies: Iterable[Message]) -> int:
        """How many clients say that their agent took an update. Arrays end the run."""
        nodes: set[int] = set()
        errors = 0
        for reply in replies:
            if reply.has_error():
                errors += 1  # why is the client's own affair, and may be anything: it is not logged
                continue
            if not is_receipt(reply.content):
                raise ModMissing(
                    f"node {reply.metadata.src_node_id} answered with more than a receipt, and so without starling_flower.mod",
                    "@app.train(mods=[starling_flower.mod]); what it sent was not looked at",
                )
            nodes.add(reply.metadata.src_node_id)
        if errors:
            log(
                WARNING,
                "aggregate_train: %d nodes have handed in nothing; their own logs say why",
                errors,
            )
        return len(nodes)

    def _wait(self, opened: _Open) -> Round:
        ends = datetime.fromisoformat(opened.round.end).timestamp() + self.config.patience
        trouble = ""
        while True:
            try:
                now = self._controller.round(opened.round.index)
                if now.state != "announced":
                    return now
                trouble = "it is not collected"
            except (ControllerDown, ControllerUnavailable, NotThere) as e:
                trouble = str(e)  # it may be back in time
            if time.time() > ends:
                raise NoSum(
                    f"no sum of round {opened.number}: {trouble}",
                    "starling fl status controller.toml; starling why",
                )
            time.sleep(self.config.poll)

    @property
    def _session(self) -> Session:
        if self._said is None:
            try:
                self._said = self._controller.session()
            except StarlingError as e:
                raise NoSum(
                    f"the controller does not answer: {e}", "starling serve controller controller.toml"
                ) from None
        return self._said

    def start(self, *args: Any, **kwargs: Any) -> Result:
        """As Flower's, and NoSum where not one round was released: nothing was learned."""
        result = super().start(*args, **kwargs)  # which begins with summary, and so a new history
        became = self.history.values()
        if became and "stepped" not in became:
            raise NoSum(
                f"none of {len(became)} rounds was released: {', '.join(sorted(set(became)))}",
                "the clients' own logs say why they handed nothing in",
            )
        return result

    # --- evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: a client's metrics are its data. `evaluate_fn` of `start` is the server's own."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing."""
        return None

    # --- what is told

    def summary(self) -> None:
        """Log what protects the clients, and the inner strategy: a run begins."""
        self._said = None  # another controller may stand there than in the last
        self.history.clear()
        s = self._session
        log(
            INFO,
            "\t├──> Starling: recipe %s…, %d numbers, norm %.4g, at most %d rounds",
            s.recipe[:16],
            s.dimension,
            s.clip,
            s.rounds,
        )
        log(INFO, "\t│\t├── %s: %s", self.config.mode, SAID[self.config.mode])
        log(
            INFO,
            "\t│\t└── what it costs: starling fl status controller.toml; evaluation on clients is off",
        )
        self.inner.summary()

    def should_stop(self, server_round: int, result: Any) -> bool:
        """Has the guarantee no more rounds? (Flower 1.43 and later ask; before it, `start` raises.)"""
        try:
            status = self._controller.status()
        except StarlingError:
            return False
        return bool(status.ended) or int(status.announced) >= int(status.of)
