"""Collecting: `starling collect --json`."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from ._account import arguments
from ._answer import Answer, frame_of
from ._binary import find
from ._errors import BinaryMissing, CommandError, MalformedAnswer

# Exit codes and what they mean, as account --serve names them.
_KINDS = {2: "usage", 3: "input", 4: "unreachable", 5: "not-yet", 6: "check", 130: "interrupted"}


class Result(Answer):
    """What a batch came to: numbers, each with its error, and the guarantee.

    The key "raw", the noised whole numbers, is `result["raw"]`: the attribute is the JSON.
    """

    __slots__ = ()
    report_count: int
    # The names of the RFC 3339 bounds are result["from"] and result["to"].
    buckets: tuple[str, ...] | None
    estimate: tuple[float, ...]
    stderr: tuple[float, ...] | None
    interval95: tuple[tuple[float, float], ...] | None
    guarantee: Answer

    def frame(self) -> Any:
        """A pandas frame, a row for each number of the result."""
        names = self.buckets or range(len(self.estimate))
        ends = self.interval95 or ((None, None),) * len(self.estimate)
        errors = self.stderr or (None,) * len(self.estimate)
        return frame_of(
            [
                {"bucket": n, "estimate": e, "stderr": s, "low": low, "high": high}
                for n, e, s, (low, high) in zip(names, self.estimate, errors, ends, strict=True)
            ]
        )


class CollectError(CommandError):
    """Collecting failed; `results` are of the rounds before that, which were released."""

    results: tuple[Result, ...] = ()


def collect(
    config: str | os.PathLike[str] = "collector.toml",
    binary: str | os.PathLike[str] | None = None,
    **flags: Any,
) -> list[Result]:
    """Ask for a batch: a Result for each round. Keywords are the flags of `starling collect`.

    The same question always gets the same answer, so one that was interrupted is asked again.
    It takes the whole program, which starling-bin is a part of: $STARLING_WHOLE names it.
    """
    program = os.fspath(binary) if binary is not None else find(whole=True)
    command = [program, "collect", "--json", *arguments(flags), os.path.abspath(os.fspath(config))]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as e:
        raise BinaryMissing(f"{program} cannot be run: {e}", "pip install starling-bin") from e
    results = _objects(done.stdout.decode(errors="replace"))
    if done.returncode == 0:
        return results
    problem, hint = "", ""
    for line in done.stderr.decode(errors="replace").splitlines():
        if line.startswith("starling: error: "):
            problem = line.removeprefix("starling: error: ")
        elif line.startswith("starling: hint: "):
            hint = line.removeprefix("starling: hint: ")
    error = CollectError(
        problem or f"starling collect ended with {done.returncode}",
        hint,
        _KINDS.get(done.returncode, "failed"),
        done.returncode,
    )
    error.results = tuple(results)
    raise error


def _objects(text: str) -> list[Result]:
    decoder, at, out = json.JSONDecoder(), 0, []
    while rest := text[at:].lstrip():
        at = len(text) - len(rest)
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError:
            raise MalformedAnswer(f"starling collect printed what is no JSON: {rest[:200]!r}") from None
        out.append(Result(value))
    return out
