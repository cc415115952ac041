"""`pipewright.asyncio`: asyncio's interface of commands, beside asyncio itself."""

from __future__ import annotations

import asyncio as std_asyncio
import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, List

import pytest
from helpers import LIMIT, descriptors, has_ended, is_alive, skip, wait_until, written_pid

import pipewright
from pipewright import asyncio

PIPE = asyncio.subprocess.PIPE


def test_the_names_are_those_of_asyncio() -> None:
    for name in std_asyncio.__all__:
        ours = getattr(asyncio, name)
        assert (ours is getattr(std_asyncio, name)) == (not name.startswith("create_subprocess_")), name
    assert asyncio.subprocess.DEVNULL == std_asyncio.subprocess.DEVNULL
    assert asyncio.events is std_asyncio.events
    assert pipewright.asyncio is asyncio


def test_streams_and_codes_are_those_of_asyncio() -> None:
    script = "read line; echo got $line; echo err >&2; exit 3"

    async def used(module: Any) -> Any:
        process = await module.create_subprocess_shell(script, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        process.stdin.write(b"hi\n")
        await process.stdin.drain()
        line = await process.stdout.readline()
        rest = await process.communicate()
        many = [await module.create_subprocess_exec("sh", "-c", f"exit {code}") for code in range(5)]
        codes = [await it.wait() for it in many]
        cat = await module.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
        large = await cat.communicate(b"x" * 3_000_000)
        killed = await module.create_subprocess_exec("sleep", "600")
        killed.send_signal(signal.SIGTERM)
        terminated = await killed.wait()
        with pytest.raises(FileNotFoundError):
            await module.create_subprocess_exec("no-such-program-at-all")
        # From Python 3.11 on, there is nothing to signal after the wait.
        is_refused = False
        try:
            killed.send_signal(signal.SIGTERM)
        except ProcessLookupError:
            is_refused = True
        return line, rest, process.returncode, codes, len(large[0]), terminated, is_refused

    results = [asyncio.run(used(module)) for module in (asyncio, std_asyncio)]
    assert results[0] == results[1]
    assert results[0][:3] == (b"got hi\n", (b"", b"err\n"), 3)


def test_what_a_command_leaves_behind_is_killed_and_holds_nothing_up(tmp_path: Path) -> None:
    async def main() -> Any:
        script = f"sleep 600 & echo $! > {tmp_path}/pid; echo done"
        process = await asyncio.create_subprocess_shell(script, stdout=PIPE)
        output = await process.communicate()
        assert process.usage is not None
        return output, process.returncode, process.containment

    output, code, containment = asyncio.run(main())
    assert (output, code) == ((b"done\n", None), 0)
    if containment != "none":
        pid = written_pid(tmp_path / "pid")
        wait_until(lambda: not is_alive(pid))


#: Leaves a `sleep` that holds none of the streams, and writes its pid.
LEAVES = "sleep 600 > /dev/null & echo $! > {0}/pid.new; mv {0}/pid.new {0}/pid; wait"


async def has_written(path: Path) -> int:
    """Waits for a process id in a file that is there only with its text."""
    until = time.monotonic() + LIMIT
    while not path.exists():
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
    return written_pid(path)


def test_a_kill_ends_the_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(folder: Path, tree: bool) -> int:
        folder.mkdir()
        process = await asyncio.create_subprocess_shell(LEAVES.format(folder), stdout=PIPE, tree=tree)
        pid = await has_written(folder / "pid")
        assert (process.containment == "none") != tree
        process.kill()
        assert await process.wait() == -9
        return pid

    # As asyncio's own of Python 3.13.
    base = std_asyncio.base_subprocess.BaseSubprocessTransport
    monkeypatch.setattr(base, "kill", lambda self: self.send_signal(signal.SIGKILL))
    has_ended(asyncio.run(main(tmp_path / "tree", True)))
    # No end of the command ends this one.
    has_ended(asyncio.run(main(tmp_path / "found", False)))


def test_a_cancelled_start_ends_the_tree(tmp_path: Path) -> None:
    async def main() -> int:
        loop: Any = asyncio.get_running_loop()
        connect, may_connect = loop.connect_read_pipe, asyncio.Event()

        async def connect_later(*args: Any) -> Any:
            await may_connect.wait()
            return await connect(*args)

        loop.connect_read_pipe = connect_later
        start = asyncio.ensure_future(asyncio.create_subprocess_shell(LEAVES.format(tmp_path), stdout=PIPE))
        pid = await has_written(tmp_path / "pid")
        assert not start.done() and is_alive(pid)
        start.cancel()
        may_connect.set()
        with pytest.raises(asyncio.CancelledError):
            await start
        return pid

    has_ended(asyncio.run(main()))


def test_the_loop_goes_on_while_a_tree_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    closes, goes_on = threading.Event(), threading.Event()
    waited: List[bool] = []
    close = pipewright.Popen.close

    def close_later(self: Any) -> None:
        closes.set()
        waited.append(goes_on.wait(LIMIT))
        close(self)

    async def main() -> int:
        process = await asyncio.create_subprocess_exec("sh", "-c", "sleep 600 > /dev/null & exit 3")
        while not closes.is_set():
            await asyncio.sleep(0.01)
        # What the loop has to do itself does not wait for the tree either.
        process.kill()
        goes_on.set()
        return await process.wait()

    monkeypatch.setattr(pipewright.Popen, "close", close_later)
    assert asyncio.run(asyncio.wait_for(main(), LIMIT)) == 3
    assert waited == [True]


def native_child() -> Any:
    """Returns the class of native children."""
    with pipewright.Popen(["true"]) as true:
        return type(true._child)


def test_a_status_that_something_else_has_taken_is_255_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> Any:
        raise ChildProcessError("no such child")

    async def main() -> Any:
        told: List[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        process = await asyncio.create_subprocess_exec("sleep", "600", tree=False)
        # A kernel of 2025 tells a status that has been taken, and so nothing is lost.
        child = native_child()
        for name in ("poll", "wait", "has_ended", "release"):
            monkeypatch.setattr(child, name, lost)
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        code = await asyncio.wait_for(process.wait(), LIMIT)
        # Turns in which the loop could be told again.
        for _ in range(3):
            await asyncio.sleep(0)
        return code, [str(error) for error in told]

    assert asyncio.run(main()) == (255, ["no such child"])


def test_a_command_whose_end_no_descriptor_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    child, looks = native_child(), []
    has_ended = child.has_ended

    def look(self: Any) -> Any:
        looks.append(has_ended(self))
        return looks[-1]

    async def main() -> Any:
        process = await asyncio.create_subprocess_exec("sh", "-c", "read line; exit 3", stdin=PIPE)
        while len(looks) < 3:
            await asyncio.sleep(0.01)
        await process.communicate(b"x\n")
        return process.returncode

    monkeypatch.setattr(child, "end_descriptor", lambda _: None)
    monkeypatch.setattr(child, "has_ended", look)
    assert asyncio.run(asyncio.wait_for(main(), LIMIT)) == 3
    assert looks[:3] == [False] * 3 and looks[-1] and looks.count(True) == 1


def test_options_of_pipewright_and_none_of_texts() -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("pwd", cwd="/", stdout=PIPE, nice=1, tree=False)
        assert (await process.communicate())[0] == b"/\n" and process.containment == "none"
        wrong: Any
        for wrong in ({"text": True}, {"encoding": "utf-8"}, {"bufsize": 4096}, {"shell": True}, {"pty": True}):
            with pytest.raises(ValueError, match=next(iter(wrong))):
                await asyncio.create_subprocess_exec("true", **wrong)

    asyncio.run(main())


def test_no_descriptor_is_left() -> None:
    async def main() -> None:
        for _ in range(3):
            process = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE, stderr=PIPE)
            await process.communicate(b"x")

    def count() -> int:
        gc.collect()
        return descriptors()

    asyncio.run(main())
    before = count()
    asyncio.run(main())
    assert count() == before


#: Cases of CPython's own suite that cannot pass, with the reasons.
CANNOT_PASS = {
    "test_popen_error": "patches `subprocess.Popen`, which starts nothing here",
    "test_popen_error_with_stdin_pipe": "patches `subprocess.Popen`, which starts nothing here",
    "test_exec_loop_deprecated": "passes `loop`, an argument that asyncio dropped with Python 3.10",
    "test_shell_loop_deprecated": "passes `loop`, an argument that asyncio dropped with Python 3.10",
}

PROGRAM = """
import asyncio, sys, unittest
from test.test_asyncio import test_subprocess as cases
from pipewright import asyncio as ours
asyncio.create_subprocess_exec = ours.create_subprocess_exec
asyncio.create_subprocess_shell = ours.create_subprocess_shell
names = ["SubprocessPidfdWatcherTests", "SubprocessThreadedWatcherTests", "SubprocessWatcherTests"]
name = next(name for name in names if hasattr(cases, name))
suite = unittest.TestSuite(
    case for case in unittest.defaultTestLoader.loadTestsFromTestCase(getattr(cases, name))
    if case._testMethodName not in sys.argv[1:]
)
result = unittest.TextTestRunner(verbosity=2).run(suite)
sys.exit(not (result.wasSuccessful() and result.testsRun > 15))
"""


def test_cases_of_cpython_pass() -> None:
    try:
        from test.test_asyncio import test_subprocess  # noqa: F401
    except ImportError:
        skip("python-module:test.test_asyncio.test_subprocess", "this Python has no suite of asyncio")
    words = [sys.executable, "-c", PROGRAM, *CANNOT_PASS]
    done = pipewright.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
