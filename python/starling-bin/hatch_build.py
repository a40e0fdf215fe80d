"""Builds the Go binary and puts it into a wheel of its platform."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What is built: the agent, the accountant and the planner, without the other parties, the
# lab and the pictures.
COMMAND, TAGS = "./cmd/starling", "lean"

# Go without cgo needs no C library, so one file is for glibc and musl alike. Go 1.26 runs on
# macOS 12 and later.
PLATFORMS = {
    "linux/amd64": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "linux/arm64": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    "darwin/amd64": "macosx_12_0_x86_64",
    "darwin/arm64": "macosx_12_0_arm64",
    "windows/amd64": "win_amd64",
    "windows/arm64": "win_arm64",
}


class UnsupportedTarget(Exception):
    """There are no wheels for such a platform."""


class NoGo(Exception):
    """Go is not installed."""


class NoSource(Exception):
    """The Go source is not there."""


def target() -> str:
    """GOOS/GOARCH to build for: $STARLING_TARGET, or this machine's."""
    named = os.environ.get("STARLING_TARGET") or "/".join(
        subprocess.run(
            ["go", "env", "GOHOSTOS", "GOHOSTARCH"], check=True, capture_output=True, text=True
        ).stdout.split()
    )
    if named not in PLATFORMS:
        raise UnsupportedTarget(
            f"there is no wheel for {named}: set STARLING_TARGET to one of {', '.join(PLATFORMS)},"
            f" or build the program by itself, go build {COMMAND}, and name it in $STARLING"
        )
    return named


def build(source: Path, into: Path) -> str:
    """Build the binary into a file; returns the tag of its wheel."""
    if not (source / "go.mod").is_file():
        raise NoSource(
            "a source distribution of starling-bin has no Go source: install a wheel,"
            " or build in the repository"
        )
    if not shutil.which("go"):
        raise NoGo(
            "go is not installed, which builds the binary: install it (go.dev), or install a wheel"
        )
    system, machine = (wanted := target()).split("/")
    subprocess.run(
        ["go", "build", "-trimpath", "-tags", TAGS, "-ldflags", "-s -w", "-o", str(into), COMMAND],
        cwd=source,
        env=os.environ | {"CGO_ENABLED": "0", "GOOS": system, "GOARCH": machine},
        check=True,
    )
    return "py3-none-" + PLATFORMS[wanted]


class StarlingBuildHook(BuildHookInterface[Any]):
    """hatchling's hook: one file more in the wheel, and its tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        self.temporary = tempfile.mkdtemp()
        binary = Path(self.temporary) / "starling"
        build_data["tag"] = build(Path(self.root).parent.parent, binary)
        build_data["pure_python"] = False
        name = "starling.exe" if "-win_" in build_data["tag"] else "starling"
        build_data["force_include"][str(binary)] = f"starling_bin/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self.temporary)
