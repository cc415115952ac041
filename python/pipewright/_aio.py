"""Commands in an event loop: one descriptor for each, no thread that waits, no child watcher.

asyncio and loops with its interface (uvloop) are used directly, trio by `trio.lowlevel.wait_readable`; anyio runs on
one of them.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Optional

from pipewright import _options
from pipewright._pipewright import finish_lines, prepare_output, start_events, start_lines, start_output, start_together
from pipewright._run import Call, carry_output
from pipewright._stream import Event, Line, Run, call_of, line_of

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Deque, List, Tuple

    from typing_extensions import Self, Unpack

    from pipewright import _pipewright as native
    from pipewright._options import Args, Options
    from pipewright._result import CompletedProcess


def _asyncio_loop() -> Any:
    """Returns the running loop of asyncio, or `None` in trio."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def wait_readable(number: int) -> None:
    """Waits until a descriptor is readable, in the event loop that runs here."""
    loop = _asyncio_loop()
    if loop is None:
        trio = sys.modules.get("trio")
        if trio is None:
            raise RuntimeError("no event loop is running here")
        await trio.lowlevel.wait_readable(number)
        return
    ready = loop.create_future()

    def on_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(number, on_ready)
    try:
        await ready
    finally:
        loop.remove_reader(number)


async def finish(running: native.Running, call: Call) -> CompletedProcess[Any]:
    """Waits for the end. A cancelled wait ends the whole tree; the exception has the output so far."""
    loop = _asyncio_loop()
    if loop is not None:
        watch = _Watch(loop, call)
        watch.begin(running)
        return await watch.finish()
    try:
        ended = await _in_steps(running)
    except BaseException as error:
        carry_output(error, call, running)
        raise
    return call.result(ended)


async def _in_steps(running: native.Running) -> Any:
    while True:
        ended = running.poll()
        if ended is not None:
            return ended
        await wait_readable(running.fileno())


class _Watch:
    """A run in a loop of asyncio. Callbacks do the work: the task is woken once, at the end."""

    __slots__ = ("call", "done", "loop", "number", "running")

    def __init__(self, loop: Any, call: Call) -> None:
        self.loop = loop
        self.call = call
        self.done = loop.create_future()
        self.running: Optional[native.Running] = None
        self.number = -1

    def begin(self, running: native.Running) -> None:
        self.running = running
        self.number = running.fileno()
        self.loop.add_reader(self.number, self.on_ready)

    def on_ready(self) -> None:
        done, running = self.done, self.running
        if running is None or done.done():
            return
        try:
            ended = running.poll()
            if ended is None:
                running.fileno()
            else:
                done.set_result(ended)
        except Exception as error:
            done.set_exception(error)

    async def finish(self) -> CompletedProcess[Any]:
        try:
            ended = await self.done
        except BaseException as error:
            if self.running is not None:
                carry_output(error, self.call, self.running)
            raise
        finally:
            if self.number >= 0:
                self.loop.remove_reader(self.number)
        return self.call.result(ended)


class _Turn:
    """The starts of one turn of a loop. The first is made at once; those after it are made together, some at a time."""

    __slots__ = ("loop", "waiting")

    #: The most that are started before the loop does something else.
    MOST = 64

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.waiting: Deque[Tuple[_Watch, native.Prepared]] = deque()
        loop.call_soon(self.go_on)

    def go_on(self) -> None:
        global _turn
        now: List[Tuple[_Watch, native.Prepared]] = []
        while self.waiting and len(now) < self.MOST:
            watch, prepared = self.waiting.popleft()
            # It may have been cancelled.
            if not watch.done.done():
                now.append((watch, prepared))
        if not self.waiting:
            if _turn is self:
                _turn = None
        else:
            self.loop.call_soon(self.go_on)
        if not now:
            return
        for (watch, _), started in zip(now, start_together([prepared for _, prepared in now])):
            if isinstance(started, BaseException):
                watch.done.set_exception(started)
                continue
            try:
                watch.begin(started)
            except Exception as error:
                # No more descriptors: the task ends the tree.
                watch.done.set_exception(error)


#: The turn that goes on, of the loop that started something last.
_turn: Optional[_Turn] = None


async def run_async(
    *popenargs: Any,
    input: Any = None,
    capture_output: bool = False,
    timeout: Optional[float] = None,
    check: bool = False,
    **kwargs: Any,
) -> CompletedProcess[Any]:
    """Runs a command to its end in an event loop: `run` with the same arguments, results and exceptions.

    If the task is cancelled, the whole tree has ended when the cancellation goes on.

    >>> import asyncio, pipewright
    >>> async def main():
    ...     runs = [pipewright.run_async(["echo", str(n)], capture_output=True, text=True) for n in range(3)]
    ...     return [done.stdout for done in await asyncio.gather(*runs)]
    >>> asyncio.run(main())
    ['0\\n', '1\\n', '2\\n']
    """
    options = _options.by_name(popenargs, kwargs)
    call = Call(options, input, capture_output, timeout, check)
    loop = _asyncio_loop()
    if loop is None:
        return await finish(start_output(call.native), call)
    global _turn
    watch, turn = _Watch(loop, call), _turn
    if turn is None or turn.loop is not loop:
        watch.begin(start_output(call.native))
        _turn = _Turn(loop)
    else:
        turn.waiting.append((watch, prepare_output(call.native)))
    return await watch.finish()


class _AsyncRun(Run):
    _is_waiting = False

    async def _next(self) -> Any:
        """Returns the next native item. If the wait is cancelled, nothing is lost: the next call continues."""
        if self._is_waiting:
            # A loop has one callback for each descriptor: the first task would never be woken.
            raise RuntimeError("another task waits for this run already")
        self._is_waiting = True
        try:
            while True:
                item = self._stream.poll()
                if item is not None:
                    return item
                await wait_readable(self._stream.fileno())
        finally:
            self._is_waiting = False

    async def aclose(self) -> None:
        """Ends the tree. Does nothing after the end."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()


class AsyncLines(_AsyncRun):
    """The lines of a command for `async for`."""

    _stream: native.Lines

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Line:
        item = await self._next()
        if not item:
            if self._ending is None:
                await self.finish()
            raise StopAsyncIteration
        return line_of(item)

    async def finish(self) -> CompletedProcess[Any]:
        """Reads and drops the rest, waits for the end, and returns the result. Raises as `run` does."""
        if self._ending is None:
            while await self._next():
                pass
            self._ending = finish_lines(self._stream)
        return self._finished(self._ending)


class AsyncEvents(_AsyncRun):
    """The events of a command for `async for`."""

    _stream: native.Events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        item = await self._next()
        if not item:
            raise StopAsyncIteration
        kind, value = item
        return Event(kind, self._finished(value) if kind == "exited" else value)


def lines_async(
    args: Args,
    *,
    input: Any = None,
    timeout: Optional[float] = None,
    check: bool = False,
    max_line: Optional[int] = None,
    **options: Unpack[Options],
) -> AsyncLines:
    """Starts a command and returns its lines for `async for`, like `lines`.

    >>> import asyncio, pipewright
    >>> async def main():
    ...     return [line async for line in pipewright.lines_async(["seq", "3"])]
    >>> asyncio.run(main())
    ['1', '2', '3']
    """
    call = call_of(args, input, timeout, check, max_line, dict(options))
    return AsyncLines(start_lines(call.native), call)


def events_async(
    args: Args, *, input: Any = None, timeout: Optional[float] = None, check: bool = False, **options: Unpack[Options]
) -> AsyncEvents:
    """Starts a command and returns its events for `async for`, like `events`.

    >>> import asyncio, pipewright
    >>> async def main():
    ...     return [event.kind async for event in pipewright.events_async(["echo", "hi"])]
    >>> asyncio.run(main())
    ['started', 'stdout', 'exited']
    """
    call = call_of(args, input, timeout, check, None, dict(options))
    return AsyncEvents(start_events(call.native), call)
