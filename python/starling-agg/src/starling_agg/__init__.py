"""Starling from Python: take part in trainings, account for privacy, plan, collect.

`Agent` and `Controller` are clients of the two unix sockets that a training process meets.
`Accountant` asks a kept `starling account --serve`. Nothing here computes a guarantee or a
noise by itself: every number is the binary's own.
"""

from ._account import Accountant, Curve, Guarantee, Plan, Recipe, Training
from ._agent import (
    Agent,
    Ledger,
    Status,
    Task,
    TaskLedger,
)
from ._answer import Answer
from ._binary import find as find_binary
from ._collect import CollectError, Result, collect
from ._controller import (
    BadModel,
    Busy,
    Controller,
    ControllerDown,
    ControllerError,
    ControllerUnavailable,
    Ended,
    NotThere,
    Round,
    Session,
    TrainingStatus,
)
from ._errors import (
    AccountantDown,
    AgentDown,
    AgentError,
    AgentTimeout,
    AlreadyContributed,
    BadVector,
    BinaryMissing,
    CommandError,
    FramesMissing,
    LedgerDamaged,
    MalformedAnswer,
    MalformedRequest,
    MethodRefused,
    NoCredentials,
    NoModel,
    NothingThere,
    OverBudget,
    PolicyRefused,
    RecipeRefused,
    RoundNotBegun,
    RoundOver,
    StarlingError,
    TooSoon,
    Unavailable,
    UnknownTask,
)
from ._vector import Model

__version__ = "0.1.0"

__all__ = [
    "Accountant",
    "AccountantDown",
    "Agent",
    "AgentDown",
    "AgentError",
    "AgentTimeout",
    "AlreadyContributed",
    "Answer",
    "BadModel",
    "BadVector",
    "BinaryMissing",
    "Busy",
    "CollectError",
    "CommandError",
    "Controller",
    "ControllerDown",
    "ControllerError",
    "ControllerUnavailable",
    "Curve",
    "Ended",
    "FramesMissing",
    "Guarantee",
    "Ledger",
    "LedgerDamaged",
    "MalformedAnswer",
    "MalformedRequest",
    "MethodRefused",
    "Model",
    "NoCredentials",
    "NoModel",
    "NotThere",
    "NothingThere",
    "OverBudget",
    "Plan",
    "PolicyRefused",
    "Recipe",
    "RecipeRefused",
    "Result",
    "Round",
    "RoundNotBegun",
    "RoundOver",
    "Session",
    "StarlingError",
    "Status",
    "Task",
    "TaskLedger",
    "TooSoon",
    "Training",
    "TrainingStatus",
    "Unavailable",
    "UnknownTask",
    "collect",
    "find_binary",
]
