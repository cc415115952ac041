"""Commands in event loops: no thread, no child watcher, and cancellation that ends the tree."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, List

import pytest
from helpers import (
    LIMIT,
    commands,
    descriptors,
    has_ended,
    pid_in,
    settle,
    skip,
    timed_out,
    wait_until,
    written_pid,
)

import pipewright
from pipewright import Command


async def come_true(fact: Any) -> Any:
    for _ in range(int(LIMIT / 0.005)):
        found = fact()
        if found:
            return found
        await asyncio.sleep(0.005)
    raise AssertionError("the fact did not come true")


def test_results_and_exceptions_are_those_of_run(tmp_path: Path) -> None:
    async def main() -> None:
        done = await pipewright.run_async(["sh", "-c", "echo out; exit 3"], capture_output=True, text=True)
        assert (done.stdout, done.returncode) == ("out\n", 3)
        with pytest.raises(pipewright.CalledProcessError):
            await pipewright.run_async(["false"], check=True)
        with pytest.raises(FileNotFoundError):
            await pipewright.run_async(["no-such-program"])
        data = os.urandom(1 << 20)
        assert (await pipewright.run_async(["cat"], input=data, capture_output=True)).stdout == data
        piped = Command(["seq", "3"]) | Command(["tail", "-n1"])
        assert (await piped.run_async(capture_output=True)).stdout == b"3\n"

    def limited(seconds: float) -> Any:
        script = f"echo a; : > {tmp_path}/mark; exec sleep 600"
        return asyncio.run(pipewright.run_async(script, shell=True, capture_output=True, timeout=seconds))

    asyncio.run(main())
    error = timed_out(limited, tmp_path / "mark", 0.2)
    assert isinstance(error, pipewright.TimeoutExpired) and error.output == b"a\n"


def run_in(name: str, main: Any) -> None:
    """Runs the function in a loop of that kind."""
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
    elif name == "asyncio":
        module.run(main())
    else:
        module.run(main)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop", "trio"])
def test_a_stream_has_the_input_of_its_command(loop: str) -> None:
    data = os.urandom(3 << 20)

    async def main() -> None:
        got = b""
        async with pipewright.events_async(["cat"], stdin=pipewright.PIPE) as events:
            # Whatever is written is read, a part at a time.
            for at in range(0, len(data), 40000):
                await events.stdin.write(data[at : at + 40000])
                while len(got) < at + 40000 - 60000:
                    event = await events.__anext__()
                    got += event.value if event.kind == "stdout" else b""
            events.stdin.close()
            async for event in events:
                got += event.value if event.kind == "stdout" else b""
        assert got == data
        with pytest.raises(ValueError, match="closed"):
            await events.stdin.write(b"a")
        async with pipewright.lines_async(["cat"], stdin=pipewright.PIPE, encoding="utf-16") as lines:
            for word in ("one", "two"):
                await lines.stdin.write(f"{word}\n")
                assert await lines.__anext__() == word
            await lines.stdin.aclose()
            assert (await lines.finish()).returncode == 0
        async with pipewright.lines_async(["true"], stdin=pipewright.PIPE) as lines:
            await lines.finish()
            with pytest.raises(BrokenPipeError):
                await lines.stdin.write(b"a")
        assert pipewright.lines_async(["true"]).stdin is None

    run_in(loop, main)


def test_the_end_of_a_stream_ends_a_write_to_its_command() -> None:
    async def main() -> None:
        before = descriptors()
        for ends in ("cancel", "aclose"):
            events = pipewright.events_async(["sleep", "600"], stdin=pipewright.PIPE)
            writes = asyncio.ensure_future(events.stdin.write(bytes(1 << 20)))
            await come_true(lambda events=events: events.stdin._wait)
            with pytest.raises(RuntimeError, match="another task"):
                await events.stdin.write(b"a")
            if ends == "cancel":
                writes.cancel()
            else:
                await events.aclose()
            with pytest.raises(asyncio.CancelledError if ends == "cancel" else ValueError):
                await writes
            await events.aclose()
            del events, writes
        assert descriptors() <= before

    asyncio.run(main())


def test_no_thread_and_no_signal_handler_for_any_number_of_children() -> None:
    def started() -> int:
        nonlocal count
        with contextlib.suppress(BlockingIOError):
            count += len(os.read(ready, 50))
        return count

    def threads() -> List[int]:
        return [threading.active_count(), len(os.listdir("/proc/self/task"))]

    async def main() -> None:
        settle()
        before = threads()
        command = ["sh", "-c", "echo; exec cat"]
        runs = [asyncio.ensure_future(pipewright.run_async(command, stdin=reader, stdout=said)) for _ in range(50)]
        await come_true(lambda: started() == 50)
        # Those that have helped with the starts, or have reaped, may be about to end; one of an earlier test may have.
        await come_true(lambda: all(now <= then for now, then in zip(threads(), before)))
        assert not any(run.done() for run in runs)
        os.close(writer)
        assert [done.returncode for done in await asyncio.gather(*runs)] == [0] * 50

    count = 0
    (reader, writer), (ready, said) = os.pipe(), os.pipe()
    os.set_blocking(ready, False)
    asyncio.run(main())
    for number in (reader, ready, said):
        os.close(number)


def test_many_starts_of_one_turn_have_their_own_results() -> None:
    async def main() -> None:
        def one(number: int) -> Any:
            if number % 10 == 9:
                return pipewright.run_async([f"no-such-program-{number}"])
            return pipewright.run_async(["sh", "-c", f"echo {number}; exit {number % 7}"], capture_output=True)

        settle()
        threads = len(os.listdir("/proc/self/task"))
        for number, done in enumerate(await asyncio.gather(*map(one, range(200)), return_exceptions=True)):
            if number % 10 == 9:
                assert isinstance(done, FileNotFoundError) and done.filename == f"no-such-program-{number}"
            else:
                assert isinstance(done, pipewright.CompletedProcess), done
                assert (done.stdout, done.returncode) == (b"%d\n" % number, number % 7)
        # The threads that help with the starts live as long as these. One that has been joined is listed a moment more.
        await come_true(lambda: len(os.listdir("/proc/self/task")) <= threads)

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
        pid = await come_true(lambda: pid_in(path))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        has_ended(pid)
        assert caught[0].stdout == b"said\n"

    asyncio.run(main())


def test_a_task_that_is_cancelled_at_any_moment_leaves_nothing() -> None:
    # No other run of this suite has it.
    command = ["sleep", f"600.25{os.getpid()}"]

    async def main() -> None:
        before = descriptors()
        for moment in range(40):
            script = "exec " + " ".join(command)
            task = asyncio.ensure_future(pipewright.run_async(script, shell=True, capture_output=True))
            for _ in range(moment % 8):
                await asyncio.sleep(0)
            await asyncio.sleep(moment * 0.0003)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        # A thread ends what has not ended within a moment after its kill.
        wait_until(lambda: descriptors() <= before, "the end of all descriptors")

    asyncio.run(main())
    wait_until(lambda: command not in commands(), "the end of all commands")


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
        settle()
        before = sorted(os.listdir("/proc/self/fd"))
        await asyncio.gather(*(pipewright.run_async(["echo", "a"], capture_output=True) for _ in range(20)))
        settle()
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

    run_in(name, main)
    if name == "trio":
        module = importlib.import_module(name)
        command = ["sleep", f"600.5{os.getpid()}"]

        async def cancelled() -> None:
            with module.move_on_after(0.05):
                await pipewright.run_async(command)

        module.run(cancelled)
        wait_until(lambda: command not in commands(), "the end of the command")


def test_without_a_loop_is_an_error() -> None:
    run = pipewright.run_async(["sleep", "1"])
    with pytest.raises(RuntimeError, match=r"event loop|async context"):
        run.send(None)


@pytest.mark.parametrize("kind", ["lines", "events"])
def test_a_task_that_waits_finds_the_end_when_another_closes(kind: str) -> None:
    async def main() -> None:
        stream: Any = getattr(pipewright, f"{kind}_async")(["sh", "-c", "echo a; exec sleep 600"])

        async def read() -> int:
            return len([item async for item in stream])

        for close in (stream.aclose, None):
            task = asyncio.ensure_future(read())
            await asyncio.sleep(0.05)
            if close is None:
                stream = getattr(pipewright, f"{kind}_async")(["sleep", "600"])
                task = asyncio.ensure_future(read())
                await asyncio.sleep(0.05)
                await asyncio.get_running_loop().run_in_executor(None, stream.close)
            else:
                await close()
            assert await asyncio.wait_for(task, LIMIT) >= 0
        # The next runs get the same descriptor numbers.
        for _ in range(3):
            again = pipewright.lines_async(["sh", "-c", "sleep 0.05; echo hi"])
            assert [str(line) async for line in again] == ["hi"]

    asyncio.run(asyncio.wait_for(main(), LIMIT))


@pytest.mark.parametrize("kind", ["lines", "events"])
def test_output_that_never_pauses_leaves_the_loop_its_turns(kind: str) -> None:
    async def main() -> None:
        stream: Any = getattr(pipewright, f"{kind}_async")(["yes"])
        items = 0

        async def read() -> None:
            nonlocal items
            async for _ in stream:
                items += 1

        task = asyncio.ensure_future(read())
        # Turns, and not seconds: each has a bounded number of items.
        for turn in range(200):
            await asyncio.sleep(0)
            assert items <= 64 * (turn + 2)
        while items == 0:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async for item in stream:
            assert getattr(item, "kind", "stdout") in ("started", "stdout")
            break
        await stream.aclose()

    asyncio.run(asyncio.wait_for(main(), LIMIT))


def test_exceptions_that_are_kept_keep_no_descriptor() -> None:
    kept: List[BaseException] = []

    def by_run(command: List[str], **options: Any) -> None:
        try:
            pipewright.run(command, capture_output=True, **options)
        except subprocess.SubprocessError as error:
            kept.append(error)

    async def main() -> None:
        runs = [pipewright.run_async(["false"], capture_output=True, check=True) for _ in range(10)]
        runs += [pipewright.run_async(["sleep", "600"], capture_output=True, timeout=0.05) for _ in range(10)]
        tasks = [asyncio.ensure_future(it) for it in runs]
        late = asyncio.ensure_future(pipewright.run_async(["sleep", "600"], capture_output=True))
        kept.extend(await asyncio.gather(*tasks, return_exceptions=True))
        late.cancel()
        kept.extend(await asyncio.gather(late, return_exceptions=True))

    by_run(["sleep", "600"], timeout=0.01)
    kept.clear()
    before = descriptors()
    for _ in range(5):
        by_run(["false"], check=True)
        by_run(["sleep", "600"], timeout=0.01)
    asyncio.run(main())
    assert len(kept) == 31 and all(isinstance(it, BaseException) for it in kept)
    wait_until(lambda: descriptors() <= before, "the end of all descriptors")


def test_exhausted_streams_that_are_kept_keep_no_descriptor() -> None:
    kept: List[Any] = []

    async def main() -> None:
        for kind in ("lines_async", "events_async"):
            stream = getattr(pipewright, kind)(["echo"])
            kept.append([stream, [it async for it in stream]])

    asyncio.run(main())
    before = descriptors()
    for kind in ("lines", "events"):
        stream = getattr(pipewright, kind)(["echo"])
        kept.append([stream, list(stream)])
    asyncio.run(main())
    assert descriptors() == before


@pytest.mark.parametrize("free", [12, 20, 60])
def test_more_runs_than_there_are_descriptors_for_wait_for_each_other(free: int) -> None:
    script = (
        "import asyncio, os, pipewright, resource\n"
        "async def main():\n"
        "    await pipewright.run_async(['true'])\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\n"
        # Also those below the highest one are taken.
        "    held = [os.open('/dev/null', os.O_RDONLY)]\n"
        "    while held[-1] < 299: held.append(os.open('/dev/null', os.O_RDONLY))\n"
        f"    for number in held[-{free}:]: os.close(number)\n"
        "    script = 'sleep 0.05; echo '\n"
        "    one = lambda n: pipewright.run_async(script + str(n), shell=True, capture_output=True, timeout=60)\n"
        "    done = await asyncio.gather(*map(one, range(100)))\n"
        "    assert [int(it.stdout) for it in done] == list(range(100))\n"
        "    assert max(it.elapsed for it in done) > 0\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LIMIT)


def test_a_captured_run_has_six_descriptors(tmp_path: Path) -> None:
    async def main() -> None:
        await pipewright.run_async(["true"])
        before = descriptors()
        scripts = [f": > {tmp_path}/{number}; exec sleep 600" for number in range(5)]
        tasks = [
            asyncio.ensure_future(pipewright.run_async(script, shell=True, capture_output=True, timeout=600))
            for script in scripts
        ]
        await come_true(lambda: len(list(tmp_path.iterdir())) == 5)
        assert descriptors() - before <= 5 * 6
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_cancelled_tasks_end_beside_each_other(grandchild: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each is given a quarter of a second, as something out of reach holds its output.
    real, begun, begun_at_ends = pipewright._aio._Watch.end, 0, []

    async def end(self: Any, running: Any) -> None:
        nonlocal begun
        begun += 1
        await real(self, running)
        begun_at_ends.append(begun)

    async def main() -> None:
        scripts = [grandchild(streams="", session=True) for _ in range(8)]
        tasks = [
            asyncio.ensure_future(
                pipewright.run_async(f"({script}); exec sleep 600", shell=True, capture_output=True, tree=False)
            )
            for script, _ in scripts
        ]
        for _, path in scripts:
            await come_true(lambda path=path: pid_in(path))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)

    monkeypatch.setattr(pipewright._aio._Watch, "end", end)
    asyncio.run(main())
    # One after another, the first would have ended before the second began to.
    assert begun_at_ends == [8] * 8
