"""Commands in an event loop: one descriptor for each, no thread that waits, no child watcher.

asyncio and loops with its interface (uvloop) are used directly, trio by `trio.lowlevel.wait_readable`; anyio runs on
one of them.
"""

from __future__ import annotations

import codecs
import errno
import math
import os
import sys
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Dict, Optional

from pipewright import _options
from pipewright._errors import Error
from pipewright._pipewright import prepare_output, start, start_registered, start_together
from pipewright._run import END_OF_KILLED, Call, carry_output
from pipewright._stream import Event, Line, Run, call_of, line_of, lines_of
from pipewright._text import to_bytes

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


def _later(loop: Any, seconds: float, call: Any) -> Any:
    """Calls the function after that time. asyncio makes a whole millisecond of any part of one."""
    return loop.call_soon(call) if seconds < 0.0001 else loop.call_later(seconds, call)


class _Wait:
    """A wait of one task for one descriptor. Another task may end it, before the descriptor is closed."""

    __slots__ = ("loop", "number", "ready", "writes")

    def __init__(self, number: int, writes: bool = False) -> None:
        self.number = number
        self.writes = writes
        self.loop = _asyncio_loop()
        self.ready: Any = None

    async def run(self, seconds: Optional[float] = None) -> None:
        """Waits until the descriptor can be read, or written, at most that long."""
        loop = self.loop
        if loop is None:
            trio = sys.modules.get("trio")
            if trio is None:
                raise RuntimeError("no event loop is running here")
            with trio.move_on_after(math.inf if seconds is None else seconds):
                try:
                    await (trio.lowlevel.wait_writable if self.writes else trio.lowlevel.wait_readable)(self.number)
                except trio.ClosedResourceError:
                    # Ended by `end`.
                    return
            return
        self.ready = loop.create_future()
        (loop.add_writer if self.writes else loop.add_reader)(self.number, self.on_ready)
        timer = None if seconds is None else _later(loop, seconds, self.on_ready)
        try:
            await self.ready
        finally:
            if self.number >= 0:
                self.leave(self.number)
            if timer is not None:
                timer.cancel()

    def on_ready(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)

    def end(self) -> None:
        """Ends the wait. The descriptor may be closed then."""
        number, self.number = self.number, -1
        if self.loop is None:
            sys.modules["trio"].lowlevel.notify_closing(number)
        else:
            self.leave(number)
            self.on_ready()

    def leave(self, number: int) -> None:
        (self.loop.remove_writer if self.writes else self.loop.remove_reader)(number)


async def _next_turn() -> None:
    """Lets the loop do something else. A cancellation acts here."""
    if _asyncio_loop() is not None:
        await sys.modules["asyncio"].sleep(0)
    else:
        await sys.modules["trio"].lowlevel.checkpoint()


async def finish(running: native.Run, call: Call) -> CompletedProcess[Any]:
    """Waits for the end. A cancelled wait ends the whole tree; the exception has the output so far."""
    loop = _asyncio_loop()
    if loop is not None:
        watch = _Watch(_Starts.of(loop), call)
        watch.begin(running)
        return await watch.finish()
    try:
        ended = await _in_steps(running)
        running.release()
    except BaseException as error:
        carry_output(error, call, running)
        raise
    return call.result(ended)


async def _in_steps(running: native.Run) -> Any:
    while True:
        ended = running.poll()
        if ended is not None:
            return ended
        number, seconds = running.register()
        await _Wait(number).run(seconds)


class _Watch:
    """A run in a loop of asyncio. Callbacks do the work: the task is woken once, at the end."""

    __slots__ = ("call", "done", "due", "loop", "number", "running", "starts", "timer")

    def __init__(self, starts: _Starts, call: Call) -> None:
        self.starts = starts
        self.loop = starts.loop
        self.call = call
        self.done = starts.loop.create_future()
        self.running: Optional[native.Run] = None
        self.number = -1
        self.timer: Any = None
        self.due = 0.0

    def begin(self, running: native.Run) -> None:
        try:
            number, seconds = running.register()
            self.loop.add_reader(number, self.on_ready)
        except BaseException:
            running.abandon()
            raise
        self.running, self.number = running, number
        self.starts.live += 1
        self.set_timer(seconds)

    def set_timer(self, seconds: Optional[float]) -> None:
        if self.timer is not None:
            if seconds is not None and -_EARLY < self.due - self.loop.time() - seconds <= _LATE:
                return
            self.timer.cancel()
            self.timer = None
        if seconds is not None:
            self.due = self.loop.time() + seconds
            self.timer = _later(self.loop, seconds, self.on_timer)

    def on_timer(self) -> None:
        self.timer = None
        self.on_ready()

    def on_ready(self) -> None:
        done, running = self.done, self.running
        if running is None or done.done():
            return
        try:
            ended = running.poll()
            if ended is None:
                self.set_timer(running.register()[1])
                return
        except Exception as error:
            self.stop_waiting()
            done.set_exception(error)
            return
        self.stop_waiting()
        running.release()
        self.running = None
        done.set_result(ended)

    def stop_waiting(self) -> None:
        """Leaves the loop, before the descriptor is closed."""
        if self.number >= 0:
            self.loop.remove_reader(self.number)
            self.number = -1
            self.starts.has_ended()
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    async def finish(self) -> CompletedProcess[Any]:
        try:
            ended = await self.done
        except BaseException as error:
            running = self.running
            if running is not None:
                if type(error).__name__ == "CancelledError":
                    await self.end(running)
                self.stop_waiting()
                carry_output(error, self.call, running, self.done)
            # The frames of a traceback keep what they refer to.
            self.running = running = None
            raise
        return self.call.result(ended)

    async def end(self, running: native.Run) -> None:
        """Kills the tree and waits a moment for its end, beside all others that end. Leaves the end in `done`."""
        try:
            running.kill()
        except (Error, RuntimeError):
            # It has become another user's, or this is a fork.
            return
        self.done = self.loop.create_future()
        limit = self.loop.call_later(END_OF_KILLED, self.done.cancel)
        self.loop.call_soon(self.on_ready)
        while not self.done.done():
            try:
                await self.done
            except Exception:
                break
            except BaseException as error:
                # Another cancellation, or the limit. The first one goes on anyway.
                if type(error).__name__ != "CancelledError":
                    raise
        limit.cancel()


#: A timer that is due so much earlier, or later, than it should be is not set again.
_EARLY, _LATE = 0.0005, 0.00002
_NO_ROOM = (errno.EMFILE, errno.ENFILE)


def _has_no_room(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _NO_ROOM


class _Starts:
    """The starts of a loop. The first of a turn is made at once; those after it together, some at a time.

    A start for which there is no descriptor waits while a run of this loop will give some back.
    """

    __slots__ = ("is_scheduled", "live", "loop", "most", "waiting")

    #: The most that are started before the loop does something else.
    MOST = 64
    #: By the identity of the loop, while anything runs or waits in it.
    all: ClassVar[Dict[int, _Starts]] = {}

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self.waiting: Deque[Tuple[_Watch, Optional[native.Prepared]]] = deque()
        #: The number of runs that the loop waits for.
        self.live = 0
        self.is_scheduled = False
        #: The most that are started together now.
        self.most = self.MOST

    @classmethod
    def of(cls, loop: Any) -> _Starts:
        starts = cls.all.get(id(loop))
        if starts is None or starts.loop is not loop:
            starts = cls.all[id(loop)] = cls(loop)
        return starts

    def has_ended(self) -> None:
        """Notes that a run has ended: what waits for its descriptors may start."""
        self.live -= 1
        if self.waiting:
            self.schedule()
        else:
            self.forget()

    def forget(self) -> None:
        if not (self.live or self.waiting or self.is_scheduled) and self.all.get(id(self.loop)) is self:
            del self.all[id(self.loop)]

    def schedule(self) -> None:
        if not self.is_scheduled:
            self.is_scheduled = True
            self.loop.call_soon(self.go_on)

    def start(self, watch: _Watch) -> None:
        """Starts the command, now or later."""
        try:
            if self.is_scheduled or self.waiting:
                self.waiting.append((watch, prepare_output(watch.call.native)))
            else:
                watch.begin(start_registered(watch.call.native))
        except OSError as error:
            if not self.may_wait(error):
                self.forget()
                raise
            self.waiting.append((watch, None))
            return
        except BaseException:
            self.forget()
            raise
        self.schedule()

    def may_wait(self, error: BaseException) -> bool:
        """Returns true if there is no descriptor, and some will be given back."""
        return self.live > 0 and _has_no_room(error)

    def go_on(self) -> None:
        self.is_scheduled = False
        now: List[Tuple[_Watch, native.Prepared]] = []
        while self.waiting and len(now) < self.most:
            watch, prepared = self.waiting.popleft()
            # It may have been cancelled.
            if watch.done.done():
                continue
            try:
                now.append((watch, prepared or prepare_output(watch.call.native)))
            except Exception as error:
                # Those before it may need it.
                if self.may_wait(error) or (now and _has_no_room(error)):
                    self.waiting.appendleft((watch, None))
                    break
                watch.done.set_exception(error)
        try:
            all_started = start_together([prepared for _, prepared in now]) if now else []
        except BaseException as error:
            for watch, _ in now:
                watch.done.set_exception(error)
            raise
        failed: List[Tuple[_Watch, native.Prepared, BaseException]] = []
        for (watch, prepared), started in zip(now, all_started):
            if isinstance(started, BaseException):
                failed.append((watch, prepared, started))
                continue
            try:
                watch.begin(started)
            except Exception as error:
                watch.done.set_exception(error)
        again: List[Tuple[_Watch, Optional[native.Prepared]]] = []
        for watch, prepared, failure in failed:
            # Also the first ones may lack what the others have, or all of them what one alone would have.
            if self.may_wait(failure) or (len(now) > 1 and _has_no_room(failure)):
                again.append((watch, prepared))
            else:
                watch.done.set_exception(failure)
        self.waiting.extendleft(reversed(again))
        self.most = 1 if again and not self.live else self.MOST
        if self.waiting and not (again and self.live):
            self.schedule()
        self.forget()


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
        return await finish(start_registered(call.native), call)
    starts = _Starts.of(loop)
    watch = _Watch(starts, call)
    starts.start(watch)
    return await watch.finish()


#: The most items that are given, or taken, between two turns of the loop.
_ITEMS_PER_TURN = 64


class AsyncInput:
    """The input of a command, in an event loop. One task at a time writes."""

    def __init__(self, number: int, call: Call) -> None:
        self._number = number
        self._call = call
        self._wait: Optional[_Wait] = None
        #: The encoder of text, which is fed once.
        self._encoder: Any = None
        self._writes = 0
        os.set_blocking(number, False)

    async def write(self, data: Any) -> None:
        """Writes all of it. Raises `BrokenPipeError` if nobody reads it. After a cancellation a part may be written."""
        if self._wait is not None:
            raise RuntimeError("another task writes this input already")
        self._writes += 1
        if self._writes % _ITEMS_PER_TURN == 0:
            # A command that is never slower than its input.
            await _next_turn()
        left = memoryview(self._encoded(data))
        while left or self._number < 0:
            if self._number < 0:
                raise ValueError("I/O operation on closed file")
            try:
                left = left[os.write(self._number, left) :]
            except BlockingIOError:
                self._wait = _Wait(self._number, writes=True)
                try:
                    await self._wait.run()
                finally:
                    self._wait = None

    def _encoded(self, data: Any) -> bytes:
        decoding = self._call.decoding
        if decoding is None or not isinstance(data, str):
            return to_bytes(data, decoding)
        if self._encoder is None:
            self._encoder = codecs.getincrementalencoder(decoding.encoding)(decoding.errors)
        encoded: bytes = self._encoder.encode(data)
        return encoded

    def close(self) -> None:
        """Ends the input. A task that writes to it fails."""
        number, self._number = self._number, -1
        if number >= 0:
            if self._wait is not None:
                self._wait.end()
            os.close(number)

    async def aclose(self) -> None:
        """Ends the input."""
        self.close()

    def __del__(self) -> None:
        self.close()


class _AsyncRun(Run):
    """A run whose next item a task waits for."""

    _is_waiting = False
    _is_closed = False
    _wait: Optional[_Wait] = None
    _items = 0

    def _input(self, number: int) -> AsyncInput:
        return AsyncInput(number, self._call)

    def __aiter__(self) -> Self:
        return self

    async def _next(self) -> Any:
        """Returns the next native item. If the wait is cancelled, nothing is lost: the next call continues."""
        if self._is_waiting:
            # A loop has one callback for each descriptor: the first task would never be woken.
            raise RuntimeError("another task waits for this run already")
        self._is_waiting = True
        try:
            self._items += 1
            if self._items >= _ITEMS_PER_TURN:
                # Output that never pauses.
                self._items = 0
                await _next_turn()
            while not self._is_closed:
                item = self._stream.poll()
                if item is not None:
                    return item
                self._items = 0
                number, seconds = self._stream.register()
                self._wait = _Wait(number)
                await self._wait.run(seconds)
                self._wait = None
            raise StopAsyncIteration
        finally:
            self._is_waiting, self._wait = False, None

    def close(self) -> None:
        """Ends the tree. Does nothing after the end. A task that waits for an item finds the end."""
        wait = self._wait
        if wait is not None and wait.loop is not _asyncio_loop():
            # Another thread: only the loop's may touch the wait.
            self.kill()
            wait.loop.call_soon_threadsafe(self.close)
            return
        if self._ending is None and self._result is None:
            self._is_closed = True
        if wait is not None:
            wait.end()
        super().close()

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

    async def __anext__(self) -> Line:
        item = await self._next()
        if not item:
            if self._ending is None:
                await self.finish()
            raise StopAsyncIteration
        return line_of(item)

    async def finish(self) -> CompletedProcess[Any]:
        """Reads and drops the rest, waits for the end, and returns the result. Raises as `run` does."""
        while self._ending is None and await self._next():
            pass
        ending = self._ending = self._ending or self._stream.finish()
        return self._finished(ending)


class AsyncEvents(_AsyncRun):
    """The events of a command for `async for`."""

    async def __anext__(self) -> Event:
        item = await self._next()
        if not item:
            raise StopAsyncIteration
        return self._event(item)


def lines_async(
    args: Args,
    *,
    input: Any = None,
    timeout: Optional[float] = None,
    check: bool = False,
    max_line: Optional[int] = None,
    **options: Unpack[Options],
) -> AsyncLines:
    """Starts a command and returns its lines for `async for`, like `lines`. With `stdin=PIPE`, its `stdin` has
    `await write(data)` and `close()`.

    >>> import asyncio, pipewright
    >>> async def main():
    ...     return [line async for line in pipewright.lines_async(["seq", "3"])]
    >>> asyncio.run(main())
    ['1', '2', '3']
    """
    call = call_of(args, input, timeout, check, max_line, dict(options))
    return AsyncLines(lines_of(call, partial(start, call.native)), call)


def events_async(
    args: Args, *, input: Any = None, timeout: Optional[float] = None, check: bool = False, **options: Unpack[Options]
) -> AsyncEvents:
    """Starts a command and returns its events for `async for`, like `events`. `stdin` as for `lines_async`.

    >>> import asyncio, pipewright
    >>> async def main():
    ...     return [event.kind async for event in pipewright.events_async(["echo", "hi"])]
    >>> asyncio.run(main())
    ['started', 'stdout', 'exited']
    """
    call = call_of(args, input, timeout, check, None, dict(options))
    return AsyncEvents(start(call.native, "events"), call)
