"""Answers: what Starling says, as frozen objects with an attribute for each JSON key."""

from __future__ import annotations

import copy
import html
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Self

from ._errors import FramesMissing, MalformedAnswer

_SHOWN = 6  # entries of a list, or keys of an object within another, that a repr shows


class Answer:
    """One JSON object of an answer.

    Every key is an attribute, and `answer["key"]` too; objects within are answers
    themselves and lists are tuples. `raw` is the JSON as Python has it, a new copy at each
    call. A number that is not there, such as an epsilon without bound, is None. A subclass
    may name keys by annotations: one that Starling left out is None.
    """

    __slots__ = ("_raw", "_values")
    _raw: dict[str, Any]
    _values: dict[str, Any]

    def __init__(self, raw: Mapping[str, Any]) -> None:
        if not isinstance(raw, Mapping):
            raise MalformedAnswer(f"expected a JSON object and got {_short(raw)}")
        object.__setattr__(self, "_raw", dict(raw))
        object.__setattr__(self, "_values", {k: _frozen(v) for k, v in raw.items()})

    @property
    def raw(self) -> dict[str, Any]:
        return copy.deepcopy(self._raw)

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            pass
        if not name.startswith("_") and name in _named(type(self)):
            return None
        raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(self)}")

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._values})

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, Answer) and other._raw == self._raw

    def __hash__(self) -> int:
        return hash((type(self), tuple(self._values)))

    def __reduce__(self) -> tuple[type[Self], tuple[dict[str, Any]]]:
        return type(self), (self._raw,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={_short(v)}' for k, v in self._values.items())})"

    def _repr_html_(self) -> str:
        return _table(self._values, type(self).__name__)

    def frame(self) -> Any:
        """A pandas frame of one row, a column for each key."""
        return frame_of([{k: v for k, v in self._raw.items() if not isinstance(v, list | dict)}])


def frame_of(rows: list[dict[str, Any]]) -> Any:
    """A pandas frame of rows; an error that says what to install where pandas is not there."""
    try:
        import pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]
    except ImportError:
        raise FramesMissing(
            "pandas is not installed", "pip install pandas, or use .raw, which needs nothing"
        ) from None
    return pandas.DataFrame(rows)


def _named(cls: type) -> set[str]:
    """Keys that a class and those above it name by annotations."""
    return {k for c in cls.__mro__ for k in inspect.get_annotations(c)}


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return Answer(value)
    if isinstance(value, list):
        return tuple(_frozen(v) for v in value)
    return value


def _short(value: Any) -> str:
    """A value for people, in a line."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        inner = ", ".join(_short(v) for v in value[:_SHOWN])
        return f"({inner}{', …' if len(value) > _SHOWN else ''})"
    if isinstance(value, Answer):
        keys = list(value)[:_SHOWN]
        inner = ", ".join(f"{k}={_short(value[k])}" for k in keys)
        return f"{{{inner}{', …' if len(value) > _SHOWN else ''}}}"
    text = repr(value)
    return text if len(text) <= 200 else text[:199] + "…"


def _cell(value: Any) -> str:
    if isinstance(value, Answer):
        return _table(value._values, "")
    if isinstance(value, tuple):
        if any(isinstance(v, Answer) for v in value):
            return "".join(_cell(v) for v in value)
        return html.escape(", ".join(_plain(v) for v in value))
    return html.escape(_plain(value))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _short(value)


def _table(values: Mapping[str, Any], caption: str) -> str:
    """An HTML table. Names and texts in answers are others': all of them are escaped."""
    head = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(str(k))}</th>'
        f'<td style="text-align:left">{_cell(v)}</td></tr>'
        for k, v in values.items()
    )
    return f"<table>{head}{rows}</table>"
