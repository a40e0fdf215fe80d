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

_KINDS: dict[str, Any] = {"control": str, "mode": str, "patience": int | float, "poll": int | float}


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
        for key, kind in _KINDS.items():
            value = getattr(self, key)
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ConfigError(
                    f"{key} is {value!r}", f"want {'a text' if kind is str else 'seconds'}"
                )
        if self.mode not in SAID:
            raise ConfigError(f"mode is {self.mode!r}", f"want {' or '.join(map(repr, SAID))}")
        if not self.control or "\0" in self.control:
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
        try:
            path = Path(source)
        except TypeError:
            raise ConfigError(
                f"a {type(source).__name__} is no configuration",
                "the path of starling.toml, or a mapping",
            ) from None
        if not str(source):
            raise ConfigError(
                "the path of starling.toml is empty",
                "as --run-config 'starling=\"/path/starling.toml\"'; fl lab --keep DIR writes one",
            )
        try:
            values = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as e:
            raise ConfigError(
                f"{path}: {e}",
                'it has two lines: mode = "cross_silo" and control = "parties/control.sock"',
            ) from None
        base = path.resolve().parent
    known = {f.name for f in fields(Config)}
    if unknown := sorted(map(repr, set(values) - known)):
        raise ConfigError(f"no key {unknown[0]}", f"there are {', '.join(sorted(known))}")
    control = values.setdefault("control", "")
    if control == "":
        raise ConfigError(
            "control is missing", "the path of the controller's socket: control in controller.toml"
        )
    if isinstance(control, str):
        values["control"] = str(base / control.removeprefix("unix:"))
    return Config(**values)
