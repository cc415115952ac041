"""Lines and events of a command, as they arrive."""

from __future__ import annotations

from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional

from pipewright._constants import PIPE
from pipewright._files import InputFile, file_over
from pipewright._pipewright import start
from pipewright._result import CompletedProcess
from pipewright._run import Call

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal

    from typing_extensions import Self, Unpack

    from pipewright import _pipewright as native
    from pipewright._options import Args, Options


class Line(str):
    """A line without its end, and the stream that it came from."""

    __slots__ = ("source", "truncated")

    #: `stdout` or `stderr`.
    source: str
    #: True if the line was longer than `max_line`, and this is its start.
    truncated: bool


class Event(NamedTuple):
    """An event of a command: what has happened, and the value that belongs to it."""

    #: `started`, `stdout`, `stderr` or `exited`.
    kind: str
    #: Of `started` the process id (an `int`); of `stdout` and `stderr` the new bytes, or the new text with `text` or an
    #: `encoding`, which may end in the middle of a line; of `exited`, the last event, the `CompletedProcess` with all
    #: facts and without output.
    value: Any


def lines_of(call: Call, begin: Callable[[Literal["lines", "events"]], native.Run]) -> Any:
    """Starts what lines are read of, in the encoding of the call."""
    if call.decoding is None or (call.decoding.is_utf_8() and call.decoding.errors == "replace"):
        return begin("lines")
    from pipewright._decoded import DecodedLines

    longest = call.native.pop("max_line", None)
    return DecodedLines(begin("events"), longest, call.decoding)


def line_of(item: Any) -> Line:
    """Makes a line from the native item."""
    is_stderr, text, truncated = item
    line = Line(text)
    line.source = "stderr" if is_stderr else "stdout"
    line.truncated = truncated
    return line


class Run:
    """A command whose output is read while it runs. Leaving a `with` block, or the last reference, ends its tree."""

    #: The command's input, if that is a pipe (`stdin=PIPE`).
    stdin: Any = None

    def __init__(self, stream: Any, call: Call) -> None:
        self._stream = stream
        self._call = call
        self._decoder: Any = None
        self._ending: Optional[native.Ending] = None
        self._result: Optional[CompletedProcess[Any]] = None
        self._closed = False
        number = stream.take_stdin()
        if number is not None:
            self.stdin = self._input(number)

    def _input(self, number: int) -> Any:
        """Makes the file object of the input: it takes text if the output is told to be some, as in `subprocess`."""
        decoding, size = self._call.decoding, self._call.bufsize
        by_line = decoding is not None and size == 1
        text = None if decoding is None else (decoding.encoding, decoding.errors)
        return file_over(InputFile(number, "wb"), -1 if by_line else size, text, by_line)

    @property
    def pid(self) -> int:
        """The process id; of a pipeline, that of the first stage."""
        pid: int = self._stream.pid
        return pid

    @property
    def containment(self) -> str:
        """The mechanism that contains the tree."""
        return str(self._stream.containment)

    def kill(self) -> None:
        """Kills the command and everything that it started."""
        self._stream.kill()

    def send_signal(self, sig: int) -> None:
        """Sends a signal to the command alone. Signal 0 does nothing."""
        if sig:
            self._stream.signal(int(sig))

    def close(self) -> None:
        """Ends the tree, and with it an iteration. Does nothing after the end."""
        self._closed = True
        self._stream.abandon()
        if self.stdin is not None:
            try:  # noqa: SIM105 - contextlib would be imported for this.
                self.stdin.close()
            except BrokenPipeError:
                # Something is left to be written, and nobody reads it.
                pass

    def _finished(self, ending: native.Ending) -> CompletedProcess[Any]:
        """Returns the result, or raises, as often as it is called."""
        if self._result is None:
            result = self._call.result((ending, b"", b""))
            result.stdout = result.stderr = None
            self._result = result
        return self._result

    def _event(self, item: Any) -> Event:
        """Makes an event of the native item. A text of no whole character is empty."""
        kind, value = item
        if kind == "exited":
            return Event(kind, self._finished(value))
        if self._call.decoding is not None and kind != "started":
            from pipewright._decoded import Decoder

            self._decoder = self._decoder or Decoder(self._call.decoding)
            value = self._decoder.feed(kind, value)
        return Event(kind, value)


class _BlockingRun(Run):
    """A run whose next item a thread waits for."""

    def __iter__(self) -> Self:
        return self

    def _next(self) -> Any:
        if self._closed:
            raise StopIteration
        try:
            return self._stream.wait()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()


class Lines(_BlockingRun):
    """An iterator over the lines of both streams as they arrive."""

    def __init__(self, stream: Any, call: Call) -> None:
        super().__init__(stream, call)
        self._finishing = RLock()

    def __next__(self) -> Line:
        item = self._next()
        if not item:
            if self._ending is None:
                self.finish()
            raise StopIteration
        return line_of(item)

    def finish(self) -> CompletedProcess[Any]:
        """Reads and drops the rest, waits for the end, and returns the result. Raises as `run`. Close `stdin` first."""
        # Several threads may share the lines.
        with self._finishing:
            ending = self._ending = self._ending or self._stream.finish()
        return self._finished(ending)


class Events(_BlockingRun):
    """An iterator over the events of a command as they happen."""

    def __next__(self) -> Event:
        item = self._next()
        if not item:
            raise StopIteration
        return self._event(item)


def call_of(
    args: Any, input: Any, timeout: Optional[float], check: bool, max_line: Optional[int], options: Dict[str, Any]
) -> Call:
    """Makes the call of a stream: both streams are captured unless they are set."""
    options["args"] = args
    is_fed = input is None and options.get("stdin") == PIPE
    for name in ("stdout", "stderr"):
        options.setdefault(name, PIPE)
    call = Call(options, input, timeout=timeout, check=check)
    if is_fed:
        # By the caller, through the stream object.
        del call.native["input"]
        call.native["stdin"] = PIPE
    if max_line is not None:
        call.native["max_line"] = max_line
    return call


def lines(
    args: Args,
    *,
    input: Any = None,
    timeout: Optional[float] = None,
    check: bool = False,
    max_line: Optional[int] = None,
    **options: Unpack[Options],
) -> Lines:
    """Starts a command and returns its lines as they arrive, of both streams, decoded as UTF-8.

    A time limit is an exception after the last line; `check` makes a failure one. A command that writes faster than its
    lines are taken blocks. With `stdin=PIPE`, `stdin` of the result is the file object of its input.

    >>> import pipewright
    >>> for line in pipewright.lines("echo out; echo err >&2", shell=True):
    ...     print(line.source, line)
    stdout out
    stderr err
    """
    call = call_of(args, input, timeout, check, max_line, dict(options))
    return Lines(lines_of(call, partial(start, call.native)), call)


def events(
    args: Args, *, input: Any = None, timeout: Optional[float] = None, check: bool = False, **options: Unpack[Options]
) -> Events:
    """Starts a command and returns its events: the start, bytes of either stream, the end. `stdin` as for `lines`.

    >>> import pipewright
    >>> [event.kind for event in pipewright.events(["echo", "hi"])]
    ['started', 'stdout', 'exited']
    """
    call = call_of(args, input, timeout, check, None, dict(options))
    return Events(start(call.native, "events"), call)


__all__: List[str] = ["Event", "Events", "Line", "Lines", "events", "lines"]
