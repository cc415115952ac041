"""What programs and their tests do with `subprocess`: copies, audits, other classes in its place, interrupts."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import signal
import subprocess
import sys
from typing import Any, List, Tuple
from unittest import mock

import pytest
from helpers import skip

import pipewright
from pipewright import ipc


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_results_and_errors_can_be_copied(copied: Any) -> None:
    done = copied(pipewright.run(["sh", "-c", "echo a; exit 3"], capture_output=True))
    assert (done.returncode, done.stdout, done.outcome, done.usage["user"] >= 0) == (3, b"a\n", "exited", True)
    for call in (
        lambda: pipewright.run(["false"], check=True, capture_output=True),
        lambda: pipewright.run(["sleep", "600"], timeout=0.01),
        lambda: pipewright.run(["no-such-program"]),
        lambda: pipewright.run(["a\0b"]),
        lambda: pipewright.run(["sleep", "600"], idle_timeout=0.01),
    ):
        with pytest.raises(Exception) as error:
            call()
        again = copied(error.value)
        assert type(again) is type(error.value) and str(again) == str(error.value)


def test_starts_are_audited_as_those_of_subprocess() -> None:
    script = (
        "import sys, {0} as m\n"
        "seen = []\n"
        "sys.addaudithook(lambda name, args: seen.append(args) if name == 'subprocess.Popen' else None)\n"
        "m.run(['true']); m.run('true', shell=True, cwd='/'); m.Popen(['a', 'b'], executable='/bin/true').wait()\n"
        "m.call(['true'], env={{'A': 'b'}}); m.check_output(['true'], text=True)\n"
        "print(seen)\n"
    )
    seen = [subprocess.check_output([sys.executable, "-c", script.format(it)]) for it in ("subprocess", "pipewright")]
    assert seen[0] == seen[1]


def test_another_popen_in_its_place_is_used() -> None:
    with mock.patch("pipewright.Popen") as popen:
        process = popen.return_value.__enter__.return_value
        process.communicate.return_value = (b"faked", None)
        process.poll.return_value = 0
        process.wait.return_value = 7
        assert pipewright.run(["touch", "/no-such/a"]).stdout == b"faked"
        assert pipewright.check_output(["touch", "/no-such/a"]) == b"faked"
        assert pipewright.call(["touch", "/no-such/a"]) == 7
        with pytest.raises(pipewright.CalledProcessError):
            pipewright.check_call(["touch", "/no-such/a"])
    assert pipewright.run(["true"]).returncode == 0


def test_a_stop_that_waits_sees_signals() -> None:
    class Stop(Exception):
        pass

    def stop(*_: object) -> None:
        raise Stop

    child: Any = pipewright.Popen(["sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"], stdout=-1)
    child.stdout.readline()
    before = signal.signal(signal.SIGALRM, stop)
    try:
        # The watchdog of the suite is shorter.
        with pytest.raises(Stop):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            child.stop(grace=1000)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert child.wait() == -signal.SIGKILL


def test_a_signal_that_is_refused_is_a_permission_error() -> None:
    if os.getuid() != 0:
        skip("root", "only root may change its user")
    script = (
        "import os, sys, pipewright\n"
        "child = pipewright.Popen(['sleep', '600'], tree=False)\n"
        "pipewright.Error\n"
        "os.setresuid(65534, 65534, 0)\n"
        "try:\n    child.terminate()\n"
        "except PermissionError as error:\n    print(error.errno)\n"
        "os.setresuid(0, 0, 0); child.kill(); child.wait()\n"
    )
    assert int(subprocess.check_output([sys.executable, "-c", script])) == errno.EPERM


def test_wrong_options_say_what_is_allowed() -> None:
    wrong: List[Tuple[Any, str]] = [
        ({"max_output": 100}, "head, tail, fail"),
        ({"max_output": ("all", 1)}, "head, tail, fail"),
        ({"max_output": ("keep", 1)}, "'keep', head, tail"),
        ({"limits": {"mem": 1}}, "memory"),
    ]
    for options, words in wrong:
        with pytest.raises(ValueError, match=words):
            pipewright.run(["true"], **options)


def test_a_program_without_a_name_is_an_os_error() -> None:
    for call in (pipewright.run, pipewright.Popen, pipewright.check_output):
        for command in ([""], "", ["", "a"]):
            with pytest.raises(OSError):
                call(command)
    with pytest.raises(OSError):
        pipewright.run([""], cwd="/")


def test_a_pool_maps_more_than_may_wait() -> None:
    program = "from pipewright.ipc import Worker; Worker(lambda request: request[::-1]).serve()"
    with ipc.Pool([sys.executable, "-c", program], workers=2, max_waiting=8) as pool:
        replies = pool.map(b"%04d" % n for n in range(100))
        assert list(replies) == [(b"%04d" % n)[::-1] for n in range(100)]

        def endless() -> Any:
            while True:
                yield b"ab"

        assert next(pool.map(endless())) == b"ba"


def test_a_failed_end_of_a_batch_is_told() -> None:
    batch = pipewright.batch(["true"] * 3)

    class Failing:
        def __init__(self, native: Any) -> None:
            self.native = native

        def __getattr__(self, name: str) -> Any:
            return getattr(self.native, name)

        def finish(self) -> None:
            self.native.finish()
            raise pipewright.BatchError("the log cannot be closed")

    batch._native = Failing(batch._native)  # type: ignore[assignment]
    with pytest.raises(pipewright.BatchError, match="the log cannot be closed"):
        batch.run()
    assert batch.counts["halted"] == "failed" and not batch.ok and "Batch" in repr(batch)
