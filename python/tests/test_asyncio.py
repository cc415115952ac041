"""`pipewright.asyncio`: asyncio's interface of commands, beside asyncio itself."""

from __future__ import annotations

import asyncio as std_asyncio
import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import is_alive, wait_until, written_pid

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
        with pytest.raises(ProcessLookupError):
            await killed.wait()
            killed.send_signal(0)
            raise ProcessLookupError
        with pytest.raises(FileNotFoundError):
            await module.create_subprocess_exec("no-such-program-at-all")
        return line, rest, process.returncode, codes, len(large[0]), terminated

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


def test_a_kill_and_a_cancelled_task_end_the_tree(tmp_path: Path) -> None:
    async def main() -> None:
        script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
        process = await asyncio.create_subprocess_shell(script, stdout=PIPE)
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.01)
        process.kill()
        assert await process.wait() == -9
        assert process.containment != "none"

    asyncio.run(main())
    pid = written_pid(tmp_path / "pid")
    wait_until(lambda: not is_alive(pid))


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
        return len(os.listdir("/proc/self/fd"))

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
        pytest.skip("SKIPPED need=cpython-tests: this Python has no suite of asyncio")
    words = [sys.executable, "-c", PROGRAM, *CANNOT_PASS]
    done = pipewright.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]
