"""Starling's binary, as a package: `path()` says where it is, `starling` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__version__ = "0.1.0"
__all__ = ["BinaryMissing", "main", "path"]


class BinaryMissing(Exception):
    """The package was installed without its binary."""


def path() -> Path:
    """The binary of this package."""
    found = Path(__file__).parent / ("starling.exe" if sys.platform == "win32" else "starling")
    if not found.is_file():
        raise BinaryMissing(
            f"{found} is not there: install a wheel, pip install --force-reinstall starling-bin"
        )
    return found


def main() -> None:
    """Run it in place of this process, with the same arguments."""
    command = [str(path()), *sys.argv[1:]]
    if sys.platform == "win32":  # where a process cannot become another
        sys.exit(subprocess.call(command))
    os.execv(command[0], command)
