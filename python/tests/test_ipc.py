"""Workers in Python, and a pool of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
import os
import signal
import subprocess
import sys
import threading

import pytest

import pipewright
from pipewright import ipc

WORKER = """
import os, time
from pipewright.ipc import Worker

def answer(request):
    if request == b"die":
        os._exit(3)
    if request == b"fail":
        raise ValueError("no such thing")
    if request == b"sleep":
        time.sleep(600)
    return request[::-1]

Worker(answer).serve()
"""


def test_a_worker_without_a_host_says_so() -> None:
    assert not ipc.Worker.is_worker()
    with pytest.raises(ipc.NotAWorker):
        ipc.Worker(lambda request: request).serve()


def test_a_pool_calls_workers() -> None:
    with ipc.Pool([sys.executable, "-c", WORKER], workers=2) as pool:
        assert pool.call(b"abc") == b"cba"
        big = bytes(range(256)) * 4096
        assert pool.call(big) == big[::-1]
        assert list(pool.map(b"%d" % number for number in range(50))) == [
            str(number)[::-1].encode() for number in range(50)
        ]


def test_failures_of_a_call_are_exceptions_and_the_pool_goes_on() -> None:
    with ipc.Pool([sys.executable, "-c", WORKER], stderr=subprocess.DEVNULL) as pool:
        with pytest.raises(pipewright.CallError, match="no such thing"):
            pool.call(b"fail")
        with pytest.raises(pipewright.CallError):
            pool.call(b"die")
        with pytest.raises(TimeoutError):
            pool.call(b"sleep", timeout=0.2)
        assert pool.call(b"ok") == b"ko"


def test_the_file_of_the_worker_is_the_one_of_the_clients() -> None:
    import pipewright._worker as worker

    assert worker.__doc__ is not None and "one file, standard library only" in worker.__doc__
    assert pipewright.ipc is ipc


def test_an_interrupt_ends_the_close_of_a_pool_and_its_workers() -> None:
    pool = ipc.Pool([sys.executable, "-c", WORKER], drain=600)
    reply = pool.begin(b"sleep")
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    # The call sleeps for 600 s: without the interrupt, the test would not end.
    with pytest.raises(KeyboardInterrupt):
        pool.close()
    interrupt.join()
    with pytest.raises(pipewright.CallError):
        reply.wait()


def test_the_close_of_a_pool_leaves_a_call_the_time_to_drain() -> None:
    pool = ipc.Pool([sys.executable, "-c", WORKER], drain=0.2)
    reply = pool.begin(b"sleep")
    pool.close()
    with pytest.raises(pipewright.CallError):
        reply.wait()


def test_a_worker_that_does_not_answer_is_refused_after_the_time_for_it() -> None:
    pool = ipc.Pool(["sleep", "600"], handshake_timeout=0.1)
    with pytest.raises(pipewright.CallError, match="handshake"):
        pool.call(b"x")
    pool.close()


def test_a_message_over_the_limit_is_refused() -> None:
    with ipc.Pool([sys.executable, "-c", WORKER], max_message_bytes=1000) as pool:
        with pytest.raises(pipewright.CallError, match="1000"):
            pool.call(bytes(1001))
        assert pool.call(bytes(1000)) == bytes(1000)


PIDS = """
import os
from pipewright.ipc import Worker
Worker(lambda request: str(os.getpid()).encode()).serve()
"""


def test_workers_are_replaced_by_calls_and_age() -> None:
    for options, least in (({"max_jobs": 2}, 3), ({"max_age": 0.0}, 2), ({"max_memory_bytes": 1}, 2)):
        with ipc.Pool([sys.executable, "-c", PIDS], **options) as pool:
            pids = {pool.call(b"") for _ in range(6)}
            assert len(pids) >= least, options
    with ipc.Pool([sys.executable, "-c", PIDS]) as pool:
        assert len({pool.call(b"") for _ in range(6)}) == 1


def test_a_task_calls_without_blocking_its_loop() -> None:
    async def main(pool: ipc.Pool) -> None:
        assert await asyncio.gather(*[pool.acall(b"%d" % number) for number in range(20)])
        with pytest.raises(pipewright.CallTimeoutError):
            await pool.acall(b"wait", timeout=0.1)
        task = asyncio.ensure_future(pool.acall(b"wait"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # The pool goes on.
        assert await pool.acall(b"last") == b"last"

    program = """
import threading
from pipewright.ipc import Worker
Worker(lambda request: request if request != b"wait" else threading.Event().wait()).serve()
"""
    with ipc.Pool([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as pool:
        asyncio.run(main(pool))


def test_an_executor_runs_functions_in_workers() -> None:
    with ipc.Executor(2, stderr=subprocess.DEVNULL) as executor:
        assert isinstance(executor, concurrent.futures.Executor)
        assert executor.submit(math.gcd, 12, 18).result() == 6
        assert list(executor.map(math.sqrt, [4.0, 9.0])) == [2.0, 3.0]
        assert executor.submit(os.getpid).result() != os.getpid()
        with pytest.raises(ValueError, match="math domain error"):
            executor.submit(math.sqrt, -1.0).result()
        with pytest.raises(RuntimeError, match="cannot be pickled"):
            executor.submit(threading.Lock).result()
        with pytest.raises(pipewright.CallError, match="exit status: 3"):
            executor.submit(os._exit, 3).result()
        assert executor.submit(int, "7").result() == 7
    with pytest.raises(RuntimeError):
        executor.submit(int)
