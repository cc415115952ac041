"""Workers in Python, and a pool of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import List

import pytest
from helpers import has_ended, wait_until

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
    this = threading.get_ident()

    def interrupt() -> None:
        # Sooner, it would be raised elsewhere.
        wait_until(lambda: sys._current_frames()[this].f_code is ipc.Pool.close.__code__, "the close of the pool")
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    # The call sleeps for 600 s: without the interrupt, the test would not end.
    with pytest.raises(KeyboardInterrupt):
        interrupting.start()
        pool.close()
    interrupting.join()
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


#: A program whose worker needs its `sys.path`, its arguments and its `__main__`.
MAIN = """
import math, sys
from {beside} import twice
from pipewright.ipc import Executor

class Both:
    def __init__(self, *both):
        self.both = both

def of(number):
    return Both(twice(number), sys.argv[1:])

if __name__ == "__main__":
    with Executor(2) as executor:
        print(executor.submit(math.gcd, 12, 18).result(), executor.submit(of, 4).result().both)
"""


def printed_by(words: List[str], folder: Path, text: str = "") -> str:
    """Returns what a program of Python prints that is run in that folder."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, input=text, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout or done.stderr


def test_an_executor_runs_functions_of_a_script_and_of_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def twice(number): return 2 * number")
    (tmp_path / "main.py").write_text(MAIN.format(beside="beside"))
    assert printed_by([str(tmp_path / "main.py"), "x"], Path("/")) == "6 (8, ['x'])\n"


def test_an_executor_runs_functions_of_a_package(tmp_path: Path) -> None:
    (tmp_path / "pk").mkdir()
    (tmp_path / "pk" / "__init__.py").touch()
    (tmp_path / "pk" / "beside.py").write_text("def twice(number): return 2 * number")
    (tmp_path / "pk" / "__main__.py").write_text(MAIN.format(beside=".beside"))
    assert printed_by(["-m", "pk", "x"], tmp_path) == "6 (8, ['x'])\n"


def test_an_executor_of_a_program_without_a_file(tmp_path: Path) -> None:
    program = """
        import math
        from pipewright.ipc import Executor
        with Executor(1) as executor:
            print(executor.submit(math.gcd, 12, 18).result())
    """
    for words, text in ((["-c", textwrap.dedent(program)], ""), (["-"], textwrap.dedent(program))):
        assert printed_by(words, tmp_path, text) == "6\n"


def test_a_program_without_a_guard_makes_no_workers_of_workers(tmp_path: Path) -> None:
    program = """
        import math
        from pipewright.ipc import Executor
        with Executor(1) as executor:
            print(executor.submit(math.gcd, 12, 18).exception())
    """
    (tmp_path / "main.py").write_text(textwrap.dedent(program))
    assert "if __name__ == '__main__':" in printed_by([str(tmp_path / "main.py")], tmp_path)


def test_a_program_is_imported_once_its_worker_has_connected(tmp_path: Path) -> None:
    # However long its imports take, the host has had its handshake.
    program = """
        import gc
        from pipewright import ipc

        channels = sum(isinstance(it, ipc.Channel) for it in gc.get_objects())

        def count():
            return channels

        if __name__ == "__main__":
            with ipc.Executor(1) as executor:
                print(executor.submit(count).result())
    """
    (tmp_path / "main.py").write_text(textwrap.dedent(program))
    assert printed_by([str(tmp_path / "main.py")], tmp_path) == "1\n"


def agreed_bytes() -> List[int]:
    """Returns the most bytes of a message that the channel of this worker takes."""
    return [it.max_message_bytes for it in gc.get_objects() if isinstance(it, ipc.Channel)]


def test_both_sides_of_an_executor_have_its_limit_of_messages() -> None:
    for most in (1 << 20, 300 << 20):
        with ipc.Executor(1, max_message_bytes=most) as executor:
            assert executor.submit(agreed_bytes).result() == [most]


def test_an_executor_that_nobody_waits_for_ends_its_workers() -> None:
    executor = ipc.Executor(1)
    pid = executor.submit(os.getpid).result()
    last = executor.submit(int, "7")
    executor.shutdown(wait=False)
    assert last.result() == 7
    with pytest.raises(RuntimeError):
        executor.submit(int)
    has_ended(pid)
    executor.shutdown()


def test_an_executor_needs_a_worker() -> None:
    for number in (0, -1):
        with pytest.raises(ValueError, match="max_workers"):
            ipc.Executor(number)


def test_what_cannot_be_pickled_is_the_error_of_its_future() -> None:
    with ipc.Executor(1) as executor:
        future = executor.submit(len, (it for it in ()))
        with pytest.raises(TypeError, match="pickle"):
            future.result()
        assert executor.submit(int, "7").result() == 7
