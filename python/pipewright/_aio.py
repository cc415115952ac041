"""Commands in an event loop: one descriptor for each, no thread, no child watcher.

asyncio and loops with its interface (uvloop) are used directly, trio by `trio.lowlevel.wait_readable`; anyio runs on
one of them.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Optional

from pipewright import _options
from pipewright._pipewright import finish_lines, start_events, start_lines, start_output
from pipewright._run import Call, carry_output
from pipewright._stream import Event, Line, Run, call_of, line_of

if TYPE_CHECKING:
    from types import TracebackType

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
    try:
        loop = _asyncio_loop()
        ended = await (_in_asyncio(loop, running) if loop is not None else _in_steps(running))
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


async def _in_asyncio(loop: Any, running: native.Running) -> Any:
    done = loop.create_future()
    number = running.fileno()

    # The callback does the work: the task is woken once, at the end.
    def on_ready() -> None:
        if done.done():
            return
        try:
            ended = running.poll()
            if ended is None:
                running.fileno()
            else:
                done.set_result(ended)
        except Exception as error:
            done.set_exception(error)

    loop.add_reader(number, on_ready)
    try:
        return await done
    finally:
        loop.remove_reader(number)


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
    return await finish(start_output(call.native), call)


class _AsyncRun(Run):
    async def _next(self) -> Any:
        """Returns the next native item. If the wait is cancelled, nothing is lost: the next call continues."""
        while True:
            item = self._stream.poll()
            if item is not None:
                return item
            await wait_readable(self._stream.fileno())

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
            await self.finish()
            raise StopAsyncIteration
        return line_of(item)

    async def finish(self) -> CompletedProcess[Any]:
        """Reads and drops the rest, waits for the end, and returns the result. Raises as `run` does."""
        if self._result is None:
            while await self._next():
                pass
            self._finished(finish_lines(self._stream))
        assert self._result is not None
        return self._result


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
