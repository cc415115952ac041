"""Facts to wait for, and processes of a test."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any, Callable, NoReturn

import pytest

#: The limit of every wait for a fact. Only a test that fails takes that long.
LIMIT = 60.0


def wait_until(fact: Callable[[], Any], what: str = "the fact") -> Any:
    """Waits until the function returns something true."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        found = fact()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError(f"{what} did not come true in {LIMIT:.0f} s")


def is_alive(pid: int) -> bool:
    """Returns true if the process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(") ", 1)[1][0] not in "ZX"


def pid_in(path: Path) -> int:
    """Returns the process id in a file, or 0 while it is not there: a shell makes the file first, empty."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int(path.read_text())
    return 0


def written_pid(path: Path) -> int:
    """Waits for a process id in a file."""
    return int(wait_until(lambda: pid_in(path), f"a process id in {path}"))


def has_ended(pid: int) -> None:
    """Waits until the process has ended."""
    wait_until(lambda: not is_alive(pid), f"the end of {pid}")


def skip(need: str, detail: str) -> NoReturn:
    """Skips a test that needs something: one of the words of `ci/skips.sh`."""
    pytest.skip(f"need={need} {detail}")
