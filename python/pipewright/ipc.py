"""Calls to worker processes through shared memory: a pool of workers, and workers in Python.

A worker is a program; its host is a `Pool` here, or a program in Rust that uses `pipewright-ipc`::

    from pipewright.ipc import Worker

    Worker(lambda request: request[::-1]).serve()

Everything else about workers is in the module `pipewright_worker`, which is one file of the standard library: its names
are here too.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Deque, Iterable, Iterator, Optional, Union

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

    Functions, arguments and results are pickled, as for `ProcessPoolExecutor`; functions of `__main__` need its file,
    which a worker imports under another name. A worker that dies fails its own call (`CallError`) and is replaced.
    The other options are those of `Pool`.

    >>> import math
    >>> from pipewright.ipc import Executor
    >>> with Executor(2) as executor:
    ...     executor.submit(math.gcd, 12, 18).result(), list(executor.map(math.sqrt, [4.0, 9.0]))
    (6, [2.0, 3.0])
    """

    def __init__(self, max_workers: Optional[int] = None, **options: Any) -> None:
        workers = max_workers or os.cpu_count() or 1
        super().__init__(workers, thread_name_prefix="pipewright-executor")
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        program = f"import pipewright.ipc; pipewright.ipc.{_serve_calls.__name__}()"
        words = [sys.executable, "-c", program, *([] if main is None else [os.path.abspath(main)])]
        self.pool = Pool(words, workers=workers, **options)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Runs the function in a worker. The future has its result, or its exception."""
        return super().submit(self._call, pickle.dumps((fn, args, kwargs), pickle.HIGHEST_PROTOCOL))

    def _call(self, request: bytes) -> Any:
        is_result, value = pickle.loads(self.pool.call(request))
        if is_result:
            return value
        raise value

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the workers after the calls that have been submitted."""
        super().shutdown(wait, cancel_futures=cancel_futures)
        if wait:
            self.pool.close()


def _serve_calls() -> None:
    """Answers the calls of an `Executor`."""
    if len(sys.argv) > 1:
        import importlib

        # As the workers of `multiprocessing` do: its guard `if __name__ == "__main__"` holds.
        spawn: Any = importlib.import_module("multiprocessing.spawn")
        spawn._fixup_main_from_path(sys.argv[1])

    def answer(request: bytes) -> bytes:
        fn, args, kwargs = pickle.loads(request)
        try:
            result = True, fn(*args, **kwargs)
        except Exception as error:
            result = False, error
        try:
            return pickle.dumps(result, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            # A value that cannot travel is the error of its call.
            return pickle.dumps((False, RuntimeError(f"cannot be pickled: {error}")), pickle.HIGHEST_PROTOCOL)

    Worker(answer).serve()
