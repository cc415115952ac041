"""The exceptions: those of `subprocess`, with more facts, and those of the native module."""

from __future__ import annotations

import errno as _errno
import os

from pipewright._std import std as _std

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional

    from pipewright._pipewright import Ending

SubprocessError = _std.SubprocessError


class Error(Exception):
    """An error of pipewright itself, with its facts.

    >>> import pipewright
    >>> try:
    ...     pipewright.run(["no-such-program"])
    ... except pipewright.Error as error:
    ...     print(error.kind, error.program, isinstance(error, FileNotFoundError))
    not_found no-such-program True
    """

    #: A stable name such as `not_found` or `permission_denied`.
    kind: str = ""
    #: The program, as it was given; empty if the error belongs to no program.
    program: str = ""
    #: True if nothing was started.
    is_start: bool = False
    #: One line that says what failed, on what, and why.
    message: str = ""
    #: The directories that were searched for the program.
    searched: List[str]
    #: The interpreter that does not exist: of a script, or of a program.
    interpreter: Optional[str] = None

    def __str__(self) -> str:
        return self.message or super().__str__()


class StartError(Error, OSError):
    """The program could not be started. `errno`, `strerror` and `filename` are those that `subprocess` would set."""


class ProgramNotFoundError(StartError, FileNotFoundError):
    """The program, its interpreter or its directory does not exist."""


class ProgramDirectoryError(StartError, NotADirectoryError):
    """The working directory is not a directory."""


class ProgramPermissionError(StartError, PermissionError):
    """The program may not be executed, or an option needs a permission."""


class SystemCallError(Error, OSError):
    """A system call failed, and not because of the program: a descriptor cannot be used, an output cannot be read."""


class SystemPermissionError(SystemCallError, PermissionError):
    """A process may not be signalled, as it has become another user's; or something may not be opened."""


class InvalidInputError(Error, ValueError):
    """An argument that no program can have, such as a NUL byte."""


class UnsupportedError(Error, NotImplementedError, OSError):
    """This machine cannot do what an option asks for. The message says what is missing, and what to do."""


class ForkedError(Error, RuntimeError):
    """The object belongs to another process: the interpreter has forked since."""


class BatchError(Error, RuntimeError):
    """A batch, not one of its jobs, failed: its log cannot be used, or its output cannot be written."""


class CallError(Error, RuntimeError):
    """A call to a worker failed: the worker died, declined it or broke the protocol."""


class CallTimeoutError(CallError, TimeoutError):
    """A worker did not answer in time."""


class InternalError(Error, RuntimeError):
    """A defect of pipewright: the native module panicked. Nothing crossed but this exception."""


class CalledProcessError(_std.CalledProcessError):
    """A command failed, and `check` was set. Has the facts of the run in `ending`."""

    ending: Optional[Ending] = None

    def __str__(self) -> str:
        if self.ending is not None and self.ending.outcome not in ("exited", "signaled"):
            return f"Command {self.cmd!r} was stopped: {self.ending.reason}."
        return super().__str__()


class TimeoutExpired(_std.TimeoutExpired):
    """The time was up. `output` and `stderr` have the output so far as bytes, and `ending` the facts of a run that was
    stopped: its whole tree has ended.

    >>> import pipewright
    >>> try:
    ...     pipewright.run("echo started; sleep 60", shell=True, capture_output=True, timeout=2)
    ... except pipewright.TimeoutExpired as error:
    ...     print(error.output, error.ending.outcome)
    b'started\\n' timed_out
    """

    ending: Optional[Ending] = None


_PLAIN: Dict[str, type] = {"invalid_input": InvalidInputError, "forked": ForkedError, "internal": InternalError}
_PLAIN.update({"batch": BatchError, "batch_log": BatchError})
_PLAIN.update({"ipc": CallError, "ipc_died": CallError, "ipc_timed_out": CallTimeoutError})
_UNSUPPORTED = {"unsupported": _errno.ENOTSUP, "limit_unavailable": _errno.ENOTSUP}


def build(facts: Dict[str, Any]) -> Exception:
    """Makes the exception of these facts, which come from the native module."""
    kind = facts["kind"]
    number = facts.get("errno")
    program = os.fsdecode(facts.get("program") or b"")
    error: Error
    if kind in _PLAIN:
        error = _PLAIN[kind](facts["message"])
    elif kind in _UNSUPPORTED:
        error = UnsupportedError(number or _UNSUPPORTED[kind], facts["message"])
    else:
        error = _os_error(kind, number, facts, program)
    error.kind = kind
    error.message = facts["message"]
    error.program = program
    error.is_start = bool(facts.get("is_start"))
    error.searched = [os.fsdecode(it) for it in facts.get("searched", ())]
    interpreter = facts.get("interpreter")
    error.interpreter = None if interpreter is None else os.fsdecode(interpreter)
    return error


def _os_error(kind: str, number: Optional[int], facts: Dict[str, Any], program: str) -> Error:
    filename = program
    if "dir" in facts:
        filename = os.fsdecode(facts["dir"])
    if number is None:
        number = {"not_found": _errno.ENOENT, "permission_denied": _errno.EACCES}.get(kind, _errno.EIO)
    kinds: Dict[int, type[Error]] = {
        _errno.ENOENT: ProgramNotFoundError,
        _errno.ENOTDIR: ProgramDirectoryError,
        _errno.EACCES: ProgramPermissionError,
        _errno.EPERM: ProgramPermissionError,
    }
    if not facts.get("is_start"):
        kinds = {_errno.EPERM: SystemPermissionError, _errno.EACCES: SystemPermissionError}
    made = kinds.get(number, StartError if facts.get("is_start") else SystemCallError)
    return made(number, os.strerror(number), filename)
