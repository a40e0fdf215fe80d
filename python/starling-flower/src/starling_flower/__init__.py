"""Starling for Flower: two changed lines, and nobody sees an update.

Server: `Private(FedAvg(), "starling.toml")`. Client: `@app.train(mods=[starling_flower.mod])`.
"""

from ._accountant import LedgerAccountant, accountant
from ._config import CROSS_DEVICE, CROSS_SILO, Config
from ._errors import (
    AgentAway,
    BadArrays,
    ConfigError,
    FlowerError,
    ModMissing,
    NoSum,
    NotAllowed,
    OtherModel,
    RoundMissed,
    StrategyRefused,
    TrainingFailed,
    TrainingOver,
    WrapperMissing,
)
from ._mod import mod
from ._private import Private

__version__ = "0.1.0"

__all__ = [
    "CROSS_DEVICE",
    "CROSS_SILO",
    "AgentAway",
    "BadArrays",
    "Config",
    "ConfigError",
    "FlowerError",
    "LedgerAccountant",
    "ModMissing",
    "NoSum",
    "NotAllowed",
    "OtherModel",
    "Private",
    "RoundMissed",
    "StrategyRefused",
    "TrainingFailed",
    "TrainingOver",
    "WrapperMissing",
    "accountant",
    "mod",
]
