"""The arguments of `subprocess` and ours, as options of the native module."""

from __future__ import annotations

import errno
import os
import signal
import sys
import warnings

from pipewright._constants import DEVNULL, INHERIT, PIPE, STDOUT, TEE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, Callable, Dict, Iterable, List, Literal, Mapping, Optional, Sequence, Tuple, Union

    from typing_extensions import TypeAlias, TypedDict

    StrOrBytesPath: TypeAlias = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
    Args: TypeAlias = Union[StrOrBytesPath, Sequence[StrOrBytesPath]]
    Stream: TypeAlias = Union[int, IO[Any], None]
    Env: TypeAlias = Union[Mapping[bytes, StrOrBytesPath], Mapping[str, StrOrBytesPath]]

    class Limits(TypedDict, total=False):
        """The limits of everything that a command starts, all processes together."""

        memory: int
        swap: int
        cpus: float
        pids: int
        oom_group: bool
        best_effort: bool

    class Ours(TypedDict, total=False):
        """The options that `subprocess` does not have."""

        tree: bool
        kill_on_parent_exit: Union[bool, Literal["child", "tree"]]
        limits: Limits
        pty: Union[bool, Tuple[int, int]]
        idle_timeout: float
        kill_grace: float
        stop_signal: int
        max_output: Union[
            Tuple[Literal["head", "tail", "fail"], int],
            Tuple[Literal["keep"], int, int],
            Tuple[Literal["keep"], int, int, StrOrBytesPath],
        ]
        linger: Union[Literal["eof", "exit"], Tuple[float, float]]
        nice: int
        rlimits: Mapping[str, Tuple[Optional[int], Optional[int]]]

    class Options(Ours, total=False):
        """The options of a command: those of `subprocess.Popen` by name, and ours."""

        bufsize: int
        executable: Optional[StrOrBytesPath]
        stdin: Stream
        stdout: Stream
        stderr: Stream
        preexec_fn: Optional[Callable[[], Any]]
        close_fds: bool
        shell: bool
        cwd: Optional[StrOrBytesPath]
        env: Optional[Env]
        startupinfo: Any
        creationflags: int
        restore_signals: bool
        start_new_session: bool
        pass_fds: Iterable[int]
        user: Union[str, int, None]
        group: Union[str, int, None]
        extra_groups: Optional[Iterable[Union[str, int]]]
        umask: int
        pipesize: int
        process_group: Optional[int]


#: The names of `subprocess.Popen`'s arguments that may be given by position.
POSITIONAL = (
    *("args", "bufsize", "executable", "stdin", "stdout", "stderr", "preexec_fn", "close_fds", "shell", "cwd", "env"),
    *("universal_newlines", "startupinfo", "creationflags", "restore_signals", "start_new_session", "pass_fds"),
)
_LIMITS = ("memory", "swap", "cpus", "pids", "oom_group", "best_effort")
_RULES = ("head", "tail", "fail")
_TIMES = ("idle_timeout", "kill_grace", "stop_signal", "linger")


def by_name(positional: Tuple[Any, ...], named: Dict[str, Any]) -> Dict[str, Any]:
    """Returns the arguments by name."""
    if len(positional) > len(POSITIONAL):
        raise TypeError(f"Popen() takes at most {len(POSITIONAL)} positional arguments, {len(positional)} were given")
    for name, value in zip(POSITIONAL, positional):
        if name in named:
            raise TypeError(f"Popen() got multiple values for argument {name!r}")
        named[name] = value
    if "args" not in named:
        raise TypeError("Popen() missing 1 required positional argument: 'args'")
    return named


def arguments(args: Args, shell: bool) -> List[bytes]:
    """Returns the command line, with the shell's."""
    if isinstance(args, (str, bytes)):
        argv = [os.fsencode(args)]
    elif isinstance(args, os.PathLike):
        if shell:
            raise TypeError("path-like args is not allowed when shell is true")
        argv = [os.fsencode(args)]
    else:
        argv = [os.fsencode(arg) for arg in args]
    if shell:
        return [_SHELL, b"-c", *argv]
    if not argv:
        raise IndexError("list index out of range: the command is empty")
    return argv


def _refuse_no_name(argv: List[bytes]) -> None:
    """Refuses a program without a name, as the system does."""
    if not argv[0]:
        from pipewright._errors import build

        message = 'cannot start "": the command is empty'
        raise build({"kind": "not_found", "errno": errno.ENOENT, "message": message, "is_start": True})


#: What `restore_signals` restores: Python ignores these, and SIGPIPE, from the start.
_RESTORED = [int(getattr(signal, name)) for name in ("SIGXFZ", "SIGXFSZ") if hasattr(signal, name)]
_SHELL = b"/system/bin/sh" if hasattr(os, "getandroidapilevel") else b"/bin/sh"


def stream_number(stream: Stream, name: str) -> int:
    """Returns the number of a stream for the native module."""
    if stream is None:
        return INHERIT
    if isinstance(stream, int):
        if stream < 0 and stream not in (PIPE, DEVNULL, TEE) and not (name == "stderr" and stream == STDOUT):
            if stream == STDOUT:
                raise ValueError("STDOUT can only be used for stderr")
            raise ValueError(f"{name} has a wrong number: {stream}")
        return stream
    return stream.fileno()


def native(options: Dict[str, Any]) -> Dict[str, Any]:
    """Converts the options, which are consumed. What cannot be kept is an error here, before anything is started."""
    result: Dict[str, Any]
    take = options.pop
    if len(options) == 1:
        # Most calls have only the command.
        result = {"argv": arguments(take("args"), False), "default_signals": _RESTORED, "tree": True}
        result["stdin"] = result["stdout"] = result["stderr"] = INHERIT
        argv = result["argv"]
        _refuse_no_name(argv)
        sys.audit("subprocess.Popen", os.fsdecode(argv[0]), [os.fsdecode(it) for it in argv], None, None)
        return result
    shell = bool(take("shell", False))
    argv = arguments(take("args"), shell)
    result = {"argv": argv, "default_signals": _RESTORED}
    executable = take("executable", None)
    if shell and executable is not None:
        argv[0] = os.fsencode(executable)
    if executable is not None:
        result["program"] = os.fsencode(executable)
    else:
        _refuse_no_name(argv)
    for name in ("stdin", "stdout", "stderr"):
        stream = take(name, None)
        result[name] = stream_number(stream, name)
        if stream is not None and not isinstance(stream, int):
            # The last reference to the file may be this one.
            result.setdefault("files", []).append(stream)
    cwd = take("cwd", None)
    if cwd is not None:
        result["cwd"] = os.fsencode(cwd)
    env = take("env", None)
    if env is not None:
        result["env"] = [(os.fsencode(key), os.fsencode(value)) for key, value in env.items()]
    if options:
        _descriptors(options, result)
        _refuse(options, result)
        _unix(options, result)
    _ours(options, result)
    for name in options:
        raise TypeError(f"Popen() got an unexpected keyword argument {name!r}")
    # As CPython's (PEP 578).
    shown = [os.fsdecode(it) for it in argv]
    sys.audit("subprocess.Popen", os.fsdecode(result.get("program", argv[0])), shown, cwd, env)
    return result


def _descriptors(options: Dict[str, Any], result: Dict[str, Any]) -> None:
    pass_fds: Tuple[Any, ...] = tuple(options.pop("pass_fds", ()) or ())
    close_fds = options.pop("close_fds", True)
    if pass_fds and not close_fds:
        warnings.warn("pass_fds overriding close_fds.", RuntimeWarning, stacklevel=5)
    elif not close_fds:
        result["inherit_all"] = True
    wrong: List[Any] = [fd for fd in pass_fds if not isinstance(fd, int) or not 0 <= fd < 1 << 31]
    if wrong:
        raise ValueError("bad value(s) in fds_to_keep")
    # The child has these three in any case.
    pass_fds = tuple(sorted({int(fd) for fd in pass_fds if fd > 2}))
    if pass_fds:
        result["pass_fds"] = pass_fds


def _refuse(options: Dict[str, Any], result: Dict[str, Any]) -> None:
    """Refuses what cannot be kept."""
    function = options.pop("preexec_fn", None)
    if function is os.setsid:
        result["session"] = True
    elif function is os.setpgrp:
        result["group"] = 0
    elif function is not None:
        raise ValueError(
            "preexec_fn is not supported: Python code cannot run safely in a child of a program with threads. Use "
            "start_new_session, process_group, user, group, extra_groups, umask, nice, rlimits or cwd instead"
        )
    if options.pop("startupinfo", None) is not None:
        raise ValueError("startupinfo is only supported on Windows platforms")
    if options.pop("creationflags", 0) != 0:
        raise ValueError("creationflags is only supported on Windows platforms")
    if not options.pop("restore_signals", True):
        raise ValueError("restore_signals=False is not supported: a child always has SIGPIPE at its default")


def _unix(options: Dict[str, Any], result: Dict[str, Any]) -> None:
    if options.pop("start_new_session", False):
        result["session"] = True
    group = options.pop("process_group", None)
    if group is not None and group >= 0:
        result["group"] = group
    user = options.pop("user", None)
    if user is not None:
        result["uid"] = _number(user, "user", "pwd")
    gid = options.pop("group", None)
    if gid is not None:
        result["gid"] = _number(gid, "group", "grp")
    groups = options.pop("extra_groups", None)
    if groups is not None:
        if isinstance(groups, str):
            raise TypeError("Groups must be a list, not a string")
        result["groups"] = [_number(it, "extra_groups", "grp") for it in groups]
    umask = options.pop("umask", -1)
    if umask >= 0:
        result["umask"] = umask


def _number(value: Any, name: str, database: str) -> int:
    if isinstance(value, str):
        if database == "pwd":
            import pwd

            return pwd.getpwnam(value).pw_uid
        import grp

        return grp.getgrnam(value).gr_gid
    if not isinstance(value, int):
        raise TypeError(f"{name} must be a string or an integer, not {type(value)}")
    if value < 0:
        raise ValueError(f"{'User' if name == 'user' else 'Group'} ID cannot be negative, got {value}")
    if value >= 1 << 32:
        # The same two classes as in subprocess.
        raise (ValueError if name == "extra_groups" else OverflowError)(f"{name}: {value} is too large")
    return value


def _limit(limit: Any) -> Tuple[Any, ...]:
    """Checks `max_output`."""
    if not isinstance(limit, (int, str)):
        if len(limit) == 2 and limit[0] in _RULES:
            return tuple(limit)
        if len(limit) in (3, 4) and limit[0] == "keep":
            return (*limit[:3], *map(os.fsdecode, limit[3:]))
    rules = f"(rule, bytes), and the rule one of {', '.join(_RULES)}, or ('keep', head, tail) and a folder"
    raise ValueError(f"max_output is {rules}; not {limit!r}")


def _ours(options: Dict[str, Any], result: Dict[str, Any]) -> None:
    if options.pop("tree", True):
        result["tree"] = True
    if not options:
        return
    scope = options.pop("kill_on_parent_exit", None)
    if scope:
        result["parent_exit"] = "tree" if scope is True else scope
        if result["parent_exit"] not in ("child", "tree"):
            raise ValueError("kill_on_parent_exit is True, 'tree' or 'child'")
    limits = options.pop("limits", None)
    if limits is not None:
        result["limits"] = dict(limits)
        for name in result["limits"]:
            if name not in _LIMITS:
                raise ValueError(f"there is no limit {name!r}: they are {', '.join(_LIMITS)}")
    pty = options.pop("pty", None)
    if pty:
        result["pty"] = (24, 80) if pty is True else tuple(pty)
        # A stream that is not set is the terminal.
        for name in ("stdin", "stdout", "stderr"):
            if result[name] == INHERIT or (name != "stdin" and result[name] == PIPE):
                result[name] = -6
    limit = options.pop("max_output", None)
    if limit is not None:
        result["limit"] = _limit(limit)
    nice = options.pop("nice", None)
    if nice is not None:
        result["nice"] = nice
    rlimits = options.pop("rlimits", None)
    if rlimits is not None:
        result["rlimits"] = [(name, soft, hard) for name, (soft, hard) in rlimits.items()]
    for name in _TIMES:
        value = options.pop(name, None)
        if value is not None:
            result[name] = value
