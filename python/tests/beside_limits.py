"""Cases of `beside.py` about what a process has little of, what a kept object holds, and how a program ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import resource
import subprocess
import sys
from typing import Any, Callable, Iterator, List, Tuple

from beside_shared import Case, descriptors, left_of

import pipewright

#: The most descriptors of a live command, by the README.
LIVE = {"cgroup": (3, 6), "supervisor": (3, 6), "group": (1, 5), "none": (1, 5)}


@contextlib.contextmanager
def few_descriptors(free: int) -> Iterator[None]:
    """Leaves only some descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    # `listdir` has one, too.
    limit = max(int(it) for it in os.listdir("/proc/self/fd")) + free
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    # Also those below the highest one are taken.
    held: List[int] = []
    with contextlib.suppress(OSError):
        while True:
            held.append(os.open("/dev/null", os.O_RDONLY))
    for _ in range(min(free, len(held))):
        os.close(held.pop())
    try:
        yield
    finally:
        for number in held:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def warm_up() -> None:
    """Starts the threads that a process keeps, and their descriptors."""

    async def main() -> None:
        await pipewright.run_async(["true"], timeout=60)

    asyncio.run(main())
    pipewright.run(["true"], timeout=60, capture_output=True)
    pipewright.Popen(["sleep", "0.01"])
    pipewright.run(["sleep", "0.05"])


def kept_case(case: Case, r: random.Random) -> None:
    """Objects that have ended and are kept hold no descriptor."""
    how, many = r.choice(["popen", "popen poll", "communicate", "events", "lines", "run"]), r.randint(1, 5)
    kept: List[Any] = []
    before = descriptors()
    for _ in range(many):
        if how.startswith("popen"):
            child: Any = pipewright.Popen(["true"])
            while how == "popen poll" and child.poll() is None:
                pass
            child.wait()
            kept.append(child)
        elif how == "communicate":
            child = pipewright.Popen(["echo"], stdout=-1, stderr=-1)
            child.communicate()
            kept.append(child)
        elif how == "run":
            kept.append(pipewright.run(["echo"], capture_output=True))
        else:
            stream = getattr(pipewright, how)(["echo"])
            kept += [stream, list(stream)]
    left = left_of(before)
    if left:
        case.found(f"{many} kept objects ({how}) keep {left} descriptors")


def live_case(case: Case, r: random.Random) -> None:
    """Live commands have as many descriptors as the README says."""
    many = r.randint(1, 5)
    before = descriptors()
    children = [pipewright.Popen(["sleep", "600"]) for _ in range(many)]
    each = (descriptors() - before) / many
    bare, captured = LIVE[children[0].containment]
    for child in children:
        child.kill()
        child.wait()
    if each > bare:
        case.found(f"a live Popen has {each} descriptors, not {bare}")

    async def main() -> float:
        await pipewright.run_async(["true"])
        before = descriptors()
        tasks = [
            asyncio.ensure_future(pipewright.run_async(["sleep", "600"], capture_output=True)) for _ in range(many)
        ]
        while descriptors() == before:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        each = (descriptors() - before) / many
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return each

    del children, child
    each = asyncio.run(main())
    if each > captured:
        case.found(f"a captured run_async has {each} descriptors, not {captured}")


def few_case(case: Case, r: random.Random) -> None:
    """More runs at once than there are descriptors for: all succeed, one after the other."""
    free, many = r.randint(30, 60), r.choice([5, 20, 40])

    async def main() -> List[Any]:
        await pipewright.run_async(["true"])
        with few_descriptors(free):
            runs = [
                pipewright.run_async(["sh", "-c", f"sleep 0.01; echo {n}"], capture_output=True) for n in range(many)
            ]
            return await asyncio.gather(*runs, return_exceptions=True)

    got = [it if isinstance(it, Exception) else it.stdout for it in asyncio.run(main())]
    if got != [b"%d\n" % n for n in range(many)]:
        failed = [it for it in got if isinstance(it, Exception)]
        case.found(f"with {free} free descriptors {len(failed)} of {many} runs fail: {failed[:1]!r:.150}")


def exact_case(case: Case, r: random.Random) -> None:
    """A call with a few free descriptors: it succeeds, or is EMFILE and starts nothing; nothing is left."""
    mark, free = case.path("mark"), r.randint(0, 14)
    how = r.choice(["run", "input", "popen", "lines", "events", "pipeline"])
    argv = ["sh", "-c", f"echo a; : > {mark}; cat"]

    def use() -> bytes:
        if how == "popen":
            with pipewright.Popen(argv, stdin=-1, stdout=-1, stderr=-1) as child:
                return bytes(child.communicate(b"b")[0])
        if how in ("lines", "events"):
            got: List[Any] = list(getattr(pipewright, how)(argv, input=b"b"))
            return b"a\nb" if how == "lines" else b"".join(it.value for it in got if it.kind == "stdout")
        if how == "pipeline":
            both = pipewright.Command(["cat"]) | pipewright.Command(argv)
            return bytes(both.run(input=b"b", capture_output=True).stdout)
        return bytes(pipewright.run(argv, input=b"b" if how == "input" else b"", capture_output=True).stdout)

    def outcome() -> Any:
        try:
            return use()
        except OSError as error:
            return error.errno

    expected = b"a\n" if how == "run" else b"a\nb"
    # What it imports and the threads that stay take descriptors too.
    if use() != expected:
        case.found(f"{how}: another output than {expected!r}")
    os.unlink(mark)
    before = descriptors()
    with few_descriptors(free + 1):
        got = outcome()
    has_run = os.path.exists(mark)
    if got not in (expected, errno.EMFILE):
        case.found(f"{how} with {free} free descriptors: {got!r}")
    if got == errno.EMFILE and has_run:
        case.found(f"{how} with {free} free descriptors fails, and the command has run")
    left = left_of(before)
    if left:
        case.found(f"{how} with {free} free descriptors leaves {left}")
    if outcome() != expected:
        case.found(f"{how} after one with {free} free descriptors differs")


LITTLE = """
import importlib, resource, sys
m, how, size, room = importlib.import_module(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
source = ["head", "-c", str(size), "/dev/zero"]
def use(size, source):
    if how == "run": return len(m.run(source, stdout=-1, stderr=-1).stdout)
    if how == "text": return len(m.run(source, stdout=-1, stderr=-1, text=True).stdout)
    if how == "input": return int(m.run(["wc", "-c"], input=bytes(size), stdout=-1).stdout)
    with m.Popen(["cat"], stdin=-1, stdout=-1) as child: return len(child.communicate(bytes(size))[0])
use(1, ["head", "-c", "1", "/dev/zero"])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
before = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + room, before[1]))
try: print(use(size, source))
except MemoryError: print("MemoryError")
resource.setrlimit(resource.RLIMIT_AS, before)
print(use(1000, ["head", "-c", "1000", "/dev/zero"]))
"""


def little_case(case: Case, r: random.Random) -> None:
    """Little memory: the result where subprocess has one, otherwise a `MemoryError`, and the next call works."""
    how = r.choice(["run", "text", "input", "communicate"])
    size = r.choice([1 << 20, 3 << 20, 20 << 20, 60 << 20])
    # Beside the output, room for the stack of a thread.
    room = (r.choice([16, 24, 40]) << 20) + int(size * r.uniform(0, 4))

    def by(module: Any) -> Any:
        command = [sys.executable, "-W", "ignore", "-c", LITTLE, module.__name__, how, str(size), str(room)]
        done = subprocess.run(command, stdout=-1, stderr=subprocess.PIPE, text=True)
        return done.returncode, done.stdout.split(), done.stderr[-300:] if done.returncode else ""

    theirs, ours = by(subprocess), by(pipewright)
    failed = (0, ["MemoryError", "1000"], "")
    if ours != (0, [str(size), "1000"], "") and (ours != failed or theirs[:2] == (0, [str(size), "1000"])):
        case.found(f"{how} of {size} bytes with room for {room}: theirs {theirs}, ours {ours}")


TEXT = """
import importlib, sys
m, how, options = importlib.import_module(sys.argv[1]), sys.argv[2], eval(sys.argv[3])
data = sys.argv[4]
def use():
    if how == "run": return m.run(["cat"], input=data, stdout=-1, **options).stdout
    if how == "file":
        with m.Popen(["cat"], stdin=-1, stdout=-1, **options) as child:
            child.stdin.write(data); child.stdin.close()
            return child.stdout.read(), child.encoding, child.stdout.encoding, child.stdin.errors
    if how == "output": return m.check_output(["printf", "%b", "a\\\\303\\\\251\\\\r\\\\n\\\\377"], **options)
    return m.getoutput("printf 'b%s' " + repr(data))
try: print(ascii(use()))
except Exception as error:
    print(next(it.__name__ for it in type(error).__mro__ if not it.__module__.startswith("pipewright")))
"""


def locale_case(case: Case, r: random.Random) -> None:
    """Text without and with an encoding in another locale and in the UTF-8 mode."""
    how = r.choice(["run", "file", "output", "getoutput"])
    options: Any = {"text": True}
    for name, values in (("encoding", [None, None, "utf-8", "latin-1"]), ("errors", [None, "replace", "ignore"])):
        value = r.choice(values)
        if value:
            options[name] = value
    text = r.choice(["é€😀\n", "plain\r\nx\ry", "", "\udcff"])
    flags = r.choice([[], ["-X", "utf8=1"], ["-X", "utf8=0"], ["-W", "error", "-X", "warn_default_encoding"]])
    env = {**os.environ, "LC_ALL": r.choice(["C", "POSIX", "C.UTF-8"]), "PYTHONCOERCECLOCALE": r.choice("01")}

    def by(module: Any) -> Any:
        command = [sys.executable, *flags, "-c", TEXT, module.__name__, how, repr(options), text]
        done = subprocess.run([os.fsencode(it) for it in command], stdout=-1, stderr=-1, env=env, text=True)
        return done.returncode, done.stdout

    theirs, ours = by(subprocess), by(pipewright)
    if theirs[1] != "UnboundLocalError\n":
        # A fault of its own, with an input that is empty once it has been encoded.
        case.compare([how, text, flags, env["LC_ALL"]], options, [theirs, ours])


def refused_case(case: Case, r: random.Random) -> None:
    """Calls that are refused: the same class of error, nothing started, nothing left."""
    options: Any = r.choice(
        [
            *({"encoding": "no-such"}, {"text": True, "errors": "no-such"}, {"pipesize": 1 << 31}, {"bufsize": -2}),
            *({"pipesize": 1 << 30}, {"cwd": "/no-such"}, {"pass_fds": [999]}, {"stdout": 998}),
        ]
    )
    mark = case.path("refused")
    argv = ["sh", "-c", f": > {mark}"] if "encoding" in options else ["cat"]
    kept: List[BaseException] = []

    def by(module: Any) -> Any:
        try:
            child = module.Popen(argv, **{"stdin": -1, "stdout": -1, "stderr": -1, **options})
        except Exception as error:
            kept.append(error)
            return next(it.__name__ for it in type(error).__mro__ if not it.__module__.startswith("pipewright"))
        for file in (child.stdin, child.stdout, child.stderr):
            if file:
                file.close()
        return child.wait()

    # subprocess leaks two descriptors then.
    theirs = "LookupError" if "encoding" in options else by(subprocess)
    kept.clear()
    before = descriptors()
    ours = by(pipewright)
    left = left_of(before)
    if left:
        case.found(f"{options}: {left} descriptors are left of a Popen that was refused")
    case.compare(argv, options, [theirs, ours])


ENDING = """
import sys, os, importlib
m = importlib.import_module(sys.argv[1])
def main():
    child = m.Popen(["sleep", "600"], stdin=m.DEVNULL, stdout=m.DEVNULL, stderr=m.DEVNULL, **eval(sys.argv[3]))
    print(child.pid, flush=True)
    return child
how = sys.argv[2]
if how == "local": main()
if how == "global": child = main()
if how == "exit": child = main(); sys.exit(3)
if how == "error": child = main(); raise SystemError
if how == "_exit": child = main(); os._exit(3)
"""


def ending_case(case: Case, r: random.Random) -> None:
    """A program that ends while its command runs: the command lives on, in both."""
    how = r.choice(["local", "global", "exit", "error", "_exit"])
    options = r.choice(["{}", "{'start_new_session': True}"])

    def by(module: Any) -> Any:
        command = [sys.executable, "-W", "ignore", "-c", ENDING, module.__name__, how, options]
        done = subprocess.run(command, stdout=-1, stderr=subprocess.DEVNULL)
        pid = int(done.stdout)
        try:
            with open(f"/proc/{pid}/stat") as file:
                lives = file.read().rsplit(") ", 1)[1][0] not in "ZX"
        except OSError:
            lives = False
        if lives:
            os.kill(pid, 9)
        return done.returncode, lives

    case.compare(how, {"options": options}, [by(subprocess), by(pipewright)])


KINDS: List[Tuple[int, Callable[[Case, random.Random], None]]] = [
    (4, kept_case),
    (2, live_case),
    (3, few_case),
    (3, exact_case),
    (2, little_case),
    (2, locale_case),
    (3, refused_case),
    (3, ending_case),
]
