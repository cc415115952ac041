"""The types that mypy and pyright see. `ci/python.sh` runs both over this file."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterator

import pipewright

if TYPE_CHECKING:
    from typing_extensions import assert_type

    from pipewright import asyncio

    def results() -> None:
        assert_type(pipewright.run(["true"], text=True), pipewright.CompletedProcess[str])
        assert_type(pipewright.run(["true"]), pipewright.CompletedProcess[bytes])
        assert_type(pipewright.run(["true"], encoding="utf-8"), pipewright.CompletedProcess[str])
        assert_type(pipewright.check_output("true", shell=True), bytes)
        assert_type(pipewright.check_output(["true"], text=True), str)
        assert_type(pipewright.Popen(["true"]), pipewright.Popen[bytes])
        assert_type(pipewright.Popen(["true"], text=True, tree=False), pipewright.Popen[str])
        assert_type(pipewright.run(["true"]).outcome, str)
        assert_type(pipewright.run(["true"], limits={"memory": 1 << 30}, pty=(24, 80)).leftovers_killed, int)

    def are_those_of_subprocess() -> None:
        child: subprocess.Popen[bytes] = pipewright.Popen(["true"])
        done: subprocess.CompletedProcess[bytes] = pipewright.run(["true"])
        _ = child, done

    def streams() -> None:
        lines: Iterator[str] = pipewright.lines(["true"])
        events: Iterator[pipewright.Event] = pipewright.events(["true"])
        _ = lines, events

    async def in_event_loops() -> None:
        lines: AsyncIterator[str] = pipewright.lines_async(["true"])
        done: pipewright.CompletedProcess[Any] = await pipewright.run_async(["true"])
        process = await asyncio.create_subprocess_exec("true", cwd="/", tree=True)
        assert_type(await process.wait(), int)
        _ = lines, done


def test_the_package_says_that_it_is_typed() -> None:
    import importlib.util
    from pathlib import Path

    found = importlib.util.find_spec("pipewright")
    assert found is not None and found.origin is not None
    assert (Path(found.origin).parent / "py.typed").exists()
