"""Functions that run a command to its end: the shape of `subprocess`."""

from __future__ import annotations

import _thread
import sys

from pipewright import _options, _text
from pipewright._constants import DEVNULL, INHERIT, PIPE, STDOUT, TEE
from pipewright._errors import CalledProcessError, Error, TimeoutExpired
from pipewright._patched import call as call_by
from pipewright._patched import other_popen
from pipewright._patched import run as run_by
from pipewright._pipewright import start
from pipewright._result import CompletedProcess
from pipewright._std import std as _std

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Literal, Optional, Tuple, Union, overload

    from typing_extensions import Buffer, Unpack

    from pipewright._options import Args, Options
    from pipewright._pipewright import Ending

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "TEE",
    "call",
    "check_call",
    "check_output",
    "getoutput",
    "getstatusoutput",
    "run",
]

#: Where a test may have put another `Popen`.
_module = sys.modules["pipewright"].__dict__
_CAPTURED = (PIPE, TEE)
#: A stream that is not set, with a `pty`.
_TERMINAL = -6
#: The seconds that a killed tree gets to end before its output so far is taken.
END_OF_KILLED = 0.25
# Not "killed at once after a stop signal": `subprocess` sends SIGKILL when the time is up.
_NO_GRACE = 0.0


class Call:
    """A call, with its arguments checked and converted."""

    __slots__ = ("args", "bufsize", "captures", "check", "decoding", "native", "timeout")

    def __init__(
        self,
        options: Dict[str, Any],
        input: Any = None,
        capture_output: bool = False,
        timeout: Optional[float] = None,
        check: bool = False,
    ) -> None:
        if input is not None:
            if options.get("stdin") is not None:
                raise ValueError("stdin and input arguments may not both be used.")
            options["stdin"] = PIPE
        if capture_output:
            if options.get("stdout") is not None or options.get("stderr") is not None:
                raise ValueError("stdout and stderr arguments may not be used with capture_output.")
            options["stdout"] = options["stderr"] = PIPE
        self.args = options["args"]
        self.bufsize = -1
        self.decoding = None
        if len(options) > 1:
            bufsize = options.pop("bufsize", -1)
            if bufsize is not None and not isinstance(bufsize, int):
                raise TypeError("bufsize must be an integer")
            self.bufsize = -1 if bufsize is None else bufsize
            options.pop("pipesize", None)
            self.decoding = _text.take(options)
        native = _options.native(options)
        if native["stdin"] == PIPE:
            native["stdin"] = INHERIT
            native["input"] = b"" if not input else _text.to_bytes(input, self.decoding)
        # The output of a terminal is stdout, or stderr where only that is the terminal.
        stdout = native["stdout"] in _CAPTURED or native["stdout"] == _TERMINAL
        stderr = native["stderr"] in _CAPTURED or (native["stderr"] == _TERMINAL and not stdout)
        self.captures = (stdout, stderr)
        native.setdefault("kill_grace", _NO_GRACE)
        if timeout is not None:
            native["timeout"] = timeout
        self.native = native
        self.timeout = timeout
        self.check = check

    def stream(self, index: int, data: bytes) -> Any:
        """Converts a captured stream."""
        if not self.captures[index]:
            return None
        return data if self.decoding is None else self.decoding.decode(data)

    def part(self, index: int, data: bytes, total: Optional[int]) -> Any:
        """Converts a captured stream, of which `max_output` may have dropped a part."""
        rule = self.native["limit"][0] if "limit" in self.native else None
        # The ends that `keep` keeps are whole characters, and between them is a line of ours.
        if self.decoding is None or total is None or total <= len(data) or not self.captures[index] or rule == "keep":
            return self.stream(index, data)
        is_tail = rule == "tail"
        return self.decoding.decode_part(data, total - len(data) if is_tail else 0)

    def result(self, ended: Tuple[Ending, bytes, bytes]) -> CompletedProcess[Any]:
        """Makes the result, or raises."""
        ending, stdout, stderr = ended
        if ending.outcome in ("timed_out", "idle_timed_out"):
            limit = ending.exceeded if self.timeout is None or ending.outcome != "timed_out" else self.timeout
            error = TimeoutExpired(self.args, limit or 0.0)
            error.output = stdout or None if self.captures[0] else None
            error.stderr = stderr or None if self.captures[1] else None
            error.ending = ending
            raise error
        done: CompletedProcess[Any] = CompletedProcess(
            self.args,
            ending.returncode,
            self.part(0, stdout, ending.stdout_bytes),
            self.part(1, stderr, ending.stderr_bytes),
        )
        done.ending = ending
        if self.check:
            done.check_returncode()
        return done

    def run(self) -> CompletedProcess[Any]:
        """Runs the command to its end on this thread."""
        return self.run_started(lambda started: start(self.native, "output", started))

    def run_started(self, begin: Callable[[List[Any]], Any]) -> CompletedProcess[Any]:
        """Starts it, and waits for the end on this thread."""
        started: List[Any] = []
        try:
            begin(started)
            ended = started[0].wait()
        except BaseException as error:
            # A KeyboardInterrupt, or the exception of another signal handler, also just after the start: the whole tree
            # ends.
            if started:
                carry_output(error, self, started[0])
            raise
        return self.result(ended)


def carry_output(error: BaseException, call: Call, running: Any, ended: Any = None) -> None:
    """Ends the tree of a run that an exception interrupts, and gives the exception the output so far.

    With `ended`, the tree has been killed already, and that future may have the end.
    """
    output: Any = None
    with_end: Any = None
    try:
        if ended is None:
            with_end = end_of_killed(running)
        else:
            has_end = ended.done() and not ended.cancelled() and ended.exception() is None
            with_end = ended.result() if has_end else None
        output = running.so_far() if with_end is None else with_end[1:]
    except Exception:
        # In a fork of this process, after a defect, or without memory for the output: the first error is told.
        pass
    if ended is not None and with_end is None:
        # It takes the time that processes take to end, and the loop has other tasks.
        _thread.start_new_thread(_abandon, (running,))
    else:
        _abandon(running)
    if output is None:
        return
    try:
        error.stdout = output[0] if call.captures[0] else None  # type: ignore[attr-defined]
        error.stderr = output[1] if call.captures[1] else None  # type: ignore[attr-defined]
    except AttributeError:
        # An exception without attributes of its own.
        return


def _abandon(running: Any) -> None:
    try:
        running.abandon()
    except (Error, RuntimeError):
        # In a fork of this process.
        return


def end_of_killed(running: Any) -> Any:
    """Kills the tree. Returns its end, if that takes a moment only: a process that survives is not waited for."""
    try:
        running.kill()
    except Error:
        # A process that has changed its user.
        return None
    # What was written before the kill is read.
    return running.wait(END_OF_KILLED)


if TYPE_CHECKING:

    @overload
    def run(
        args: Args,
        *,
        text: Literal[True],
        input: Optional[str] = None,
        capture_output: bool = False,
        timeout: Optional[float] = None,
        check: bool = False,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        universal_newlines: Optional[bool] = None,
        **options: Unpack[Options],
    ) -> CompletedProcess[str]: ...
    @overload
    def run(
        args: Args,
        *,
        encoding: str,
        text: Optional[bool] = None,
        input: Optional[str] = None,
        capture_output: bool = False,
        timeout: Optional[float] = None,
        check: bool = False,
        errors: Optional[str] = None,
        universal_newlines: Optional[bool] = None,
        **options: Unpack[Options],
    ) -> CompletedProcess[str]: ...
    @overload
    def run(
        args: Args,
        *,
        universal_newlines: Literal[True],
        text: Optional[bool] = None,
        input: Optional[str] = None,
        capture_output: bool = False,
        timeout: Optional[float] = None,
        check: bool = False,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        **options: Unpack[Options],
    ) -> CompletedProcess[str]: ...
    @overload
    def run(
        args: Args,
        *,
        text: Literal[False, None] = None,
        encoding: None = None,
        errors: None = None,
        universal_newlines: Literal[False, None] = None,
        input: Optional[Buffer] = None,
        capture_output: bool = False,
        timeout: Optional[float] = None,
        check: bool = False,
        **options: Unpack[Options],
    ) -> CompletedProcess[bytes]: ...
    @overload
    def run(
        args: Args,
        *popenargs: Any,
        input: Union[str, Buffer, None] = None,
        capture_output: bool = False,
        timeout: Optional[float] = None,
        check: bool = False,
        text: Optional[bool] = None,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        universal_newlines: Optional[bool] = None,
        **options: Unpack[Options],
    ) -> CompletedProcess[Any]: ...


def run(
    *popenargs: Any,
    input: Any = None,
    capture_output: bool = False,
    timeout: Optional[float] = None,
    check: bool = False,
    **kwargs: Any,
) -> CompletedProcess[Any]:
    """Runs a command to its end, as `subprocess.run` does, with the same arguments and these:

    * `tree` (default: true): when the call returns or is interrupted, no process that the command started is left.
    * `kill_on_parent_exit`: the tree ends with this process too, even if it is killed. `"child"`: only the command.
    * `limits`: of the whole tree: `memory`, `swap` (bytes), `cpus`, `pids`, `oom_group`, `best_effort`.
    * `pty`: a terminal of its own, `True` or `(rows, columns)`. Its output is `stdout`, or `stderr` if only that is it.
    * `idle_timeout`, `kill_grace` (default: 0), `stop_signal`: when and how the command is stopped.
    * `max_output`: `("head" | "tail" | "fail", bytes)` for each stream; `("keep", head, tail)`, with a line about what
      is left out; with a folder as fourth value, all of it is in a file there (`stdout_file`, `stderr_file`).
    * `linger`: how long a stream is read that something holds open: `(quiet, cap)` in seconds, `"eof"`, `"exit"`.
    * `nice`, `rlimits`: `{"nofile": (soft, hard)}`.

    >>> import pipewright
    >>> pipewright.run(["tr", "a-z", "A-Z"], input="hi", text=True, capture_output=True).stdout
    'HI'
    """
    options = _options.by_name(popenargs, kwargs)
    if _module.get("Popen") is not None and other_popen() is not None:
        return run_by(other_popen(), options, input, capture_output, timeout, check)
    return Call(options, input, capture_output, timeout, check).run()


def call(*popenargs: Any, timeout: Optional[float] = None, **kwargs: Any) -> int:
    """Runs a command to its end and returns its exit code.

    >>> import pipewright
    >>> pipewright.call(["sh", "-c", "exit 3"])
    3
    """
    options = _options.by_name(popenargs, kwargs)
    if _module.get("Popen") is not None and other_popen() is not None:
        code: int = call_by(other_popen(), options, timeout)
        return code
    return Call(options, timeout=timeout).run().returncode


def check_call(*popenargs: Any, **kwargs: Any) -> int:
    """Runs a command to its end. Anything but exit code 0 is a `CalledProcessError`."""
    timeout = kwargs.pop("timeout", None)
    options = _options.by_name(popenargs, kwargs)
    if _module.get("Popen") is not None and other_popen() is not None:
        args = options["args"]
        code = call_by(other_popen(), options, timeout)
        if code:
            raise CalledProcessError(code, args)
        return 0
    done = Call(options, timeout=timeout).run()
    if done.returncode:
        error = CalledProcessError(done.returncode, done.args)
        error.ending = done.ending
        raise error
    return 0


if TYPE_CHECKING:

    @overload
    def check_output(
        args: Args,
        *,
        text: Literal[True],
        input: Optional[str] = None,
        timeout: Optional[float] = None,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        universal_newlines: Optional[bool] = None,
        **options: Unpack[Options],
    ) -> str: ...
    @overload
    def check_output(
        args: Args,
        *,
        text: Literal[False, None] = None,
        encoding: None = None,
        errors: None = None,
        universal_newlines: Literal[False, None] = None,
        input: Optional[Buffer] = None,
        timeout: Optional[float] = None,
        **options: Unpack[Options],
    ) -> bytes: ...
    @overload
    def check_output(*popenargs: Any, timeout: Optional[float] = None, **kwargs: Any) -> Any: ...


def check_output(*popenargs: Any, timeout: Optional[float] = None, **kwargs: Any) -> Any:
    """Runs a command to its end and returns its stdout. Anything but exit code 0 is a `CalledProcessError`.

    >>> import pipewright
    >>> pipewright.check_output(["echo", "hi"])
    b'hi\\n'
    """
    for name in ("stdout", "check"):
        if name in kwargs:
            raise ValueError(f"{name} argument not allowed, it will be overridden.")
    if "input" in kwargs and kwargs["input"] is None:
        # No input, as opposed to that of this process.
        text = kwargs.get("text") or kwargs.get("universal_newlines") or kwargs.get("encoding") or kwargs.get("errors")
        kwargs["input"] = "" if text else b""
    return run(*popenargs, stdout=PIPE, timeout=timeout, check=True, **kwargs).stdout


def getstatusoutput(cmd: Any, *, encoding: Optional[str] = None, errors: Optional[str] = None) -> Tuple[int, str]:
    """Runs a command in a shell and returns its exit code and its output, both streams together.

    >>> import pipewright
    >>> pipewright.getstatusoutput("echo hi; exit 2")
    (2, 'hi')
    """
    try:
        data: str = check_output(cmd, shell=True, text=True, stderr=STDOUT, encoding=encoding, errors=errors)
        code = 0
    except _std.CalledProcessError as error:
        data, code = error.output, error.returncode
    return code, data[:-1] if data[-1:] == "\n" else data


def getoutput(cmd: Any, *, encoding: Optional[str] = None, errors: Optional[str] = None) -> str:
    """Runs a command in a shell and returns its output, both streams together.

    >>> import pipewright
    >>> pipewright.getoutput("echo hi")
    'hi'
    """
    return getstatusoutput(cmd, encoding=encoding, errors=errors)[1]
