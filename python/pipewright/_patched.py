"""Calls with another `Popen` in the place of ours, as tests put one there: by the steps of `subprocess`."""

from __future__ import annotations

import sys

from pipewright._errors import CalledProcessError
from pipewright._result import CompletedProcess

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


def other_popen() -> Any:
    """Returns what has taken the place of `pipewright.Popen`, or `None`."""
    found = sys.modules["pipewright"].__dict__.get("Popen")
    return None if found is None or found is sys.modules["pipewright._popen"].Popen else found


def run(
    popen: Any, options: Dict[str, Any], input: Any, capture_output: bool, timeout: Optional[float], check: bool
) -> CompletedProcess[Any]:
    """Runs a command as `subprocess.run` does."""
    if input is not None:
        if options.get("stdin") is not None:
            raise ValueError("stdin and input arguments may not both be used.")
        options["stdin"] = -1
    if capture_output:
        if options.get("stdout") is not None or options.get("stderr") is not None:
            raise ValueError("stdout and stderr arguments may not be used with capture_output.")
        options["stdout"] = options["stderr"] = -1
    with popen(options.pop("args"), **options) as process:
        try:
            stdout, stderr = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
        code = process.poll()
        if check and code:
            raise CalledProcessError(code, process.args, output=stdout, stderr=stderr)
    return CompletedProcess(process.args, code, stdout, stderr)


def call(popen: Any, options: Dict[str, Any], timeout: Optional[float]) -> Any:
    """Runs a command as `subprocess.call` does."""
    with popen(options.pop("args"), **options) as process:
        try:
            return process.wait(timeout=timeout)
        except BaseException:
            process.kill()
            raise
