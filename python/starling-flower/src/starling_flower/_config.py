"""The file that the server's two lines name: starling.toml."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ._errors import ConfigError

CROSS_SILO = "cross_silo"
CROSS_DEVICE = "cross_device"

#: What each mode may say of who took part.
SAID = {
    CROSS_SILO: "the SuperLink sees which nodes were asked, and which answered; coins and what an agent sends stay hidden "
    "from it, for every node is asked in every round, and updates go through the relay",
    CROSS_DEVICE: "the server app publishes models and reads sums; devices fetch and send through the relay by themselves, "
    "and no party sees which of them take part",
}


@dataclass(frozen=True)
class Config:
    """Where the controller is, and how rounds go."""

    #: The controller's control socket.
    control: str
    #: `cross_silo`: nodes are asked by Flower. `cross_device`: agents follow the training themselves.
    mode: str = CROSS_SILO
    #: Seconds that the sum of a round is waited for, after the round's end.
    patience: float = 600.0
    #: Seconds between two questions.
    poll: float = 0.2

    def __post_init__(self) -> None:
        if self.mode not in SAID:
            raise ConfigError(f"mode is {self.mode!r}", f"want {' or '.join(map(repr, SAID))}")
        if not self.control:
            raise ConfigError(
                "control is missing", "the path of the controller's socket: control in controller.toml"
            )
        if not 0 < self.patience <= 86400 * 7 or not 0 < self.poll <= 60:
            raise ConfigError(
                "patience or poll is out of range", "want seconds: up to a week, up to a minute"
            )


def load(source: Config | Mapping[str, Any] | str | os.PathLike[str]) -> Config:
    """A configuration from a file, a mapping, or as it is. Paths are from the file's folder."""
    if isinstance(source, Config):
        return source
    base = Path.cwd()
    if isinstance(source, Mapping):
        values = dict(source)
    else:
        path = Path(source)
        try:
            values = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
            raise ConfigError(
                f"{path}: {e}",
                'it has two lines: mode = "cross_silo" and control = "parties/control.sock"',
            ) from None
        base = path.resolve().parent
    known = {f.name for f in fields(Config)}
    if unknown := sorted(set(values) - known):
        raise ConfigError(f"no key {unknown[0]!r}", f"there are {', '.join(sorted(known))}")
    for key, kind in (("control", str), ("mode", str), ("patience", int | float), ("poll", int | float)):
        if key in values and (not isinstance(values[key], kind) or isinstance(values[key], bool)):
            raise ConfigError(
                f"{key} is {values[key]!r}", f"want {'a text' if kind is str else 'seconds'}"
            )
    if "control" not in values:
        raise ConfigError(
            "control is missing", "the path of the controller's socket: control in controller.toml"
        )
    values["control"] = str(base / values["control"])
    return Config(**values)
