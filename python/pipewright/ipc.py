"""Calls to worker processes through shared memory: a pool of workers, and workers in Python.

A worker is a program; its host is a `Pool` here, or a program in Rust that uses `pipewright-ipc`::

    from pipewright.ipc import Worker

    Worker(lambda request: request[::-1]).serve()

Everything else about workers is in the module `pipewright_worker`, which is one file of the standard library: its names
are here too.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import runpy
import sys
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable, Deque, Generator, Iterable, Iterator, Optional, Union

from pipewright import _options
from pipewright._errors import CallError  # Imported now: at an error there may be no free descriptor.
from pipewright._pipewright import PendingReply
from pipewright._pipewright import Pool as _NativePool
from pipewright._worker import (
    Call,
    Cancelled,
    Channel,
    Declined,
    Disconnected,
    NotAWorker,
    ProtocolError,
    Refused,
    TooLong,
    connect,
    is_worker,
    serve,
    serve_calls,
)

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from pipewright._options import Args, Options

    Bytes = Union[bytes, bytearray, memoryview]

__all__ = [
    "Call",
    "Cancelled",
    "Channel",
    "Declined",
    "Disconnected",
    "Executor",
    "NotAWorker",
    "PendingReply",
    "Pool",
    "ProtocolError",
    "Refused",
    "TooLong",
    "Worker",
    "connect",
    "is_worker",
    "serve",
    "serve_calls",
]


class Worker:
    """A worker: answers each request with the bytes that the function returns.

    `takes_calls`: the function gets a `Call`, which also takes and sends items, asks the host and sees cancellations.
    `reset` returns the program to its state after the start, and returns False if it cannot. The options are those of
    `connect`.
    """

    def __init__(
        self,
        function: Callable[[Any], Bytes],
        *,
        takes_calls: bool = False,
        reset: Optional[Callable[[], bool]] = None,
        **options: Any,
    ) -> None:
        self.function = function
        self._takes_calls = takes_calls
        self._reset = reset
        self._options = options

    @staticmethod
    def is_worker() -> bool:
        """Returns true if a host has started this program."""
        return is_worker()

    def serve(self) -> None:
        """Answers requests until the host ends. Raises `NotAWorker` without a host."""
        function = self.function if self._takes_calls else lambda call: self.function(call.request)
        serve_calls(function, self._reset, **self._options)


class _Ahead:
    """Requests that are sent ahead, as long as there is room for them."""

    def __init__(self, pool: Pool, requests: Iterable[Bytes], timeout: Optional[float]) -> None:
        self.pool, self.left, self.timeout = pool, iter(requests), timeout
        self.sent: Deque[PendingReply] = deque()
        #: One that there was no room for.
        self.next: Optional[Bytes] = None

    def send(self) -> None:
        while len(self.sent) < self.pool._max_waiting:
            request = self.next if self.next is not None else next(self.left, None)
            self.next = None
            if request is None:
                return
            try:
                self.sent.append(self.pool.begin(request, timeout=self.timeout))
            except CallError as error:
                if "queue full" not in str(error):
                    raise
                # Calls of other threads wait too.
                self.next = request
                return

    def replies(self) -> Iterator[bytes]:
        while self.sent or self.next is not None:
            if self.sent:
                yield self.sent.popleft().wait()
            else:
                time.sleep(0.001)
            self.send()


class Pool:
    """Workers that answer calls. A worker that dies is replaced.

    `max_waiting`: the calls that may wait for a worker. `drain`: the seconds that `close` leaves to calls that have
    begun. `handshake_timeout`: the seconds that a new worker has to answer, 10 unless given. `max_message_bytes`: the
    longest request and reply, 256 MiB unless given; the smaller one of host and worker holds. A worker that has no call
    is replaced after `max_jobs` calls, at `max_age` seconds, and above `max_memory_bytes`.

    >>> import sys
    >>> from pipewright.ipc import Pool
    >>> program = "from pipewright.ipc import Worker; Worker(lambda request: request[::-1]).serve()"
    >>> with Pool([sys.executable, "-c", program], workers=2) as pool:
    ...     pool.call(b"abc"), list(pool.map([b"de", b"fg"]))
    (b'cba', [b'ed', b'gf'])
    """

    def __init__(
        self,
        args: Args,
        *,
        workers: int = 1,
        max_waiting: int = 4096,
        drain: float = 30.0,
        handshake_timeout: Optional[float] = None,
        max_message_bytes: Optional[int] = None,
        max_jobs: Optional[int] = None,
        max_age: Optional[float] = None,
        max_memory_bytes: Optional[int] = None,
        **options: Unpack[Options],
    ) -> None:
        given: Any = dict(options, args=args)
        native = _options.native(given)
        # The pool ends its workers.
        native.pop("tree", None)
        for name in ("stdin", "stdout", "stderr"):
            if name not in options:
                native[name] = -6
        self._max_waiting = max_waiting
        settings = {
            "max_waiting": max_waiting,
            "drain": drain,
            "handshake_timeout": handshake_timeout,
            "max_message_bytes": max_message_bytes,
            "max_jobs": max_jobs,
            "max_age": max_age,
            "max_memory_bytes": max_memory_bytes,
        }
        given = {name: value for name, value in settings.items() if value is not None}
        self._native = _NativePool(native, workers, given)

    def begin(self, request: Bytes, *, timeout: Optional[float] = None, idempotent: bool = False) -> PendingReply:
        """Sends a request. The reply is that of `wait()`."""
        return self._native.begin(bytes(request), timeout, idempotent)

    def call(self, request: Bytes, *, timeout: Optional[float] = None, idempotent: bool = False) -> bytes:
        """Sends a request and waits for the reply. `idempotent`: it is sent again if the worker dies."""
        return self.begin(request, timeout=timeout, idempotent=idempotent).wait()

    async def acall(self, request: Bytes, *, timeout: Optional[float] = None, idempotent: bool = False) -> bytes:
        """Sends a request and waits for the reply in the loop that is there: asyncio, uvloop, trio or anyio.

        A call in progress has one descriptor. A cancelled task cancels its call.
        """
        from pipewright._aio import _Wait

        reply = self.begin(request, timeout=timeout, idempotent=idempotent)
        try:
            number = reply.descriptor()
            while True:
                done = reply.poll()
                if done is not None:
                    return done
                await _Wait(number).run()
        except BaseException:
            reply.cancel()
            raise

    def map(self, requests: Iterable[Bytes], *, timeout: Optional[float] = None) -> Iterator[bytes]:
        """Sends the requests, and returns the replies in their order. As many as may wait are sent ahead."""
        ahead = _Ahead(self, requests, timeout)
        ahead.send()
        return ahead.replies()

    def close(self) -> None:
        """Ends the workers: those that answer a call after it, or after `drain`. An interrupt kills them."""
        self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()


class Executor(ThreadPoolExecutor):
    """A `concurrent.futures.Executor` whose functions run in worker processes: a pool of Python interpreters.

    Functions, arguments and results are pickled, as for `ProcessPoolExecutor`. A worker gets the paths and arguments of
    this program before its first call, and imports its file under another name: a program that makes an executor needs
    the guard `if __name__ == "__main__"`. A worker that dies fails its own call (`CallError`) and is replaced.
    The other options are those of `Pool`.

    >>> import math
    >>> from pipewright.ipc import Executor
    >>> with Executor(2) as executor:
    ...     executor.submit(math.gcd, 12, 18).result(), list(executor.map(math.sqrt, [4.0, 9.0]))
    (6, [2.0, 3.0])
    """

    def __init__(self, max_workers: Optional[int] = None, **options: Any) -> None:
        workers = (os.cpu_count() or 1) if max_workers is None else max_workers
        super().__init__(workers, thread_name_prefix="pipewright-executor")
        spawn: Any = importlib.import_module("multiprocessing.spawn")
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        # Neither arguments nor the environment: they have a length, and anyone can read them.
        with tempfile.TemporaryFile() as file:
            file.write(_preparation(spawn))
            file.flush()
            number, most = file.fileno(), options.get("max_message_bytes")
            program = f"import sys; sys.path.append({folder!a}); from pipewright import ipc; "
            program += f"ipc.{_serve_calls.__name__}({number}, {most})"
            words = [sys.executable, *spawn.util._args_from_interpreter_flags(), "-c", program]
            options["pass_fds"] = (*(options.get("pass_fds") or ()), number)
            self.pool = Pool(words, workers=workers, **options)
        self._closing = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Runs the function in a worker. The future has its result, or its exception."""
        try:
            request = pickle.dumps((fn, args, kwargs), pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            return super().submit(_raise, error)
        return super().submit(self._call, request)

    def _call(self, request: bytes) -> Any:
        is_result, value = pickle.loads(self.pool.call(request))
        if is_result:
            return value
        raise value

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the workers after the calls that have been submitted. Without `wait`, a thread does it."""
        super().shutdown(False, cancel_futures=cancel_futures)
        if wait:
            self._end()
        else:
            threading.Thread(target=self._end, name="pipewright-executor-end").start()

    def _end(self) -> None:
        super().shutdown(True)
        # A second caller returns after the end too.
        with self._closing:
            self.pool.close()


def _raise(error: Exception) -> None:
    raise error


def _preparation(spawn: Any) -> bytes:
    """Returns what `multiprocessing` tells a process that it spawns. Fails in a worker that imports the program."""
    data = spawn.get_preparation_data("pipewright")
    # The folder is an option of the pool.
    del data["dir"]
    data["authkey"] = bytes(data["authkey"])
    # A program that is read from stdin has no file.
    if not os.path.exists(data.get("init_main_from_path", "/")):
        del data["init_main_from_path"]
    return pickle.dumps(data)


class _Calls:
    """The calls of an `Executor`, in a worker."""

    def __init__(self, number: int) -> None:
        #: Until the first call: imports may take longer than the host waits for a handshake.
        self.data: Any = pickle.loads(os.pread(number, os.fstat(number).st_size, 0))
        os.close(number)
        #: The `__main__` of a package, until a call needs it.
        self.package: Optional[str] = None
        self.first_main = sys.modules["__main__"]

    def answer(self, request: bytes) -> bytes:
        try:
            if self.data is not None:
                self.prepare()
            fn, args, kwargs = self.loaded(request)
            result = True, fn(*args, **kwargs)
        except Exception as error:
            result = False, error
        try:
            return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            # A value that cannot travel is the error of its call.
            return pickle.dumps((False, RuntimeError(f"cannot be pickled: {error}")), pickle.HIGHEST_PROTOCOL)

    def prepare(self) -> None:
        """Makes this process like that of the host."""
        spawn: Any = importlib.import_module("multiprocessing.spawn")
        with _importing(spawn):
            spawn.prepare(self.data)
        name = self.data.get("init_main_from_name")
        self.package = name if name is not None and name.endswith(".__main__") else None
        self.data = None

    def loaded(self, request: bytes) -> Any:
        try:
            return pickle.loads(request)
        except AttributeError:
            # `multiprocessing` leaves out the `__main__` of a package, as many have no guard: it is run if needed.
            if self.package is None:
                raise
        main = ModuleType("__mp_main__")
        with _importing(importlib.import_module("multiprocessing.spawn")):
            main.__dict__.update(runpy.run_module(self.package, run_name="__mp_main__", alter_sys=True))
        sys.modules["__main__"] = sys.modules["__mp_main__"] = main
        self.package = None
        return pickle.loads(request)


@contextlib.contextmanager
def _importing(spawn: Any) -> Generator[None, None, None]:
    """Runs the program of the host under another name: an executor that it makes meanwhile is refused."""
    process = spawn.process.current_process()
    process._inheriting = True
    try:
        yield
    finally:
        del process._inheriting


def _serve_calls(number: int, max_message_bytes: Optional[int]) -> None:
    """Answers the calls of an `Executor`, which has written the preparation to that file."""
    options: Any = {} if max_message_bytes is None else {"max_message_bytes": max_message_bytes}
    Worker(_Calls(number).answer, **options).serve()
