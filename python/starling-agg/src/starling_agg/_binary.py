"""Where the `starling` binary is."""

from __future__ import annotations

import os
import shutil

from ._errors import BinaryMissing

VARIABLE = "STARLING"  #: a path; it goes before all else


def find() -> str:
    """The binary: $STARLING, that of the package starling-bin, or the one in PATH."""
    named = os.environ.get(VARIABLE, "")
    if named:
        found = shutil.which(named)
        if not found:
            raise BinaryMissing(f"${VARIABLE} is {named!r}, which is no program", "correct or unset it")
        return found
    try:
        import starling_bin  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        pass
    else:
        return str(starling_bin.path())
    found = shutil.which("starling")
    if not found:
        raise BinaryMissing(
            "no starling is installed", f"pip install starling-bin, or set ${VARIABLE} to a binary"
        )
    return found
