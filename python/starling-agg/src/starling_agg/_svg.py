"""Pictures, drawn by hand in SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

_W, _H = 560, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 16, 40, 52
_COLOURS = ("#1f5fa8", "#9aa7b5", "#b3541e")


def lines(
    title: str,
    x_label: str,
    y_label: str,
    x: Sequence[float],
    series: Sequence[tuple[str, Sequence[float | None]]],
) -> str:
    """Series of numbers over x, with labelled axes. None, and what is no number, is a gap."""
    known = [y for _, ys in series for y in ys if y is not None and _finite(y)]
    x_ticks, y_ticks = ticks(min(x, default=0), max(x, default=1)), ticks(0, max(known, default=1))
    x0, x1, y0, y1 = x_ticks[0], x_ticks[-1], y_ticks[0], y_ticks[-1]

    def px(v: float) -> float:
        return _LEFT + (v - x0) / (x1 - x0) * (_W - _LEFT - _RIGHT)

    def py(v: float) -> float:
        return _H - _BOTTOM - (v - y0) / (y1 - y0) * (_H - _TOP - _BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_W} {_H}" width="{_W}" height="{_H}"'
        f' role="img" font-family="sans-serif" font-size="12">',
        f"<title>{_say(f'{y_label} over {x_label}')}</title>",
        f'<rect width="{_W}" height="{_H}" fill="white"/>',
        _word(_LEFT, 20, _cut(title), "start"),
    ]
    for v in x_ticks:
        out.append(_line(px(v), _H - _BOTTOM, px(v), _H - _BOTTOM + 5, "#444"))
        out.append(_word(px(v), _H - _BOTTOM + 18, number(v), "middle"))
    for v in y_ticks:
        out.append(_line(_LEFT, py(v), _W - _RIGHT, py(v), "#e4e4e4"))
        out.append(_word(_LEFT - 8, py(v) + 4, number(v), "end"))
    out.append(_line(_LEFT, _TOP, _LEFT, _H - _BOTTOM, "#444"))
    out.append(_line(_LEFT, _H - _BOTTOM, _W - _RIGHT, _H - _BOTTOM, "#444"))
    out.append(_word((_LEFT + _W - _RIGHT) / 2, _H - 12, x_label, "middle"))
    out.append(
        f'<text transform="translate(16 {(_TOP + _H - _BOTTOM) / 2:.1f}) rotate(-90)"'
        f' text-anchor="middle">{_say(y_label)}</text>'
    )
    for i, (name, ys) in reversed(list(enumerate(series))):
        colour = _COLOURS[i % len(_COLOURS)]
        for run in _runs(x, ys):
            points = " ".join(f"{px(a):.1f},{py(b):.1f}" for a, b in run)
            out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
            out.extend(
                f'<circle cx="{px(a):.1f}" cy="{py(b):.1f}" r="2.5" fill="{colour}">'
                f"<title>{_say(f'{x_label} {number(a)}: {name} {b:.6g}')}</title></circle>"
                for a, b in run
            )
        if len(series) > 1:
            out.append(_line(_W - 110, 30 + 14 * i, _W - 92, 30 + 14 * i, colour))
            out.append(_word(_W - 86, 34 + 14 * i, name, "start"))
    out.append("</svg>")
    return "".join(out)


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers from at most low to at least high, 1, 2 or 5 times a power of ten apart."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        high = low + (abs(low) or 1)
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    count = math.ceil(high / step - 1e-9) - first
    return [(first + i) * step for i in range(max(count, 1) + 1)]


def number(v: float) -> str:
    """A tick's number."""
    return f"{v:,.0f}" if v == round(v) and abs(v) < 1e7 else f"{v:.4g}"


def _runs(x: Sequence[float], ys: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for a, b in zip(x, ys, strict=True):
        if b is not None and _finite(b):
            runs[-1].append((a, b))
        elif runs[-1]:
            runs.append([])
    return [r for r in runs if r]


def _finite(y: float) -> bool:
    return math.isfinite(y)


def _cut(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _say(text: str) -> str:
    return html.escape(text)


def _word(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_say(text)}</text>'


def _line(x0: float, y0: float, x1: float, y1: float, colour: str) -> str:
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" stroke="{colour}"/>'
