"""Commands in event loops: no thread, no child watcher, and cancellation that ends the tree."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers import LIMIT, has_ended, skip, wait_until, written_pid

import pipewright
from pipewright import Command


async def come_true(fact: Any) -> Any:
    for _ in range(int(LIMIT / 0.005)):
        found = fact()
        if found:
            return found
        await asyncio.sleep(0.005)
    raise AssertionError("the fact did not come true")


def test_results_and_exceptions_are_those_of_run() -> None:
    async def main() -> None:
        done = await pipewright.run_async(["sh", "-c", "echo out; exit 3"], capture_output=True, text=True)
        assert (done.stdout, done.returncode) == ("out\n", 3)
        with pytest.raises(pipewright.CalledProcessError):
            await pipewright.run_async(["false"], check=True)
        with pytest.raises(FileNotFoundError):
            await pipewright.run_async(["no-such-program"])
        with pytest.raises(pipewright.TimeoutExpired) as error:
            await pipewright.run_async("echo a; exec sleep 600", shell=True, capture_output=True, timeout=0.2)
        assert error.value.output == b"a\n"
        data = os.urandom(1 << 20)
        assert (await pipewright.run_async(["cat"], input=data, capture_output=True)).stdout == data
        piped = Command(["seq", "3"]) | Command(["tail", "-n1"])
        assert (await piped.run_async(capture_output=True)).stdout == b"3\n"

    asyncio.run(main())


def test_no_thread_and_no_signal_handler_for_any_number_of_children() -> None:
    async def main() -> None:
        before = threading.active_count(), len(os.listdir("/proc/self/task"))
        runs = [asyncio.ensure_future(pipewright.run_async(["cat"], stdin=reader)) for _ in range(50)]
        await asyncio.sleep(0)
        # A thread of an earlier test may have ended.
        assert threading.active_count() <= before[0] and len(os.listdir("/proc/self/task")) <= before[1]
        os.close(writer)
        assert [done.returncode for done in await asyncio.gather(*runs)] == [0] * 50

    reader, writer = os.pipe()
    asyncio.run(main())
    os.close(reader)


def test_many_starts_of_one_turn_have_their_own_results() -> None:
    async def main() -> None:
        def one(number: int) -> Any:
            if number % 10 == 9:
                return pipewright.run_async([f"no-such-program-{number}"])
            return pipewright.run_async(["sh", "-c", f"echo {number}; exit {number % 7}"], capture_output=True)

        threads = len(os.listdir("/proc/self/task"))
        for number, done in enumerate(await asyncio.gather(*map(one, range(200)), return_exceptions=True)):
            if number % 10 == 9:
                assert isinstance(done, FileNotFoundError) and done.filename == f"no-such-program-{number}"
            else:
                assert isinstance(done, pipewright.CompletedProcess), done
                assert (done.stdout, done.returncode) == (b"%d\n" % number, number % 7)
        # The threads that help with the starts live as long as these.
        assert len(os.listdir("/proc/self/task")) <= threads

    asyncio.run(main())


def test_a_task_that_is_cancelled_before_its_turn_starts_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        runs = [asyncio.ensure_future(pipewright.run_async(["touch", str(tmp_path / str(n))])) for n in range(200)]
        await asyncio.sleep(0)
        runs[199].cancel()
        done = await asyncio.gather(*runs, return_exceptions=True)
        assert isinstance(done[199], asyncio.CancelledError)
        assert sorted(int(path.name) for path in tmp_path.iterdir()) == list(range(199))

    asyncio.run(main())


def test_commands_run_at_the_same_time() -> None:
    # Each waits for the other.
    async def main() -> None:
        first, second = (os.pipe(), os.pipe())
        script = "import os; os.write({}, b'x'); os.read({}, 1)"
        one = pipewright.run_async(
            ["python3", "-c", script.format(first[1], second[0])], pass_fds=(first[1], second[0]), check=True
        )
        two = pipewright.run_async(
            ["python3", "-c", script.format(second[1], first[0])], pass_fds=(second[1], first[0]), check=True
        )
        await asyncio.gather(one, two)
        for number in (*first, *second):
            os.close(number)

    asyncio.run(main())


def test_a_cancelled_task_ends_the_tree_and_has_the_output(grandchild: Any) -> None:
    script, path = grandchild(session=True)

    async def main() -> None:
        run = pipewright.run_async(f"echo said; {script} exec sleep 600", shell=True, capture_output=True)
        caught = []

        async def wrapped() -> None:
            try:
                await run
            except asyncio.CancelledError as error:
                caught.append(error)
                raise

        task = asyncio.ensure_future(wrapped())
        pid = await come_true(lambda: path.exists() and int(path.read_text()))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        has_ended(pid)
        assert caught[0].stdout == b"said\n"

    asyncio.run(main())


def test_a_task_that_is_cancelled_at_any_moment_leaves_nothing() -> None:
    async def main() -> None:
        descriptors = len(os.listdir("/proc/self/fd"))
        for moment in range(40):
            task = asyncio.ensure_future(pipewright.run_async("exec sleep 600.25", shell=True, capture_output=True))
            for _ in range(moment % 8):
                await asyncio.sleep(0)
            await asyncio.sleep(moment * 0.0003)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert len(os.listdir("/proc/self/fd")) == descriptors

    asyncio.run(main())
    assert not pipewright.run(["pgrep", "-f", "^sleep 600.25"], capture_output=True).stdout


def test_lines_and_events_can_be_cancelled_without_losing_any() -> None:
    async def main() -> None:
        script = "for n in 1 2 3 4 5 6 7 8; do echo $n; sleep 0.02; done"
        lines = pipewright.lines_async(script, shell=True)
        seen = []
        while len(seen) < 8:
            try:
                seen.append(await asyncio.wait_for(lines.__anext__(), 0.003))
            except asyncio.TimeoutError:
                continue
        assert seen == list("12345678")
        assert (await lines.finish()).returncode == 0
        kinds = [event.kind async for event in pipewright.events_async(["sh", "-c", "echo a"])]
        assert kinds == ["started", "stdout", "exited"]

    asyncio.run(main())


def test_leaving_an_async_with_block_ends_the_tree(grandchild: Any) -> None:
    script, path = grandchild()

    async def main() -> None:
        async with pipewright.lines_async(f"{script} echo ready; exec sleep 600", shell=True) as lines:
            async for line in lines:
                assert line == "ready"
                break
        has_ended(written_pid(path))

    asyncio.run(main())


def test_descriptors_are_closed() -> None:
    async def main() -> None:
        await pipewright.run_async(["true"])
        before = sorted(os.listdir("/proc/self/fd"))
        await asyncio.gather(*(pipewright.run_async(["echo", "a"], capture_output=True) for _ in range(20)))
        assert sorted(os.listdir("/proc/self/fd")) == before

    asyncio.run(main())


@pytest.mark.parametrize("name", ["uvloop", "trio", "anyio"])
def test_other_event_loops(name: str) -> None:
    async def main() -> None:
        done = await pipewright.run_async(["echo", "hi"], capture_output=True)
        assert done.stdout == b"hi\n"
        assert [line async for line in pipewright.lines_async(["seq", "3"])] == ["1", "2", "3"]
        with pytest.raises(pipewright.TimeoutExpired):
            await pipewright.run_async(["sleep", "600"], timeout=0.05)

    try:
        module = importlib.import_module(name)
    except ImportError:
        skip(f"python-module:{name}", "is not installed")
    if name == "uvloop":
        loop = module.new_event_loop()
        try:
            loop.run_until_complete(main())
        finally:
            loop.close()
    elif name == "trio":
        module.run(main)

        async def cancelled() -> None:
            with module.move_on_after(0.05):
                await pipewright.run_async(["sleep", "600.5"])

        module.run(cancelled)
        wait_until(lambda: not pipewright.run(["pgrep", "-f", "^sleep 600.5"], capture_output=True).stdout)
    else:
        module.run(main)


def test_without_a_loop_is_an_error() -> None:
    run = pipewright.run_async(["sleep", "1"])
    with pytest.raises(RuntimeError, match=r"event loop|async context"):
        run.send(None)
