"""Facts to wait for, and processes of a test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, List, NoReturn

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


def threads() -> List[str]:
    """Returns the names of the threads of this process, at most 15 characters each."""
    names: List[str] = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append((task / "comm").read_text().rstrip("\n"))
    return names


def settle() -> None:
    """Waits until nothing is left to reap: the thread that reaps lives for a second more, with a descriptor."""
    wait_until(lambda: "pipewright-reap" not in threads(), "the end of the thread that reaps")


def descriptors() -> int:
    """Returns the number of open descriptors, without those of a thread that reaps."""
    settle()
    return len(os.listdir("/proc/self/fd"))


def commands() -> List[List[str]]:
    """Returns the commands of all processes that can be seen."""
    found: List[List[str]] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(os.fsdecode(path.read_bytes()).split("\0")[:-1])
    return found


def timed_out(run: Callable[[float], Any], mark: Path, seconds: float) -> Any:
    """Returns the `TimeoutExpired` of a command that had the time to make a mark, and so had said what it says before.

    On a busy machine a shell may need longer than the limit for its first word. The limit is doubled then.
    """
    while True:
        with pytest.raises(subprocess.TimeoutExpired) as error:
            run(seconds)
        if mark.exists():
            return error.value
        assert seconds < LIMIT, f"the command has not made its mark in {seconds} s"
        seconds *= 2


def skip(need: str, detail: str) -> NoReturn:
    """Skips a test that needs something: one of the words of `ci/skips.sh`."""
    pytest.skip(f"need={need} {detail}")
