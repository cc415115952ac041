"""The result of a run."""

from __future__ import annotations

from pipewright._errors import CalledProcessError
from pipewright._std import std as _std

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, AnyStr, Dict, List, Optional

    from pipewright._pipewright import Ending

else:
    # Any value will do. An import of typing would take a millisecond.
    AnyStr = None


class Facts:
    """The facts of a run, copied or unpickled: they have the names of those of the native module."""

    def __init__(self, facts: Dict[str, Any]) -> None:
        self.__dict__.update(facts)


class CompletedProcess(_std.CompletedProcess[AnyStr]):
    """`subprocess.CompletedProcess`, and the facts of the run.

    >>> import pipewright
    >>> done = pipewright.run("echo hi; sleep 600 &", shell=True, capture_output=True, text=True)
    >>> done.stdout, done.outcome, done.leftovers_killed
    ('hi\\n', 'exited', 1)
    """

    #: The facts of the run, from the native module.
    ending: Optional[Ending]

    def __init__(self, args: Any, returncode: int, stdout: Any = None, stderr: Any = None) -> None:
        super().__init__(args, returncode, stdout, stderr)
        self.ending = None

    def _fact(self, name: str, unknown: Any = None) -> Any:
        return unknown if self.ending is None else getattr(self.ending, name)

    @property
    def outcome(self) -> str:
        """The reason for the end: `exited`, `signaled`, `idle_timed_out`, `limit_exceeded`, `out_of_memory`."""
        return str(self._fact("outcome", "exited" if self.returncode >= 0 else "signaled"))

    @property
    def reason(self) -> str:
        """The reason for the end, in words."""
        return str(self._fact("reason", f"exit code: {self.returncode}"))

    @property
    def pid(self) -> Optional[int]:
        """The process id that the command had."""
        pid: Optional[int] = self._fact("pid")
        return pid

    @property
    def elapsed(self) -> Optional[float]:
        """The seconds from the start until the command and its output had ended."""
        elapsed: Optional[float] = self._fact("elapsed")
        return elapsed

    @property
    def usage(self) -> Optional[Dict[str, Any]]:
        """The CPU time in seconds (`user`, `system`) and `peak_rss_bytes` of the command."""
        usage: Optional[Dict[str, Any]] = self._fact("usage")
        return usage

    @property
    def tree_usage(self) -> Optional[Dict[str, Any]]:
        """The usage of the whole tree; only with `limits`."""
        usage: Optional[Dict[str, Any]] = self._fact("tree_usage")
        return usage

    @property
    def out_of_memory(self) -> Optional[Dict[str, Any]]:
        """The facts about processes that the kernel killed for lack of memory; only with `limits`."""
        facts: Optional[Dict[str, Any]] = self._fact("out_of_memory")
        return facts

    @property
    def limits(self) -> Optional[Dict[str, Any]]:
        """The limits in force, the mechanism that held them, and those that could not be held."""
        limits: Optional[Dict[str, Any]] = self._fact("limits")
        return limits

    @property
    def containment(self) -> str:
        """The mechanism that contained the tree: `cgroup`, `supervisor`, `group` or `none`."""
        return str(self._fact("containment", "none"))

    @property
    def leftovers_killed(self) -> int:
        """The number of processes that the command left behind, and that were killed."""
        return int(self._fact("leftovers_killed", 0))

    @property
    def held_open(self) -> bool:
        """True if something still held a stream open when reading ended. Later output is lost."""
        return bool(self._fact("held_open", False))

    @property
    def truncated(self) -> bool:
        """True if `max_output` dropped part of a stream."""
        return bool(self._fact("truncated", False))

    @property
    def stdout_file(self) -> Optional[Path]:
        """The file with all of stdout, if `max_output=("keep", head, tail, folder)` has left a part out."""
        file: Optional[Path] = self._fact("stdout_file")
        return file

    @property
    def stderr_file(self) -> Optional[Path]:
        """The file with all of stderr, if `max_output=("keep", head, tail, folder)` has left a part out."""
        file: Optional[Path] = self._fact("stderr_file")
        return file

    @property
    def stdin_unread(self) -> int:
        """The number of input bytes that the command did not read."""
        return int(self._fact("stdin_unread", 0))

    @property
    def stages(self) -> List[Dict[str, Any]]:
        """The end of each stage of a pipeline: `pid`, `returncode`, `usage`."""
        stages: List[Dict[str, Any]] = self._fact("stages", [])
        return stages

    def check_returncode(self) -> None:
        """Raises `CalledProcessError` if the command failed, or was stopped."""
        if self.returncode or self.outcome not in ("exited", "signaled"):
            error = CalledProcessError(self.returncode, self.args, self.stdout, self.stderr)
            error.ending = self.ending
            raise error
