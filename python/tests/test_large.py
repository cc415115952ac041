"""Outputs of more than 1 MiB, which grow in Python while the command runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from helpers import timed_out

import pipewright

COUNT = 300000
SCRIPT = f"import sys; [print(n) or print(-n, file=sys.stderr) for n in range({COUNT})]; sys.stdout.flush()"
STDOUT = "".join(f"{n}\n" for n in range(COUNT))
STDERR = "".join(f"{-n}\n" for n in range(COUNT))


def test_both_streams_are_whole() -> None:
    done = pipewright.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    assert done.stdout == STDOUT.encode() and done.stderr == STDERR.encode()
    assert pipewright.check_output([sys.executable, "-c", SCRIPT], stderr=pipewright.DEVNULL, text=True) == STDOUT


def test_both_streams_are_whole_in_an_event_loop() -> None:
    many = [pipewright.run_async([sys.executable, "-c", SCRIPT], capture_output=True) for _ in range(2)]

    async def main() -> None:
        for done in await asyncio.gather(*many):
            assert done.stdout == STDOUT.encode() and done.stderr == STDERR.encode()

    asyncio.run(main())


def test_a_time_limit_keeps_a_large_output(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = SCRIPT + f"; open({str(mark)!r}, 'w'); import time; time.sleep(600)"
    command = [sys.executable, "-c", script]
    error = timed_out(lambda seconds: pipewright.run(command, capture_output=True, timeout=seconds), mark, 4)
    assert error.output == STDOUT.encode() and error.stderr == STDERR.encode()


def test_an_interrupt_keeps_a_large_output() -> None:
    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        # Its parent may be a supervisor.
        script = SCRIPT + f"; import os, signal, time; os.kill({os.getpid()}, signal.SIGUSR1); time.sleep(600)"
        with pytest.raises(Stop) as raised:
            pipewright.run([sys.executable, "-c", script], capture_output=True)
        assert raised.value.stdout == STDOUT.encode()  # type: ignore[attr-defined]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_limit_of_the_output_holds() -> None:
    done = pipewright.run([sys.executable, "-c", SCRIPT], capture_output=True, max_output=("tail", 2 << 20))
    assert done.stdout == STDOUT.encode()[-(2 << 20) :]
