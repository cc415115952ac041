"""`subprocess` without leaked trees, lost output and calls that hang.

`import pipewright as subprocess` works: the names, arguments and exceptions are those of `subprocess`. What differs,
and why, is one table in the README of the package.

>>> import pipewright
>>> pipewright.run(["echo", "hi"], capture_output=True, text=True).stdout
'hi\\n'
"""

from __future__ import annotations

from importlib import import_module as _import_module
from os import register_at_fork as _register_at_fork

from pipewright._constants import DEVNULL, PIPE, STDOUT, TEE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import list2cmdline as list2cmdline
    from typing import Any as _Any
    from typing import List as _List

    from pipewright._aio import AsyncEvents, AsyncLines, events_async, lines_async, run_async
    from pipewright._batch import Batch, End, Job, batch
    from pipewright._errors import (
        BatchError,
        CalledProcessError,
        CallError,
        CallTimeoutError,
        Error,
        ForkedError,
        InternalError,
        InvalidInputError,
        StartError,
        SubprocessError,
        SystemCallError,
        TimeoutExpired,
        UnsupportedError,
    )
    from pipewright._pipeline import Command, Pipeline, pipeline
    from pipewright._popen import Popen
    from pipewright._result import CompletedProcess
    from pipewright._run import call, check_call, check_output, getoutput, getstatusoutput, run
    from pipewright._stream import Event, Events, Line, Lines, events, lines

__version__ = "0.1.0"

# An interpreter that cannot use the native module finds out here, and not at the first call.
try:
    _import_module("pipewright._pipewright")
except ModuleNotFoundError as _error:
    raise ImportError(
        f"the native module of pipewright is not beside {__file__}: these are its sources, which pip has to build, "
        "or another distribution has removed files of it: pip install --force-reinstall pipewright-process"
    ) from _error

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "TEE",
    "AsyncEvents",
    "AsyncLines",
    "Batch",
    "BatchError",
    "CallError",
    "CallTimeoutError",
    "CalledProcessError",
    "Command",
    "CompletedProcess",
    "End",
    "Error",
    "Event",
    "Events",
    "ForkedError",
    "InternalError",
    "InvalidInputError",
    "Job",
    "Line",
    "Lines",
    "Pipeline",
    "Popen",
    "StartError",
    "SubprocessError",
    "SystemCallError",
    "TimeoutExpired",
    "UnsupportedError",
    "batch",
    "call",
    "check_call",
    "check_output",
    "events",
    "events_async",
    "getoutput",
    "getstatusoutput",
    "lines",
    "lines_async",
    "pipeline",
    "run",
    "run_async",
]


#: Imported with their first use, and `subprocess` with them: a program that runs no command does not wait for it.
_LATER = {
    "_aio": ("AsyncEvents", "AsyncLines", "events_async", "lines_async", "run_async"),
    "_batch": ("Batch", "End", "Job", "batch"),
    "_errors": (
        *("BatchError", "CallError", "CallTimeoutError", "CalledProcessError", "Error", "ForkedError"),
        *("InternalError", "InvalidInputError", "StartError", "SubprocessError", "SystemCallError"),
        *("TimeoutExpired", "UnsupportedError"),
    ),
    "_pipeline": ("Command", "Pipeline", "pipeline"),
    "_popen": ("Popen",),
    "_result": ("CompletedProcess",),
    "_run": ("call", "check_call", "check_output", "getoutput", "getstatusoutput", "run"),
    "_stream": ("Event", "Events", "Line", "Lines", "events", "lines"),
}


def __getattr__(name: str) -> _Any:
    """Returns a name that is imported late, or one that only `subprocess` has, such as private helpers."""
    if name in ("asyncio", "ipc"):
        return _import_module(f"pipewright.{name}")
    for module, names in _LATER.items():
        if name in names:
            found = getattr(_import_module(f"pipewright.{module}"), name)
            globals()[name] = found
            return found
    if name.startswith("__"):
        raise AttributeError(f"module 'pipewright' has no attribute {name!r}")
    return getattr(_import_module("pipewright._std").std, name)


def _before_fork() -> None:
    """Imports what is imported late: a fork during an import has its lock, and no thread that gives it back."""
    for module in (*_LATER, "_decoded", "_patched"):
        try:
            _import_module(f"pipewright.{module}")
        except Exception:
            # Not found any more, or no room for it: its first use tells.
            return


_register_at_fork(before=_before_fork)


def __dir__() -> _List[str]:
    return sorted({*globals(), *__all__} - {"TYPE_CHECKING"})


# Only the names of this module are left.
del annotations, TYPE_CHECKING
