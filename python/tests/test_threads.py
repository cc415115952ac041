"""Objects that threads share. The interpreter changes threads as often as it can, so that races show."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any, Callable, Iterator, List

import pytest
from helpers import LIMIT
from test_ipc import WORKER

import pipewright
from pipewright import ipc


@pytest.fixture(autouse=True)
def changes_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*functions: Callable[[], Any]) -> List[Any]:
    """Runs each function in a thread of its own, at the same time. Returns their results, or raises an exception."""
    results: List[Any] = [None] * len(functions)
    errors: List[BaseException] = []
    barrier = threading.Barrier(len(functions))

    def begin(index: int) -> None:
        try:
            barrier.wait()
            results[index] = functions[index]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=begin, args=(index,), daemon=True) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
    return results


def test_threads_wait_poll_kill_and_close_one_child() -> None:
    for _ in range(30):
        with pipewright.Popen(["sleep", "600"]) as child:

            def close(child: Any = child) -> int:
                child.kill()
                code = child.wait()
                child.close()
                return int(code)

            def ask(child: Any = child) -> int:
                while child.poll() is None:
                    child.send_signal(0)
                assert child.containment and (child.usage is None or child.usage["user"] >= 0)
                child.kill()
                child.terminate()
                return int(child.returncode)

            assert together(close, ask, child.wait, ask, close) == [-9] * 5
        assert child.returncode == -9 and child.usage is not None and child.containment != ""


def test_one_thread_communicates_at_a_time() -> None:
    with pipewright.Popen(["cat"], stdin=pipewright.PIPE, stdout=pipewright.PIPE) as child:
        thread = threading.Thread(target=lambda: results.append(child.communicate(timeout=60)))
        results: List[Any] = []
        child._communicating.acquire()
        with pytest.raises(RuntimeError, match="another thread"):
            child.communicate()
        child._communicating.release()
        thread.start()
        thread.join()
        assert results == [(b"", None)]


def test_threads_share_lines_and_each_line_arrives_once() -> None:
    lines = pipewright.lines(["seq", "10000"])
    parts = together(*[lambda: [int(line) for line in lines] for _ in range(4)])
    assert sorted(number for part in parts for number in part) == list(range(1, 10001))
    # As with every iterator, the end stays the end.
    assert next(lines, None) is None and lines.finish().returncode == 0


def test_threads_share_events() -> None:
    events = pipewright.events(["seq", "20000"])
    kinds = together(*[lambda: [event.kind for event in events] for _ in range(4)])
    joined = [kind for part in kinds for kind in part]
    assert joined.count("started") == joined.count("exited") == 1


def test_an_error_of_lines_stays() -> None:
    lines = pipewright.lines(["sleep", "600"], timeout=0.01)
    for _ in range(2):
        with pytest.raises(subprocess.TimeoutExpired):
            lines.finish()
    assert next(lines, None) is None


#: A read fails in one thread, while others ask the same object, which is locked meanwhile.
FAILING_READS = """
import os, sys, threading
import pipewright

sys.setswitchinterval(1e-6)
with pipewright.Popen(["sleep", "600"]) as child:
    for _ in range(300):
        # A directory cannot be read.
        number = os.open("/", os.O_RDONLY)
        reading = child._child.communicate(None, b"", number, None)
        os.close(number)
        failed = threading.Event()

        def read():
            try:
                reading.run()
            except pipewright.SystemCallError:
                failed.set()

        def ask():
            while not failed.is_set():
                reading.so_far()

        threads = [threading.Thread(target=it) for it in (read, ask, ask)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    child.kill()
"""


def test_an_exception_is_made_without_a_lock_that_another_thread_waits_for() -> None:
    # A process of its own: threads that wait for each other hold the GIL, and no signal would reach a test.
    pipewright.run([sys.executable, "-c", FAILING_READS], check=True, timeout=LIMIT)


def test_threads_run_commands_and_loops_at_the_same_time() -> None:
    def runs() -> List[str]:
        return [pipewright.check_output(["echo", str(n)], text=True) for n in range(20)]

    def loop() -> List[str]:
        async def main() -> List[str]:
            many = [pipewright.run_async(["echo", str(n)], capture_output=True, text=True) for n in range(20)]
            return [done.stdout for done in await asyncio.gather(*many)]

        return asyncio.run(main())

    expected = [f"{n}\n" for n in range(20)]
    assert together(runs, loop, runs, loop) == [expected] * 4


def test_two_tasks_cannot_wait_for_one_run() -> None:
    async def main() -> None:
        lines = pipewright.lines_async(["sleep", "600"])
        first = asyncio.ensure_future(lines.__anext__())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await lines.__anext__()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        lines.kill()
        with pytest.raises(StopAsyncIteration):
            await lines.__anext__()

    asyncio.run(main())


def test_threads_share_a_pool_and_a_batch() -> None:
    with ipc.Pool([sys.executable, "-c", WORKER], workers=2) as pool:

        def calls(number: int) -> Callable[[], List[bytes]]:
            return lambda: [pool.call(b"%d" % number) for _ in range(50)]

        expected = [[(b"%d" % number)[::-1]] * 50 for number in range(10, 14)]
        assert together(*[calls(number) for number in range(10, 14)]) == expected
    batch = pipewright.batch([["true"]] * 40, slots=4)
    ends = together(*[lambda: [end.number for end in batch] for _ in range(3)])
    assert sorted(number for part in ends for number in part) == list(range(40))


def test_questions_about_a_batch_are_answered_while_a_thread_waits_for_it() -> None:
    run = pipewright.batch([["sleep", "600"]], slots=1)
    ended = threading.Event()

    def wait() -> None:
        run.run()
        ended.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    # Each waits for one turn of the other thread at most, and not for its end.
    for _ in range(20):
        assert run.counts["succeeded"] == 0 and repr(run)
    assert not ended.is_set()
    run.stop()
    waiting.join(LIMIT)
    assert ended.is_set()
