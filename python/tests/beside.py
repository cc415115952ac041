"""Random cases run by `subprocess` or `asyncio` and by pipewright, side by side. Each is made of a seed and a number.

`python beside.py --seed S --case N` runs one case again; `--cases N --jobs J` many, in processes.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import termios
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import beside_async
import beside_limits
from beside_shared import LIMIT, Case, Finding, descriptors, left_of

import pipewright

#: Sizes around every threshold: a page, a pipe, what counts as large, an enlarged pipe, and beyond.
SIZES = [0, 1, 2, 4095, 4096, 4097, 65535, 65536, 65537, 131072, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3000000]
CODECS = [None, None, "utf-8", "utf-16", "utf-8-sig", "utf-16-le", "latin-1", "ascii", "locale"]
ERRORS = [None, None, "strict", "replace", "ignore", "surrogateescape"]


def outcome(work: Callable[[], Any]) -> Tuple[Any, ...]:
    """Returns what the work returned or raised, without the classes of either module."""
    try:
        return ("returned", work())
    except Hangs:
        raise
    except BaseException as error:
        name = next(it.__name__ for it in type(error).__mro__ if not it.__module__.startswith("pipewright"))
        facts = [getattr(error, it, None) for it in ("returncode", "output", "stderr", "errno")]
        if isinstance(error, UnicodeError):
            facts = [getattr(error, it, None) for it in ("encoding", "start", "reason")]
        return ("raised", name, *facts)


def text_options(r: random.Random) -> Dict[str, Any]:
    options: Dict[str, Any] = {}
    if r.random() < 0.6:
        return options
    if r.random() < 0.4:
        options["text"] = True
    codec, errors = r.choice(CODECS), r.choice(ERRORS)
    if codec == "locale" and sys.version_info < (3, 10):
        codec = None
    if codec:
        options["encoding"] = codec
    if errors:
        options["errors"] = errors
    return options


def is_text(options: Dict[str, Any]) -> bool:
    return any(options.get(it) for it in ("text", "encoding", "errors"))


def some_input(r: random.Random, options: Dict[str, Any]) -> Any:
    size = r.choice(SIZES)
    return "zeile\n" * (size // 6) if is_text(options) else bytes(size)


def script(case: Case, r: random.Random, reads: bool = False) -> str:
    """Makes shell text that writes both streams in some order, closes them when it likes, and ends as it likes."""
    parts: List[str] = []
    files = [case.data(it) for it in ("plain", "text", "utf-16", "utf-8-sig")]
    for _ in range(r.randint(0, 5)):
        piece, to = r.random(), r.choice(["", ">&2"])
        if piece < 0.6:
            parts.append(f"head -c {r.choice(SIZES)} {r.choice(files)} {to}")
        elif piece < 0.75:
            file = r.choice(files)
            # Two writers of one stream would be in an order by chance.
            parts.append(f"head -c {r.choice(SIZES)} {file} 2>/dev/null & head -c {r.choice(SIZES)} {file} >&2; wait")
        elif piece < 0.85:
            parts.append(r.choice(["echo w", "printf 'a\\r\\nb\\rc'", "printf '\\303'"]) + f" {to}")
        elif piece < 0.95:
            parts.append(f"exec {r.choice('12')}>&-")
        else:
            parts.append(f"sleep 0.0{r.randint(1, 3)}")
    if reads or r.random() < 0.2:
        parts.insert(
            r.randint(0, len(parts)), r.choice(["cat", "cat >/dev/null", "head -c 70000 >/dev/null", "exec <&-"])
        )
    parts.append(r.choice(["exit 0", "exit 0", "exit 3", "kill -9 $$", "kill -TERM $$", "exec true"]))
    return "; ".join(parts)


def stream_options(r: random.Random) -> Dict[str, Any]:
    pick = r.random()
    if pick < 0.6:
        return {"stdout": -1, "stderr": -1}
    if pick < 0.75:
        return {"stdout": -1, "stderr": subprocess.STDOUT}
    return {"stdout": r.choice([-1, subprocess.DEVNULL]), "stderr": r.choice([-1, subprocess.DEVNULL])}


def is_of_another_decoder(options: Dict[str, Any], theirs: Any, ours: Any) -> bool:
    """Where subprocess reads one stream only, an incremental decoder is at work, which differs from `bytes.decode`."""
    if theirs[:2] == ("raised", "UnicodeError"):
        # "UTF-16 stream does not start with BOM".
        return True
    if options.get("encoding") != "utf-8-sig" or theirs[0] != "returned" or "''" not in repr(theirs):
        return False
    # It takes a mark that is cut for nothing.
    errors = options.get("errors") or "strict"
    cut = [outcome(lambda mark=mark: mark.decode("utf-8-sig", errors)) for mark in (b"\xef", b"\xef\xbb")]
    return any(it[:2] == ours[:2] if it[0] == "raised" else repr(it[1]) in repr(ours) for it in cut)


def run_case(case: Case, r: random.Random) -> None:
    """`run`, `check_output` and `call` with random streams, text, input and limits."""
    options: Dict[str, Any] = {**stream_options(r), **text_options(r)}
    if r.random() < 0.4:
        options["input"] = some_input(r, options)
    else:
        options["stdin"] = subprocess.DEVNULL
    if r.random() < 0.3:
        options["check"] = True
    argv = ["sh", "-c", script(case, r, "input" in options)]
    if options.get("stderr") == subprocess.STDOUT:
        # Writers that take turns: the order in one pipe would be chance.
        argv[2] = argv[2].replace(" & ", "; ")
    kept: List[Any] = []

    def by(module: Any) -> Any:
        done = module.run(argv, **options)
        kept.append(done)
        return done.returncode, done.stdout, done.stderr

    pair = [outcome(lambda m=m: by(m)) for m in (subprocess, pipewright)]
    if not is_of_another_decoder(options, *pair):
        case.compare(argv, options, pair)


def limited_case(case: Case, r: random.Random) -> None:
    """`run` with `max_output`, beside the same part of the whole output."""
    size, keep, kind = r.choice(SIZES), r.choice([1, 1001, 65536, 100003]), r.choice(["head", "tail"])
    options: Dict[str, Any] = {"stdout": -1, **r.choice([{}, {"encoding": "utf-8"}, {"encoding": "utf-16"}])}
    file = case.data("utf-16" if options.get("encoding") == "utf-16" else "text")
    whole = Path(file).read_bytes()[:size]
    part = whole[:keep] if kind == "head" else whole[len(whole) - min(keep, len(whole)) :]
    ours = outcome(lambda: pipewright.run(["head", "-c", str(size), file], max_output=(kind, keep), **options).stdout)
    if not is_text(options):
        case.compare(file, {"max_output": (kind, keep)}, [("returned", part), ours])
    elif (
        ours[0] != "returned"
        and keep < size
        and (kind == "head" or outcome(lambda: whole.decode(options["encoding"]))[0] == "returned")
    ):
        # The whole may end inside of a character; what the limit cuts off may not.
        case.found(f"max_output with text: {kind} {keep} of {size}: {ours!r:.200}")


def popen_case(case: Case, r: random.Random) -> None:
    """`Popen` with its files used first, `communicate` in one or several calls, kept afterwards."""
    options: Dict[str, Any] = {**stream_options(r), **text_options(r)}
    if r.random() < 0.5:
        options["stdin"] = -1
    else:
        options["stdin"] = subprocess.DEVNULL
    if r.random() < 0.15:
        options["pipesize"] = r.choice([4096, 65536, 1 << 20])
    if r.random() < 0.2 and not is_text(options):
        options["bufsize"] = r.choice([0, -1, 4096])
    argv = ["sh", "-c", script(case, r, options["stdin"] == -1)]
    if options.get("stderr") == subprocess.STDOUT:
        argv[2] = argv[2].replace(" & ", "; ")
    first = r.choice([None, None, "readline", "read"]) if not is_text(options) else None
    if first:
        # Of what a file object has read ahead, `communicate` of subprocess knows nothing.
        options["bufsize"] = 0
        # Its command would wait for a reader of the other stream.
        options["stderr"] = subprocess.DEVNULL
    data = some_input(r, options) if options["stdin"] == -1 and r.random() < 0.7 else None
    times = r.choice([None, None, 0, 0.01])
    if times is not None:
        # The rest of an input after a time limit is what subprocess forgets, and its command waits for.
        data = None
    kept: List[Any] = []

    def by(module: Any) -> Any:
        child: Any = module.Popen(argv, **options)
        kept.append(child)
        result: List[Any] = []
        try:
            if first == "readline" and child.stdout and child.stdin is None:
                result.append(child.stdout.readline())
            if first == "read" and child.stdout and child.stdin is None:
                # One read of an unbuffered file returns what is there at that moment.
                head = child.stdout.read(3)
                while len(head) < 3 and (more := child.stdout.read(3 - len(head))):
                    head += more
                result.append(head)
            if times is not None:
                try:
                    child.communicate(data, timeout=times)
                except subprocess.TimeoutExpired:
                    pass
                else:
                    raise RuntimeError("ended within no time")
            result.append(child.communicate(None if times is not None else data))
            result.append(child.wait())
            return result
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
            for file in (child.stdin, child.stdout, child.stderr):
                if file:
                    try:
                        file.close()
                    except BrokenPipeError:
                        continue

    pair = [outcome(lambda m=m: by(m)) for m in (subprocess, pipewright)]
    if any(it[0] == "raised" and it[1] == "RuntimeError" for it in pair):
        # One was faster than the other.
        return
    if is_of_another_decoder(options, *pair):
        return
    case.compare(argv, {**options, "first": first, "data": data and len(data), "times": times}, pair)


def is_unread(file: Any) -> bool:
    """Returns true if something waits in the pipe of the file."""
    return not file.closed and any(fcntl.ioctl(file.fileno(), termios.FIONREAD, bytes(4)))


def timeout_case(case: Case, r: random.Random) -> None:
    """The output so far in `TimeoutExpired`, once all of it is known to be written; then the whole."""
    options: Dict[str, Any] = {"stdout": -1, "stderr": -1, **text_options(r)}
    mark = case.path("mark")
    text = script(case, r).rsplit("; ", 1)[0].replace("exec true", "true")
    argv = [
        "sh",
        "-c",
        f"{text}; : > {mark}; exec sleep 600 >/dev/null 2>&1" if r.random() < 0.5 else f"{text}; : > {mark}; sleep 600",
    ]
    mark_path = Path(mark)

    def by(module: Any) -> Any:
        mark_path.unlink(missing_ok=True)
        child: Any = module.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True, **options)
        try:
            until = time.monotonic() + LIMIT
            error: Any = None
            while True:
                is_written = mark_path.exists()
                try:
                    child.communicate(timeout=0.05)
                    raise AssertionError("it sleeps")
                except subprocess.TimeoutExpired as expired:
                    error = expired
                # On a busy machine the time may be up before all of it has been read.
                is_read = is_written and not (is_unread(child.stdout) or is_unread(child.stderr))
                if is_read or time.monotonic() > until:
                    break
            # Nothing at all is `None` or empty, by the time of the end of the stream.
            so_far = error.output or None, error.stderr or None
            os.killpg(child.pid, 9)
            return so_far, child.communicate(), child.wait()
        finally:
            if child.poll() is None:
                os.killpg(child.pid, 9)
                child.wait()
            for file in (child.stdout, child.stderr):
                file.close()

    theirs, ours = [outcome(lambda m=m: by(m)) for m in (subprocess, pipewright)]
    if theirs[0] == ours[0] == "returned" and theirs[1][0] == (None, None):
        # A row of the table of differences: all streams had ended.
        theirs, ours = theirs[1][1:], ours[1][1:]
    case.compare(argv, options, [theirs, ours])


def terminal_case(case: Case, r: random.Random) -> None:
    """A terminal: its output with `\\n` as `\\r\\n`, a line typed, and the end of the input."""
    size = r.choice([0, 1, 4096, 65536, (1 << 20) + 1, 3000000])
    typed = r.choice([None, b"hello\n", b"x" * 200 + b"\n"])
    argv = ["sh", "-c", f"{'cat; ' if typed else ''}head -c {size} {case.data('plain')}"]
    whole = Path(case.data("plain")).read_bytes()[:size].replace(b"\n", b"\r\n")
    expected = (typed or b"").replace(b"\n", b"\r\n") * 2 + whole

    def ours() -> Any:
        child: Any = pipewright.Popen(argv, pty=True)
        try:
            # With a limit, so that a wait for an end of the input that never comes is seen.
            out, _ = child.communicate(typed, timeout=LIMIT)
            return out, child.wait()
        finally:
            child.kill()

    case.compare(argv, {"typed": typed}, [("returned", (expected, 0)), outcome(ours)])


KINDS: List[Tuple[int, Callable[[Case, random.Random], None]]] = [
    (30, run_case),
    (30, popen_case),
    (6, timeout_case),
    (6, limited_case),
    (6, terminal_case),
    *beside_async.KINDS,
    *beside_limits.KINDS,
]


#: The time after which a case hangs, beyond the limits within it. One takes a second at most, and ten times or more
#: that where ten processes want each processor.
SECONDS = int(2 * LIMIT)


class Hangs(Exception):
    """A case that does not end."""


def hangs(*_: object) -> None:
    raise Hangs(f"the case hangs for {SECONDS} s")


def one(seed: int, number: int) -> List[Finding]:
    """Runs a case. Returns what differs."""
    r = random.Random(f"{seed}/{number}")
    kind = r.choices([it for _, it in KINDS], [weight for weight, _ in KINDS])[0]
    case = Case(seed, number, kind.__name__)
    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    try:
        gc.collect()
        before = descriptors()
        kind(case, r)
        signal.alarm(0)
        if descriptors() != before:
            gc.collect()
            left = left_of(before)
            if left:
                case.found(f"{left} descriptors are left")
    except Exception:
        case.found("the case itself: " + traceback.format_exc(limit=-6))
    finally:
        signal.alarm(0)
    return case.findings


#: Rows that are known, with what the net says of them. Empty once they are mended.
KNOWN: Dict[str, str] = {}


def row_of(finding: Finding) -> str:
    return next((row for row, text in KNOWN.items() if re.search(text, str(finding))), "")


class Job(NamedTuple):
    """Some cases, one after another; none is begun after that time of the system's clock."""

    seed: int
    first: int
    count: int
    folder: str
    until: float


def several(job: Job) -> Tuple[int, List[Finding]]:
    """Runs cases. Returns the number that ran, and what differs."""
    warnings.simplefilter("ignore")
    if time.time() > job.until:
        return 0, []
    if not hasattr(Case, "folder"):
        Case.folder = Path(job.folder)
        beside_limits.warm_up()
    found: List[Finding] = []
    for number in range(job.first, job.first + job.count):
        if time.time() > job.until:
            return number - job.first, found
        found += one(job.seed, number)
    return job.count, found


def many(given: Any, numbers: range) -> Tuple[int, List[Finding]]:
    """Runs cases in processes of their own, and prints what differs."""
    share = 10
    until = time.time() + given.seconds
    ran, found = 0, []
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        Case.use(folder)
        jobs = [Job(given.seed, at, min(share, numbers.stop - at), folder, until) for at in numbers[::share]]
        with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
            for count, part in pool.imap_unordered(several, jobs):
                ran += count
                found += part
                for finding in part:
                    print(finding, flush=True)
    return ran, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--case", type=int)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9, help="no case begins after that time")
    given = parser.parse_args()
    if given.case is not None:
        given.jobs = 1
    first, count = (given.first, given.cases) if given.case is None else (given.case, 1)
    ran, found = many(given, range(first, first + count))
    rows = [row_of(it) for it in found]
    print(f"{ran} cases, {len(found)} findings: {rows.count('')} new;", *(f"{it} {rows.count(it)}" for it in KNOWN))
    return 1 if "" in rows else 0


if __name__ == "__main__":
    sys.exit(main())
