"""The net of `beside.py`: random cases beside `subprocess` and `asyncio`. `PIPEWRIGHT_NET=all` runs 100,000."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

BESIDE = Path(__file__).parent / "beside.py"
#: One seed in the gate, so that what fails there was broken by a change and not by chance.
SEED = int(os.environ.get("PIPEWRIGHT_NET_SEED") or (time.time() if os.environ.get("PIPEWRIGHT_NET") else 1))


def net(*options: str) -> str:
    """Runs the net in a process of its own. Returns what differs."""
    command = [sys.executable, str(BESIDE), "--seed", str(SEED), "--jobs", str(len(os.sched_getaffinity(0))), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(f"PIPEWRIGHT_NET_SEED={SEED}", done.stdout.splitlines()[-1:])
    return "" if done.returncode == 0 else done.stdout


def test_random_cases_give_what_subprocess_gives() -> None:
    found = (
        net("--cases", "100000")
        if os.environ.get("PIPEWRIGHT_NET") == "all"
        else net("--cases", "250", "--seconds", "8")
    )
    assert not found, found
