"""A started command: `subprocess.Popen`, whose kill reaches the whole tree."""

from __future__ import annotations

import contextlib
import signal as _signal
import sys
import warnings
from _thread import allocate_lock

from pipewright import _options, _text
from pipewright._constants import PIPE
from pipewright._errors import TimeoutExpired
from pipewright._files import InputFile, PipeFile, TerminalIO, close_all, file_over, raw_of, sized_pipes
from pipewright._pipewright import spawn
from pipewright._std import std as _std

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import IO, Any, AnyStr, Dict, List, Literal, Optional, Tuple, overload

    from typing_extensions import Unpack

    from pipewright._options import Args, Options
    from pipewright._pipewright import Child, Communication

else:
    # Any value will do. An import of typing would take a millisecond.
    AnyStr = None


_NAMES = frozenset(
    [
        *_options.POSITIONAL,
        *("user", "group", "extra_groups", "encoding", "errors", "text", "umask", "pipesize", "process_group"),
        *("tree", "kill_on_parent_exit", "limits", "pty", "nice", "rlimits"),
    ]
)

_STREAMS: Tuple[str, ...] = ("stdin", "stdout", "stderr")

#: Children that still ran when their `Popen` was dropped, so that they and their trees go on, as in `subprocess`.
_active: List[Child] = []


def _forget_ended() -> None:
    for child in _active[:]:
        try:
            ended = child.poll() is not None
        except Exception:
            # It belongs to another process: this one is a fork.
            ended = True
        if ended:
            try:
                _active.remove(child)
            except ValueError:
                # Another thread was faster.
                continue


class Popen(_std.Popen[AnyStr]):
    """A started command, with the arguments, attributes and methods of `subprocess.Popen`, and more.

    `kill` and the end of a `with` block reach everything that the command started (`tree=False`: what can be found).

    >>> import pipewright
    >>> with pipewright.Popen(["cat"], stdin=pipewright.PIPE, stdout=pipewright.PIPE, text=True) as cat:
    ...     out, err = cat.communicate("hi")
    >>> out, cat.returncode
    ('hi', 0)
    """

    args: Any
    stdin: Optional[IO[AnyStr]]
    stdout: Optional[IO[AnyStr]]
    stderr: Optional[IO[AnyStr]]
    pid: int
    returncode: Any
    #: True if something still held a stream open when `communicate` returned. Later output is lost.
    held_open: bool

    _child: Optional[Child] = None

    if TYPE_CHECKING:

        @overload
        def __init__(
            self: Popen[str],
            args: Args,
            *,
            text: Literal[True],
            encoding: Optional[str] = None,
            errors: Optional[str] = None,
            universal_newlines: Optional[bool] = None,
            **options: Unpack[Options],
        ) -> None: ...
        @overload
        def __init__(
            self: Popen[str],
            args: Args,
            *,
            encoding: str,
            text: Optional[bool] = None,
            errors: Optional[str] = None,
            universal_newlines: Optional[bool] = None,
            **options: Unpack[Options],
        ) -> None: ...
        @overload
        def __init__(
            self: Popen[str],
            args: Args,
            *,
            universal_newlines: Literal[True],
            text: Optional[bool] = None,
            encoding: Optional[str] = None,
            errors: Optional[str] = None,
            **options: Unpack[Options],
        ) -> None: ...
        @overload
        def __init__(
            self: Popen[bytes],
            args: Args,
            *,
            text: Literal[False, None] = None,
            encoding: None = None,
            errors: None = None,
            universal_newlines: Literal[False, None] = None,
            **options: Unpack[Options],
        ) -> None: ...
        @overload
        def __init__(self: Popen[Any], *popenargs: Any, **options: Any) -> None: ...

    def __init__(self, *popenargs: Any, **kwargs: Any) -> None:
        _forget_ended()
        options = _options.by_name(popenargs, kwargs)
        for name in options:
            if name not in _NAMES:
                raise TypeError(f"Popen.__init__() got an unexpected keyword argument {name!r}")
        bufsize = options.pop("bufsize", -1)
        bufsize = -1 if bufsize is None else bufsize
        if not isinstance(bufsize, int):
            raise TypeError("bufsize must be an integer")
        pipesize = options.pop("pipesize", -1)
        if not isinstance(pipesize, int):
            raise TypeError("pipesize must be an integer")
        self.args = options["args"]
        self.returncode = None
        self.stdin = self.stdout = self.stderr = None
        self.encoding = options.get("encoding")
        self.errors = options.get("errors")
        self.pipesize = pipesize
        self.held_open = False
        self._communicating = allocate_lock()
        self.text_mode = any(options.get(it) for it in ("encoding", "errors", "text", "universal_newlines"))
        decoding = _text.take(options)
        if decoding is not None and self.encoding is None and sys.version_info >= (3, 11):
            self.encoding = decoding.encoding
        has_pty = bool(options.get("pty"))
        self._communication: Optional[Communication] = None
        #: Both streams, once `communicate` has ended.
        self._output: Optional[Tuple[Any, Any]] = None
        self._read_ahead: List[bytes] = [b"", b""]
        native = _options.native(options)
        pipes: List[Tuple[str, int, int]] = []
        if pipesize > 0 and not has_pty:
            names = [name for name in _STREAMS if native[name] == PIPE]
            pipes = sized_pipes(names, pipesize)
            native.update((name, theirs) for name, theirs, _ in pipes)
        try:
            child = spawn(native)
        except BaseException:
            close_all([ours for _, _, ours in pipes])
            raise
        finally:
            close_all([theirs for _, theirs, _ in pipes])
        self._child, self.pid = child, child.pid
        numbers: Dict[str, Optional[int]] = dict(zip(_STREAMS, child.take_streams()))
        numbers.update((name, ours) for name, _, ours in pipes)
        self._open(child, numbers, bufsize, decoding, has_pty)

    def _open(
        self,
        child: Child,
        numbers: Dict[str, Optional[int]],
        bufsize: int,
        decoding: Optional[_text.Decoding],
        pty: bool,
    ) -> None:
        line_buffering = decoding is not None and bufsize == 1
        if line_buffering:
            bufsize = -1
        elif bufsize == 1:
            warnings.warn(
                "line buffering (buffering=1) isn't supported in binary mode, the default buffer size will be used",
                RuntimeWarning,
                stacklevel=4,
            )
            bufsize = -1
        streams: Dict[str, Any] = {}
        try:
            for name in _STREAMS:
                number = numbers[name]
                if number is not None:
                    streams[name] = self._file(number, name, bufsize, line_buffering, decoding, pty)
        except BaseException:
            child.kill()
            child.wait()
            child.close()
            for name, number in numbers.items():
                if name in streams:
                    streams[name].close()
                elif number is not None:
                    with contextlib.suppress(OSError):
                        # A file that could not be made may have closed it.
                        close_all([number])
            raise
        self.stdin, self.stdout, self.stderr = map(streams.get, _STREAMS)

    def _file(
        self,
        number: int,
        name: str,
        bufsize: int,
        line_buffering: bool,
        decoding: Optional[_text.Decoding],
        pty: bool,
    ) -> Any:
        writes = name == "stdin"
        kind = InputFile if writes else PipeFile
        raw: Any = TerminalIO(number, writes) if pty else kind(number, "wb" if writes else "rb")
        text = None if decoding is None else (self.encoding, self.errors)
        return file_over(raw, bufsize or -int(pty), text, writes and line_buffering)

    @property
    def containment(self) -> str:
        """The mechanism that contains the tree: `cgroup`, `supervisor`, `group` or `none`."""
        return "none" if self._child is None else self._child.containment

    @property
    def usage(self) -> Optional[Dict[str, Any]]:
        """The CPU time in seconds (`user`, `system`) and `peak_rss_bytes`, once the command has ended."""
        return None if self._child is None else self._child.usage()

    def __enter__(self) -> Popen[AnyStr]:
        return self

    def __exit__(
        self,
        exc_type: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self.stdout:
            self.stdout.close()
        if self.stderr:
            self.stderr.close()
        try:
            if self.stdin:
                self.stdin.close()
        finally:
            if self._communication is not None:
                # After an error of it or a time limit, its ends are others than those of the files.
                self._communication.close()
            if exc_type is KeyboardInterrupt:
                self.kill()
            self.wait()
            self.close()

    def close(self) -> None:
        """Ends the tree of a command that has ended: what it left behind is killed."""
        if self._child is not None and self.poll() is not None:
            self._child.close()

    def __del__(self, _active: List[Child] = _active, _warn: Any = warnings.warn) -> None:
        child = self._child
        if child is None:
            return
        if self.returncode is None:
            try:
                code = child.poll()
            except Exception:
                # A fork of the interpreter: the child belongs to the other process.
                return
            if code is None:
                _warn(f"subprocess {self.pid} is still running", ResourceWarning, source=self)
                # The tree goes on, and is not killed with this object.
                _active.append(child)

    def poll(self) -> Optional[int]:
        """Returns the exit code, or `None` while the command runs."""
        if self.returncode is None and self._child is not None:
            self.returncode = self._child.poll()
        code: Optional[int] = self.returncode
        return code

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the end. The streams are not read meanwhile."""
        if self.returncode is None and self._child is not None:
            code = self._child.wait(timeout)
            if code is None:
                raise TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = code
        code = self.returncode
        return -1 if code is None else code

    def communicate(self, input: Any = None, timeout: Optional[float] = None) -> Tuple[Any, Any]:
        """Feeds the input, reads both streams and waits for the end. After a `TimeoutExpired` it can be called again.

        Returns once the command has ended and no more output arrives: something that it left behind and that holds a
        stream open is not waited for.
        """
        if not self._communicating.acquire(blocking=False):
            raise RuntimeError("another thread is in communicate() of this child")
        try:
            return self._communicate(input, timeout)
        finally:
            self._communicating.release()

    def _communicate(self, input: Any, timeout: Optional[float]) -> Tuple[Any, Any]:
        if self._communication is not None and input:
            raise ValueError("Cannot send input after starting communication")
        assert self._child is not None
        if self._communication is None:
            self._communication = self._begin(input)
        try:
            done = self._communication.run(timeout)
        except KeyboardInterrupt:
            # As in subprocess: the command has got the signal too, and has a moment to end.
            self._child.wait(0.25)
            raise
        if not done:
            stdout, stderr = self._communication.so_far()
            so_far = [
                None if stream is None else before + data or None
                for stream, before, data in zip((self.stdout, self.stderr), self._read_ahead, (stdout, stderr))
            ]
            raise TimeoutExpired(self.args, timeout or 0.0, *so_far)
        self.returncode = self.wait()
        self._child.release()
        self.held_open = self._communication.held_open
        if self._output is None:
            result: List[Any] = []
            both = zip((self.stdout, self.stderr), self._read_ahead, self._communication.finish())
            for stream, before, data in both:
                result.append(None if stream is None else self._joined(before, data, stream))
                if stream is not None:
                    stream.close()
            self._output = result[0], result[1]
        return self._output

    def _begin(self, input: Any) -> Communication:
        data = b""
        if self.stdin is not None and not self.stdin.closed:
            stdin: Any = self.stdin
            try:
                stdin.flush()
            except BrokenPipeError:
                # The command does not read its input.
                input = None
            if input:
                data = self._encoded(input, stdin)
        elif input and self.stdin is not None:
            raise ValueError("I/O operation on closed file")
        numbers: List[Optional[int]] = []
        for stream in (self.stdout, self.stderr):
            numbers.append(None if stream is None or stream.closed else stream.fileno())
        stdin_number = self.stdin.fileno() if self.stdin is not None and not self.stdin.closed else None
        assert self._child is not None
        communication = self._child.communicate(stdin_number, data, numbers[0], numbers[1])
        for index, stream in enumerate((self.stdout, self.stderr)):
            raw = None if stream is None or stream.closed else raw_of(stream)
            if stream is not None and raw is not None:
                # From here on they are at their end.
                raw.rest = memoryview(b"")
                if raw.is_used and not self.text_mode:
                    ahead: Any = stream.read()
                    self._read_ahead[index] = ahead
        if self.stdin is not None:
            # Fails if the command has ended and text is left to be written.
            try:  # noqa: SIM105 - contextlib would be imported for this.
                self.stdin.close()
            except BrokenPipeError:
                pass
        return communication

    def _encoded(self, input: Any, stdin: Any) -> bytes:
        raw = raw_of(stdin)
        if not self.text_mode or raw is None or not raw.is_used:
            return _text.to_bytes(input, _text.Decoding(stdin.encoding, stdin.errors) if self.text_mode else None)
        # One encoder: a mark at the start of the input is not written twice.
        raw.kept = []
        stdin.write(input)
        stdin.flush()
        kept, raw.kept = raw.kept, None
        return b"".join(kept)

    def _joined(self, before: bytes, data: bytes, stream: Any) -> Any:
        """Joins what the file object had read ahead, and the rest of the stream."""
        if not self.text_mode:
            # No copy of a large output.
            return before + data if before else data
        raw = raw_of(stream)
        if raw is not None and raw.is_used and not stream.closed:
            # The decoder of the file object goes on where it was.
            raw.rest = memoryview(data)
            return stream.read()
        return _text.Decoding(stream.encoding, stream.errors).decode(data)

    def send_signal(self, sig: int) -> None:
        """Sends a signal to the command alone. Signal 0 does nothing, as `poll` tells if the command runs."""
        if self.poll() is None and self._child is not None and sig:
            self._child.signal(int(sig))

    def terminate(self) -> None:
        """Sends SIGTERM to the command alone. `stop` reaches its tree."""
        self.send_signal(_signal.SIGTERM)

    def kill(self) -> None:
        """Kills the command and everything that it started."""
        if self._child is not None and (self.poll() is None or self._child.containment != "none"):
            self._child.kill()

    def stop(self, grace: float = 5.0, sig: int = _signal.SIGTERM) -> int:
        """Sends the whole tree a signal, kills what is left after the grace, and returns the exit code."""
        if self.returncode is None and self._child is not None:
            self.returncode = self._child.stop(int(sig), grace)
        return -1 if self.returncode is None else int(self.returncode)

    def resize(self, rows: int, columns: int) -> None:
        """Sets the size of the command's terminal (`pty`)."""
        if self._child is not None:
            self._child.resize(rows, columns)
