"""asyncio whose commands leave no tree behind: `from pipewright import asyncio` in place of `import asyncio`.

All names are those of asyncio. `create_subprocess_exec`, `create_subprocess_shell` and their `Process`, with its
streams, are asyncio's too; the command is a `pipewright.Popen`, and takes its options. No child watcher and no thread
waits for it: one descriptor in the running loop does. A thread ends what it has left behind, if anything.
"""

from __future__ import annotations

import asyncio as _asyncio
import contextlib as _contextlib
import io as _io
import os as _os
import sys
import threading as _threading
from asyncio import base_subprocess as _base
from asyncio import subprocess as _std
from functools import partial as _partial
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING, Any

from pipewright._popen import Popen as _Popen

if TYPE_CHECKING:
    # One by one: `import *` would hide our functions from mypy.
    from asyncio import (  # noqa: I001
        ALL_COMPLETED as ALL_COMPLETED,
        FIRST_COMPLETED as FIRST_COMPLETED,
        FIRST_EXCEPTION as FIRST_EXCEPTION,
        AbstractChildWatcher as AbstractChildWatcher,
        AbstractEventLoop as AbstractEventLoop,
        AbstractEventLoopPolicy as AbstractEventLoopPolicy,
        AbstractServer as AbstractServer,
        BaseEventLoop as BaseEventLoop,
        BaseProtocol as BaseProtocol,
        BaseTransport as BaseTransport,
        BoundedSemaphore as BoundedSemaphore,
        BufferedProtocol as BufferedProtocol,
        CancelledError as CancelledError,
        Condition as Condition,
        DatagramProtocol as DatagramProtocol,
        DatagramTransport as DatagramTransport,
        DefaultEventLoopPolicy as DefaultEventLoopPolicy,
        Event as Event,
        FastChildWatcher as FastChildWatcher,
        Future as Future,
        Handle as Handle,
        IncompleteReadError as IncompleteReadError,
        InvalidStateError as InvalidStateError,
        LifoQueue as LifoQueue,
        LimitOverrunError as LimitOverrunError,
        Lock as Lock,
        MultiLoopChildWatcher as MultiLoopChildWatcher,
        PidfdChildWatcher as PidfdChildWatcher,
        PriorityQueue as PriorityQueue,
        Protocol as Protocol,
        Queue as Queue,
        QueueEmpty as QueueEmpty,
        QueueFull as QueueFull,
        ReadTransport as ReadTransport,
        SafeChildWatcher as SafeChildWatcher,
        SelectorEventLoop as SelectorEventLoop,
        Semaphore as Semaphore,
        SendfileNotAvailableError as SendfileNotAvailableError,
        Server as Server,
        StreamReader as StreamReader,
        StreamReaderProtocol as StreamReaderProtocol,
        StreamWriter as StreamWriter,
        SubprocessProtocol as SubprocessProtocol,
        SubprocessTransport as SubprocessTransport,
        Task as Task,
        ThreadedChildWatcher as ThreadedChildWatcher,
        TimeoutError as TimeoutError,
        TimerHandle as TimerHandle,
        Transport as Transport,
        WriteTransport as WriteTransport,
        _enter_task as _enter_task,
        _get_running_loop as _get_running_loop,
        _leave_task as _leave_task,
        _register_task as _register_task,
        _set_running_loop as _set_running_loop,
        _unregister_task as _unregister_task,
        all_tasks as all_tasks,
        as_completed as as_completed,
        create_task as create_task,
        current_task as current_task,
        ensure_future as ensure_future,
        gather as gather,
        get_event_loop as get_event_loop,
        get_running_loop as get_running_loop,
        iscoroutine as iscoroutine,
        iscoroutinefunction as iscoroutinefunction,
        isfuture as isfuture,
        new_event_loop as new_event_loop,
        open_connection as open_connection,
        open_unix_connection as open_unix_connection,
        run as run,
        run_coroutine_threadsafe as run_coroutine_threadsafe,
        set_event_loop as set_event_loop,
        shield as shield,
        sleep as sleep,
        start_server as start_server,
        start_unix_server as start_unix_server,
        to_thread as to_thread,
        wait as wait,
        wait_for as wait_for,
        wrap_future as wrap_future,
    )
    from typing import Dict, List, Optional

    if sys.version_info >= (3, 11):
        from asyncio import (  # noqa: I001
            Barrier as Barrier,
            BrokenBarrierError as BrokenBarrierError,
            Runner as Runner,
            Timeout as Timeout,
            timeout as timeout,
            timeout_at as timeout_at,
        )

    from pipewright._options import StrOrBytesPath
else:
    from asyncio import *  # noqa: F403 # pyright: ignore[reportWildcardImportFromLibrary]

#: The seconds between two looks at a command whose end no descriptor tells.
_PAUSE = 0.05

#: The most seconds that the loop waits for a supervisor that has nothing left to supervise. It ends in a part of them.
_MOMENT = 0.001

#: What a command with asyncio's streams cannot have: they are bytes.
_UNUSED = {"universal_newlines": False, "bufsize": 0, "text": None, "encoding": None, "errors": None}


class Process(_std.Process):
    """A command that runs: asyncio's `Process`. `kill` reaches everything that the command has started."""

    _transport: Any

    @property
    def containment(self) -> str:
        """The mechanism that contains the tree: `cgroup`, `supervisor`, `group` or `none`."""
        return str(self._transport.command.containment)

    @property
    def usage(self) -> Optional[Dict[str, Any]]:
        """The CPU time in seconds (`user`, `system`) and `peak_rss_bytes`, once the command has ended."""
        usage: Optional[Dict[str, Any]] = self._transport.command.usage
        return usage


class _Command(_Popen[Any]):
    """A command whose end a transport sees: nothing that its loop calls waits for the rest of a tree."""

    def poll(self) -> Optional[int]:
        code: Optional[int] = self.returncode
        return code


class _Transport(_base.BaseSubprocessTransport):
    """A command and its pipes in a loop."""

    _loop: Any
    #: `None` once all is over.
    _proc: Any
    #: The same, and stays.
    command: Any
    #: Readable once the command has ended.
    _end: Optional[_io.FileIO] = None

    def _start(
        self, args: Any, shell: bool, stdin: Any, stdout: Any, stderr: Any, bufsize: int, **options: Any
    ) -> None:
        proc: Any = _Command(args, shell=shell, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=bufsize, **options)
        self._proc = self.command = proc
        number = proc._child.end_descriptor()
        if number is None:
            self._loop.call_later(_PAUSE, self._look)
        else:
            # One of our own: that of the command is closed with it, whoever finds its end.
            self._end = _io.FileIO(_os.dup(number), "rb")
            self._loop.add_reader(self._end.fileno(), self._look)

    def _look(self) -> None:
        is_over = False
        # An error is told once, by the end.
        with _contextlib.suppress(Exception):
            if not self.command._child.has_ended():
                if self._end is None:
                    self._loop.call_later(_PAUSE, self._look)
                return
            is_over = self.command._child.release(_MOMENT)
        if self._end is not None:
            self._loop.remove_reader(self._end.fileno())
            self._end.close()
        end = _partial(self._end_tree, self._loop)
        if not is_over:
            # It takes the time that processes take to end, and the loop has other tasks.
            with _contextlib.suppress(RuntimeError):
                _threading.Thread(target=end, name="pipewright-end").start()
                return
        # There is nothing to wait for, or no room for a thread.
        end()

    def _end_tree(self, loop: Any) -> None:
        # asyncio's code for a status that something else has taken.
        code, error = 255, None
        try:
            code = self.command.wait()
            # What the command has left behind would hold its streams open.
            self.command.close()
        except Exception as it:
            error = it
        # Nobody asks any more if the loop has been closed.
        with _contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._has_ended, code, error)

    def _has_ended(self, code: int, error: Optional[Exception]) -> None:
        try:
            if error is not None:
                message = f"the end of the command {self.command.pid} is not known: {code} is reported"
                self._loop.call_exception_handler({"message": message, "exception": error, "transport": self})
        finally:
            self._process_exited(code)

    def send_signal(self, signal: int) -> None:
        self._check_proc()
        self._proc.send_signal(signal)

    # From Python 3.13 on, those of asyncio send a signal to the command alone.
    def terminate(self) -> None:
        self._check_proc()
        self._proc.terminate()

    def kill(self) -> None:
        self._check_proc()
        self._proc.kill()

    def __del__(self, *args: Any) -> None:
        super().__del__(*args)
        if self._end is not None:
            self._end.close()


async def _create(
    args: Any, shell: bool, stdin: Any, stdout: Any, stderr: Any, limit: int, options: Dict[str, Any]
) -> Process:
    for name, only in _UNUSED.items():
        if options.pop(name, only) not in (only, False):
            raise ValueError(f"{name} must be {only}")
    if options.get("pty"):
        raise ValueError("pty: a terminal is no stream of asyncio; use lines_async or run_async")
    loop = _asyncio.get_running_loop()
    protocol = _std.SubprocessStreamProtocol(limit=limit, loop=loop)
    waiter: Any = loop.create_future()
    transport: Any = _Transport(loop, protocol, args, shell, stdin, stdout, stderr, 0, waiter=waiter, **options)
    try:
        await waiter
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        transport.close()
        await transport._wait()
        raise
    return Process(transport, protocol, loop)


async def create_subprocess_exec(
    program: StrOrBytesPath,
    *args: StrOrBytesPath,
    stdin: Any = None,
    stdout: Any = None,
    stderr: Any = None,
    limit: int = 2**16,
    **options: Any,
) -> Process:
    """Starts a command, as asyncio's function of that name does, with the options of `pipewright.Popen`.

    >>> from pipewright import asyncio
    >>> async def main():
    ...     process = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    ...     return await process.communicate()
    >>> asyncio.run(main())
    (b'hi\\n', None)
    """
    given: Any = dict(options)
    if given.pop("shell", False):
        raise ValueError("shell must be False")
    words: List[Any] = [program, *args]
    return await _create(words, False, stdin, stdout, stderr, limit, given)


async def create_subprocess_shell(
    cmd: Any,
    stdin: Any = None,
    stdout: Any = None,
    stderr: Any = None,
    limit: int = 2**16,
    **options: Any,
) -> Process:
    """Starts a line for the shell, as asyncio's function of that name does, with the options of `pipewright.Popen`."""
    if not isinstance(cmd, (bytes, str)):
        raise ValueError("cmd must be a string")
    given: Any = dict(options)
    if not given.pop("shell", True):
        raise ValueError("shell must be True")
    return await _create(cmd, True, stdin, stdout, stderr, limit, given)


class _Subprocess(_ModuleType):
    """`asyncio.subprocess`, with our functions."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_std, name)


if not TYPE_CHECKING:
    subprocess = _Subprocess("pipewright.asyncio.subprocess")
    subprocess.Process = Process
    subprocess.create_subprocess_exec = create_subprocess_exec
    subprocess.create_subprocess_shell = create_subprocess_shell
else:
    subprocess = _std


def __getattr__(name: str) -> Any:
    """Returns a name of asyncio that is not among those of `import *`."""
    return getattr(_asyncio, name)
