"""Many commands, some of them at the same time, with a log that can be resumed."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from pipewright import _text
from pipewright._pipewright import start_batch

# The native module raises these. An import at the error would fail if there is no free descriptor.
import_module("pipewright._errors")

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Literal

    from typing_extensions import Self, TypedDict, Unpack

    from pipewright._options import Args, Limits, StrOrBytesPath

    class JobOptions(TypedDict, total=False):
        """The options of one job."""

        name: str
        cwd: StrOrBytesPath
        env: Dict[str, str]
        input: Union[str, bytes]
        after: Sequence[str]
        cpus: int
        memory: int
        timeout: float
        retries: int
        once: bool

    class BatchOptions(TypedDict, total=False):
        """The options of a batch."""

        retries: int
        retry_delay: Tuple[float, float]
        once: bool
        timeout: float
        batch_timeout: float
        idle_timeout: float
        start_delay: float
        max_load: float
        min_free_memory: int
        halt: str
        memory: int
        cwd: StrOrBytesPath
        env: Dict[str, str]
        clear_env: bool
        user: Union[str, int]
        nice: int
        umask: int
        limits: Limits
        keep_output: Union[int, Tuple[int, int], Tuple[int, int, StrOrBytesPath]]
        stop_with: Tuple[int, float]
        tree: bool
        output: Literal["group", "lines", "on_failure", "none"]
        output_dir: StrOrBytesPath
        keep_order: bool
        tag: bool
        joblog: StrOrBytesPath
        junit: StrOrBytesPath
        describe: str


class Job:
    """A job with options: `name`, `after` (names of jobs that must succeed first), `cpus`, `retries`, and more."""

    __slots__ = ("args", "options")

    def __init__(self, args: Args, **options: Unpack[JobOptions]) -> None:
        self.args = args
        self.options: Dict[str, Any] = dict(options)

    def __repr__(self) -> str:
        return f"Job({self.args!r})"

    def native(self) -> Dict[str, Any]:
        """Returns the options for the native module."""
        result: Dict[str, Any] = dict(self.options)
        if isinstance(self.args, (str, bytes)):
            result["shell"] = os.fsencode(self.args)
        elif isinstance(self.args, os.PathLike):
            result["argv"] = [os.fsencode(self.args)]
        else:
            result["argv"] = [os.fsencode(arg) for arg in self.args]
        if "cwd" in result:
            result["cwd"] = os.fsencode(result["cwd"])
        if "env" in result:
            result["env"] = [(os.fsencode(name), os.fsencode(value)) for name, value in result["env"].items()]
        if isinstance(result.get("input"), str):
            result["input"] = _text.Decoding(None, None).encode(result["input"])
        return result


class End(NamedTuple):
    """The end of a job."""

    #: The job, as it was given.
    job: Any
    #: The number of the job, from 0, in the order in which the jobs were given.
    number: int
    #: `succeeded`, `failed`, `skipped`, `stopped`, `not_run`, `unknown` or `refused`.
    state: str
    #: The reason, in words; `None` for success.
    reason: Optional[str]
    #: The exit code of the last attempt, or the negative number of a signal; `None` if it did not run, or was stopped.
    returncode: Optional[int]
    #: True if the job ended in an earlier run, according to the log.
    before: bool
    #: The seconds of the last attempt.
    elapsed: float
    #: The last lines of stderr, or of stdout.
    tail: str
    #: Everything that is known about the last attempt.
    facts: Dict[str, Any]

    @property
    def ok(self) -> bool:
        """True if the job succeeded."""
        return self.state == "succeeded"


class Batch:
    """A batch that runs: an iterator of the ends of its jobs. Nothing happens between two steps of the iterator.

    Leaving a `with` block, or an exception such as KeyboardInterrupt, kills the running jobs; a log can be resumed.
    """

    def __init__(self, jobs: List[Any], options: Dict[str, Any], progress: str) -> None:
        self.jobs = jobs
        self._native = start_batch([_job(it).native() for it in jobs], options)
        self._attempts: Dict[int, Dict[str, Any]] = {}
        self._counts: Optional[Dict[str, Any]] = None
        # The ends are taken one after another: facts of a job come before its end. The end of the batch has a lock of
        # its own, as it may come while a thread waits for an end.
        self._taking, self._closing = RLock(), RLock()
        self._log = options.get("log")
        self._view = _notebook_view(self) if progress == "notebook" else None
        self._settled = 0
        #: The jobs that did not succeed, as they end.
        self.failures: List[End] = []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> End:
        try:
            with self._taking:
                end = self._next()
                if end is None:
                    self._finish()
        except BaseException:
            self.close()
            raise
        if end is None:
            raise StopIteration
        return end

    def _next(self) -> Optional[End]:
        while True:
            event = None if self._counts is not None else self._native.next()
            if event is None:
                return None
            kind, facts = event
            if kind == "ended":
                self._attempts[facts["job"]] = facts
            elif kind == "settled":
                end = self._end(facts)
                self._settled += 1
                if not end.ok:
                    self.failures.append(end)
                if self._view is not None:
                    self._view()
                return end

    def _end(self, facts: Dict[str, Any]) -> End:
        attempt = self._attempts.pop(facts["job"], {})
        number = facts["job"] - 1
        return End(
            job=self.jobs[number],
            number=number,
            state=facts["state"],
            reason=facts["reason"],
            returncode=attempt.get("returncode"),
            before=facts["before"],
            elapsed=attempt.get("elapsed", 0.0),
            tail=attempt.get("tail", ""),
            facts=attempt,
        )

    def _finish(self) -> None:
        with self._closing:
            if self._counts is not None:
                return
            counts = self._native.counts()
            try:
                self._counts = self._native.finish()
            except BaseException:
                # Told once, and not hidden behind errors of later questions.
                self._counts = dict(counts, halted="failed", exit_code=1)
                raise
        if self._view is not None:
            self._view()

    def run(self) -> Batch:
        """Runs the rest, and returns the batch."""
        for _ in self:
            pass
        return self

    @property
    def counts(self) -> Dict[str, Any]:
        """The number of jobs by state, `elapsed`, `halted` and the `exit_code` that the tool would have."""
        with self._closing:
            return self._native.counts() if self._counts is None else self._counts

    @property
    def ok(self) -> bool:
        """True if all jobs have succeeded."""
        return self._counts is not None and bool(self._counts["exit_code"] == 0)

    def drain(self) -> None:
        """Starts nothing more; the running jobs end by themselves. May be called from another thread."""
        self._native.drain()

    def stop(self) -> None:
        """Starts nothing more, and stops the running jobs. May be called from another thread."""
        self._native.stop()

    def close(self) -> None:
        """Kills the running jobs. Does nothing after the end."""
        with self._closing:
            if self._counts is None:
                self._counts = dict(self._native.counts(), halted="closed", exit_code=1)
                self._native.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Batch: {self.counts['text']}>"

    def _repr_html_(self) -> str:
        """Returns a summary for a notebook: a bar, the counts, the jobs that failed."""
        import html

        counts, total = self.counts, max(len(self.jobs), 1)
        colors = {"succeeded": "#2da44e", "failed": "#cf222e", "skipped": "#bf8700", "stopped": "#8250df"}
        parts = "".join(
            f'<div style="background:{color};width:{100 * counts[name] / total:.2f}%" title="{name}"></div>'
            for name, color in colors.items()
        )
        rows = "".join(
            f"<tr><td>{end.number}</td><td><code>{html.escape(_shown(end.job))}</code></td>"
            f"<td>{html.escape(end.reason or end.state)}</td><td><pre>{html.escape(end.tail[-300:])}</pre></td></tr>"
            for end in self.failures[:20]
        )
        more = len(self.failures) - 20
        table = (
            f"<table><tr><th>job</th><th>command</th><th>reason</th><th>last lines</th></tr>{rows}</table>"
            if rows
            else ""
        )
        note = f"<p>and {more} more</p>" if more > 0 else ""
        log = f"<p>log: <code>{html.escape(os.fsdecode(self._log))}</code></p>" if self._log else ""
        bar = f'<div style="display:flex;height:8px;width:100%;background:#8884">{parts}</div>'
        text = html.escape(f"{self._settled} of {len(self.jobs)}: {counts['text']}")
        return f"<div>{bar}<p>{text}</p>{table}{note}{log}</div>"


def _user(user: Union[str, int]) -> Tuple[int, int, List[int]]:
    """Returns the numbers of a user, of his group and of his other groups."""
    import pwd

    found = pwd.getpwnam(user) if isinstance(user, str) else pwd.getpwuid(user)
    return found.pw_uid, found.pw_gid, os.getgrouplist(found.pw_name, found.pw_gid)


def _job(job: Any) -> Job:
    return job if isinstance(job, Job) else Job(job)


def _shown(job: Any) -> str:
    args: Any = job.args if isinstance(job, Job) else job
    if isinstance(args, (str, bytes, os.PathLike)):
        return os.fsdecode(args)
    return " ".join(os.fsdecode(arg) for arg in args)


def _notebook_view(batch: Batch) -> Any:
    """Shows the batch in the notebook, and returns a function that updates it."""
    from importlib import import_module

    shown: Any = import_module("IPython.display")
    handle: Any = shown.display(shown.HTML(""), display_id=True)
    return lambda: handle.update(shown.HTML(batch._repr_html_()))


def _kind_of_progress(progress: Optional[bool]) -> str:
    if progress is False:
        return "none"
    shell: Any = sys.modules.get("IPython")
    if shell is not None and shell.get_ipython() is not None and "ipykernel" in sys.modules:
        return "notebook"
    if progress is None and not (sys.stderr is not None and sys.stderr.isatty()):
        return "none"
    return "bar" if sys.stderr is not None and sys.stderr.isatty() else "plain"


def batch(
    jobs: Iterable[Any],
    *,
    slots: Optional[int] = None,
    log: Optional[StrOrBytesPath] = None,
    resume: bool = False,
    retry_failed: bool = False,
    rerun_unknown: bool = False,
    trust_log: bool = False,
    progress: Optional[bool] = None,
    **options: Unpack[BatchOptions],
) -> Batch:
    """Runs many commands, `slots` of them at the same time, and returns an iterator of their ends.

    A job is a list of arguments, a line for the shell, or a `Job` with options. With `log` and `resume`, a batch that
    was interrupted continues: no job that has ended runs twice. A batch that does not exist yet is started. The log is
    that of `pipewright batch`, and `pipewright jobs` shows it. The log of another user is refused without
    `trust_log`, because its commands run as this one. `progress`: a bar at a terminal and in a notebook.

    For all jobs: `cwd`, `env` (a job may have its own too), `clear_env`, `user`, `nice`, `umask` and `limits` (as of
    `run`); `output="on_failure"` prints that of failed jobs alone, `keep_output=(head, tail)` the ends of a long one.

    >>> import pipewright
    >>> run = pipewright.batch(["exit 0", "exit 3", ["echo", "hi"]], slots=2)
    >>> sorted((end.number, end.state, end.returncode) for end in run)
    [(0, 'succeeded', 0), (1, 'failed', 3), (2, 'succeeded', 0)]
    >>> run.counts["succeeded"], run.ok
    (2, False)
    """
    native: Dict[str, Any] = dict(options)
    for name in ("output_dir", "joblog", "junit", "cwd"):
        if name in native:
            native[name] = os.fsencode(native[name])
    if "env" in native:
        native["env"] = [(os.fsencode(name), os.fsencode(value)) for name, value in native["env"].items()]
    if "user" in native:
        native["user"] = _user(native["user"])
    if isinstance(native.get("keep_output"), tuple) and len(native["keep_output"]) == 3:
        head, tail, folder = native["keep_output"]
        native["keep_output"] = head, tail, os.fsdecode(folder)
    if slots is not None:
        native["slots"] = slots
    if log is not None:
        native["log"] = os.fsencode(log)
        native["resume"] = resume
        native["retry_failed"] = retry_failed
        native["rerun_unknown"] = rerun_unknown
        native["trust_log"] = trust_log
    elif resume or retry_failed or rerun_unknown:
        raise ValueError("resume, retry_failed and rerun_unknown need a log")
    kind = _kind_of_progress(progress)
    if kind in ("bar", "plain"):
        native["progress"] = kind
    return Batch(list(jobs), native, kind)
