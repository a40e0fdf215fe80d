"""The wheel's binary, and what its build refuses."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import starling_bin

HERE = Path(__file__).parents[1]
MOST = 20_000_000  # bytes, as a wheel's users download and keep them


def hook() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", HERE / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_binary() -> None:
    """It is static, small, without paths of whoever built it, and answers."""
    path = starling_bin.path()
    data = path.read_bytes()
    assert len(data) < MOST, f"{len(data)} bytes"
    assert str(Path.home()).encode() + b"/" not in data
    if sys.platform == "linux":
        assert b"/lib64/ld-linux" not in data, "it asks for a dynamic linker"
    told = subprocess.run([path, "version", "--json"], check=True, capture_output=True, text=True)
    assert json.loads(told.stdout)
    asked = '{"id":1,"method":"hello"}\n'
    told = subprocess.run(
        [path, "account", "--serve"], input=asked, check=True, capture_output=True, text=True
    )
    assert json.loads(told.stdout)["result"]["protocol"] == 1


def test_script() -> None:
    """`starling` and `python -m starling_bin` run it, with its exit code."""
    script = Path(sys.executable).parent / "starling"
    for command in ([script], [sys.executable, "-m", "starling_bin"]):
        want = subprocess.run([starling_bin.path(), "account"], capture_output=True, text=True)
        got = subprocess.run([*command, "account"], capture_output=True, text=True)
        assert (got.returncode, got.stderr) == (want.returncode, want.stderr)
        assert want.returncode == 2


def test_metadata() -> None:
    wheel = importlib.metadata.distribution("starling-bin").read_text("WHEEL") or ""
    assert "Root-Is-Purelib: false" in wheel
    tags = [line.removeprefix("Tag: ") for line in wheel.splitlines() if line.startswith("Tag: ")]
    assert tags
    assert all(t.startswith("py3-none-") and not t.endswith("-any") for t in tags)
    if sys.platform == "linux":
        assert any("manylinux" in t for t in tags)
        assert any("musllinux" in t for t in tags)


def test_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(starling_bin, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(starling_bin.BinaryMissing, match="install a wheel"):
        starling_bin.path()


def test_build_refuses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another platform, no Go, no source: each by name, with what to do."""
    build = hook()
    repository = HERE.parents[1]
    monkeypatch.setenv("STARLING_TARGET", "plan9/amd64")
    with pytest.raises(build.UnsupportedTarget, match="linux/arm64"):
        build.build(repository, tmp_path / "starling")
    with pytest.raises(build.NoSource, match="install a wheel"):
        build.build(tmp_path, tmp_path / "starling")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build.NoGo, match="install a wheel"):
        build.build(repository, tmp_path / "starling")


def test_build_asks_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every platform is asked of Go by its own names, without cgo and without paths."""
    build = hook()
    go = tmp_path / "go"
    go.write_text('#!/bin/sh\necho "$GOOS/$GOARCH $CGO_ENABLED $*" >>"$0.said"\n')
    go.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    tags = []
    for wanted in build.PLATFORMS:
        monkeypatch.setenv("STARLING_TARGET", wanted)
        tags.append(build.build(HERE.parents[1], tmp_path / "starling"))
    lines = (tmp_path / "go.said").read_text().splitlines()
    assert [line.split()[:2] for line in lines] == [[p, "0"] for p in build.PLATFORMS]
    assert all("-trimpath" in line and "-s -w" in line for line in lines)
    assert len(set(tags)) == len(tags)
    assert "py3-none-win_amd64" in tags


def test_source_distribution(tmp_path: Path) -> None:
    """It has no Go source, and its build says so rather than make an empty wheel."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path],
        cwd=HERE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as t:
        names = t.getnames()
        t.extractall(tmp_path / "x", filter="data")
    assert not [n for n in names if n.endswith((".go", "/starling"))]
    (root,) = (tmp_path / "x").iterdir()
    assert (root / "LICENSE").read_bytes() == (HERE.parents[1] / "LICENSE").read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel"],
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "NoSource" in done.stderr + done.stdout
    shutil.rmtree(root)
