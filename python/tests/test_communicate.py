"""`communicate`: both streams whole in every order of their ends, terminals, input, and what an ended child holds."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import Any, List

import pytest
from helpers import descriptors, has_ended, is_alive, written_pid

import pipewright


@pytest.mark.parametrize("first", ["stdout", "stderr"])
@pytest.mark.parametrize("size", [0, 70000, 3000000])
def test_a_stream_that_ends_first_is_whole(first: str, size: int) -> None:
    # Its end must be seen before the other stream becomes large.
    short, large = (">&2", "") if first == "stderr" else ("", ">&2")
    closed = 2 if first == "stderr" else 1
    script = f"head -c {size} /dev/zero {short}; echo w {short}; exec {closed}>&-; sleep 0.05; "
    script += f"head -c 3000000 /dev/zero {large}"
    for _ in range(3):
        child: Any = pipewright.Popen(["sh", "-c", script], stdout=-1, stderr=-1)
        out, err = child.communicate()
        pair = (err, out) if first == "stderr" else (out, err)
        assert (len(pair[0]), len(pair[1]), child.returncode) == (size + 2, 3000000, 0)


def test_the_output_so_far_has_both_streams() -> None:
    script = "echo w >&2; exec 2>&-; head -c 3000000 /dev/zero; exec sleep 600"
    with pipewright.Popen(["sh", "-c", script], stdout=-1, stderr=-1) as child:
        while True:
            with pytest.raises(pipewright.TimeoutExpired) as error:
                child.communicate(timeout=0.2)
            if error.value.output and len(error.value.output) == 3000000:
                break
        assert error.value.stderr == b"w\n"
        child.kill()
        assert [len(it) for it in child.communicate()] == [3000000, 2]


def test_the_end_of_a_with_closes_what_communicate_holds() -> None:
    # The command reads its input to the end, and some is left.
    child = pipewright.Popen(["sh", "-c", "sleep 0.3; exec cat"], stdin=-1, stdout=-1)
    with pytest.raises(pipewright.TimeoutExpired), child:
        child.communicate(b"x" * 300000, timeout=0.05)
    # Its reader is gone, too.
    assert child.returncode in (0, -signal.SIGPIPE)


def test_a_second_communicate_gives_the_same() -> None:
    child: Any = pipewright.Popen(["sh", "-c", "head -c 2000000 /dev/zero; echo w >&2"], stdout=-1, stderr=-1)
    assert child.communicate() == child.communicate()


def test_a_terminal_gives_all_its_output_and_finds_the_end_of_its_input() -> None:
    child: Any = pipewright.Popen(["head", "-c", "3000000", "/dev/zero"], pty=True)
    assert [len(it or b"") for it in child.communicate()] == [3000000, 0]
    cat: Any = pipewright.Popen(["cat"], pty=True)
    assert cat.communicate(b"hello\n")[0] == b"hello\r\nhello\r\n"
    # An unfinished line.
    cat = pipewright.Popen(["cat"], pty=True, text=True)
    assert cat.communicate("hello")[0] == "hellohello"
    assert pipewright.Popen(["cat"], pty=True).communicate() == (b"", None)


def test_input_for_a_terminal_that_is_not_read_obeys_time_limits_and_signals() -> None:
    child: Any = pipewright.Popen(["sh", "-c", "stty raw -echo; echo; exec sleep 600"], pty=True)
    assert child.stdout.read(1) == b"\n"
    data = b"x" * 1000000
    with pytest.raises(pipewright.TimeoutExpired):
        child.communicate(data, timeout=0.1)

    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(Stop):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            child.communicate()
    finally:
        signal.signal(signal.SIGALRM, before)
        child.kill()
        child.wait()
    child.communicate()


def test_communicate_after_the_end_was_seen() -> None:
    child: Any = pipewright.Popen(["sh", "-c", "echo out; echo err >&2"], stdin=-1, stdout=-1, stderr=-1)
    child.wait()
    assert child.communicate(b"not read") == (b"out\n", b"err\n")


def test_a_child_whose_end_was_seen_holds_no_descriptor() -> None:
    pipewright.Popen(["true"]).wait()
    before = descriptors()
    kept: List[Any] = []
    for number in range(30):
        child: Any = pipewright.Popen(["true"], stdout=-1 if number % 3 == 2 else None, tree=number % 2 == 0)
        if number % 3 == 0:
            child.wait()
        elif number % 3 == 1:
            while child.poll() is None:
                time.sleep(0.001)
        else:
            child.communicate()
        kept.append(child)
    assert descriptors() == before
    assert {it.returncode for it in kept} == {0} and all(it.usage for it in kept)


def test_what_an_ended_child_left_can_still_be_killed(grandchild: Any) -> None:
    script, path = grandchild()
    child = pipewright.Popen(["sh", "-c", script])
    assert child.wait() == 0 and child.poll() == 0
    pid = written_pid(path)
    assert is_alive(pid)
    child.kill()
    has_ended(pid)


def test_a_large_input_is_not_copied() -> None:
    # The limit has room for the input, and not for a second one.
    script = (
        "import resource, sys, pipewright\n"
        "pipewright.Popen(['true'], stdin=-1, stdout=-1).communicate(b'a')\n"
        "data = bytes(400 << 20)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)\n"
        "child = pipewright.Popen(['wc', '-c'], stdin=-1, stdout=-1)\n"
        "print(int(child.communicate(data)[0]))\n"
    )
    assert int(subprocess.check_output([sys.executable, "-c", script])) == 400 << 20


def test_the_large_input_of_a_run_is_not_copied() -> None:
    # A copy of it would be beyond the limit, and is in no peak.
    script = (
        "import asyncio, resource, sys, pipewright\n"
        "from pipewright import Command\n"
        "def peak():\n"
        "    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10\n"
        "async def alone(**options):\n    return await pipewright.run_async(['wc', '-c'], **options)\n"
        "asyncio.run(alone(input=b'a', capture_output=True))\n"
        "Command(['cat']) | Command(['cat'])\n"
        "data = b'a' * (400 << 20)\n"
        "before, references = peak(), sys.getrefcount(data)\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)\n"
        "options = dict(input=data, capture_output=True)\n"
        "for done in (pipewright.run(['wc', '-c'], **options), asyncio.run(alone(**options)),\n"
        "             (Command(['cat']) | Command(['wc', '-c'])).run(**options)):\n"
        "    print(int(done.stdout))\n"
        "done = pipewright.run(['head', '-c', '1000'], **options)\n"
        "print(len(done.stdout), done.stdin_unread >= len(data) - (1 << 20))\n"
        "options.clear()\n"
        "print(peak() - before < 40 << 20, sys.getrefcount(data) == references)\n"
    )
    size = b"419430400\n"
    said = subprocess.check_output([sys.executable, "-c", script])
    assert said == 3 * size + b"1000 True\nTrue True\n"


@pytest.mark.parametrize("how", ["run(command, stdout=-1)", "asyncio.run(run_async(command, stdout=-1))"])
def test_an_output_of_a_run_that_does_not_fit_into_memory_is_a_memory_error(how: str) -> None:
    script = (
        "import asyncio, resource\n"
        "from pipewright import run, run_async\n"
        "command = ['true']\n"
        f"{how}\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "for room in (24, 28, 33, 44):\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (used + (room << 20), resource.RLIM_INFINITY))\n"
        "    command = ['head', '-c', '100000000', '/dev/zero']\n"
        f"    try: {how}\n"
        "    except MemoryError: print('memory', end=' ')\n"
    )
    assert subprocess.check_output([sys.executable, "-c", script]) == 4 * b"memory "


def test_an_output_that_does_not_fit_into_memory_is_a_memory_error() -> None:
    script = (
        "import resource, sys, pipewright\n"
        "pipewright.Popen(['true'], stdin=-1, stdout=-1).communicate(b'a')\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (300 << 20),) * 2)\n"
        "child = pipewright.Popen(['head', '-c', '500000000', '/dev/zero'], stdout=-1, stderr=-1)\n"
        "try:\n    child.communicate()\n"
        "except MemoryError:\n    print('memory'); child.kill(); child.wait()\n"
    )
    assert subprocess.check_output([sys.executable, "-c", script]) == b"memory\n"
