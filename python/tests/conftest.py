"""Fixtures."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Iterator, List

import pytest

import pipewright


@pytest.fixture(scope="session", autouse=True)
def first_start() -> None:
    """Starts a command: the first one opens what a process keeps. A test that counts descriptors may run alone."""
    pipewright.run(["true"])


@pytest.fixture
def grandchild(tmp_path: Path) -> Iterator[Any]:
    """Makes shell text that leaves a `sleep` behind, which writes its pid. It is ended after the test."""
    made: List[Path] = []

    def text(streams: str = "> /dev/null 2>&1", session: bool = False) -> Any:
        path = tmp_path / f"pid{len(made)}"
        made.append(path)
        new = "setsid " if session else ""
        # The shell says by itself that it is ready: a `mv` that just did it may still be there, and be counted.
        ready = f"{path}.ready"
        script = f"{new}sh -c 'echo $$ > {path}; : > {ready}; exec sleep 600' {streams} &\n"
        return script + f"while ! [ -e {ready} ]; do sleep 0.01; done\n", path

    yield text
    for path in made:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int(path.read_text()), 9)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for report in terminalreporter.stats.get("skipped", ()):
        name = report.nodeid.rsplit("::", 1)[-1]
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        text = str(reason).removeprefix("Skipped: ")
        # A skip of pytest's own has no such word.
        need, _, detail = text.partition(" ") if text.startswith("need=") else ("need=none", "", text)
        terminalreporter.write_line(f"SKIPPED {need} python::{name}: {detail}")
