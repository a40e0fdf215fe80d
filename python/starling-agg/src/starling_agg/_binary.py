"""Where the `starling` binary is."""

from __future__ import annotations

import os
import shutil

from ._errors import BinaryMissing

VARIABLE = "STARLING"  #: a path; it goes before all else
WHOLE = "STARLING_WHOLE"  #: the same of the whole program, where the other is a part of it


def find(whole: bool = False) -> str:
    """The binary: $STARLING, that of the package starling-bin, or the one in PATH.

    That of starling-bin is a part of the program: the agent, the accountant and the planner.
    For what is `whole`, such as collecting, $STARLING_WHOLE goes before it.
    """
    for variable in (WHOLE, VARIABLE) if whole else (VARIABLE,):
        if named := os.environ.get(variable, ""):
            if not (found := shutil.which(named)):
                raise BinaryMissing(
                    f"${variable} is {named!r}, which is no program", "correct or unset it"
                )
            return found
    try:
        import starling_bin  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        pass
    else:
        return str(starling_bin.path())
    if not (found := shutil.which("starling")):
        raise BinaryMissing(
            "no starling is installed", f"pip install starling-bin, or set ${VARIABLE} to a binary"
        )
    return found
