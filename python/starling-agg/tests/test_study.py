"""The page that plans a study runs as it stands, and its picture is what it draws."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from starling_agg import Accountant

DOCS = Path(__file__).parents[3] / "docs"


def test_study() -> None:
    """Every example of docs/study.md gives what the page says."""
    text = re.sub(r"^```.*$", "", (DOCS / "study.md").read_text("utf-8"), flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, "study", "docs/study.md", 0)
    runner = doctest.DocTestRunner(verbose=False)
    said: list[str] = []
    runner.run(test, out=said.append)
    results = runner.summarize(verbose=False)
    assert (results.failed, results.attempted > 15) == (0, True), "".join(said)


def test_picture() -> None:
    """The picture beside the page is the one that a notebook shows."""
    year = Accountant().curve(
        "gaussian", sigma=10, steps=range(4, 53, 4), delta=1e-6, neighbours="replace"
    )
    assert (DOCS / "figures" / "study-year.svg").read_text("utf-8") == year.svg()
