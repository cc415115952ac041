"""What subprocess cannot do: trees, time limits with output, held pipes, terminals, limits, facts."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import LIMIT, has_ended, is_alive, pid_in, skip, timed_out, wait_until, written_pid

import pipewright

PYTHON = sys.executable


def test_no_process_is_left_when_run_returns(grandchild: Any) -> None:
    script, path = grandchild(session=True)
    done = pipewright.run(script, shell=True)
    pid = written_pid(path)
    if done.containment not in ("cgroup", "supervisor"):
        skip("supervisor", f"trees are contained by {done.containment}")
    assert not is_alive(pid) and done.leftovers_killed == 1


def test_tree_false_leaves_what_the_command_left(grandchild: Any) -> None:
    script, path = grandchild(session=True)
    done = pipewright.run(script, shell=True, tree=False)
    assert (done.containment, done.leftovers_killed) == ("none", 0)
    assert is_alive(written_pid(path))


def test_a_time_limit_ends_the_whole_tree_and_keeps_the_output(grandchild: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def limited(seconds: float) -> None:
        nonlocal begun, path
        script, path = grandchild(streams="")
        script = f"echo started; echo err >&2; {script} : > {mark}; exec sleep 600"
        begun = time.monotonic()
        pipewright.run(script, shell=True, capture_output=True, timeout=seconds)

    begun, path = 0.0, mark
    error = timed_out(limited, mark, 1)
    assert time.monotonic() - begun >= error.timeout >= 1
    assert (error.output, error.stderr) == (b"started\n", b"err\n")
    assert isinstance(error, pipewright.TimeoutExpired) and error.ending is not None
    assert error.ending.outcome == "timed_out"
    has_ended(written_pid(path))


def test_a_held_pipe_does_not_make_a_call_hang(grandchild: Any) -> None:
    script, path = grandchild(streams="")
    done = pipewright.run(f"echo hi; {script}", shell=True, capture_output=True, tree=False)
    assert (done.stdout, done.held_open) == (b"hi\n", True)
    assert is_alive(written_pid(path))
    with pipewright.Popen(["sh", "-c", f"echo hi; {grandchild(streams='')[0]}"], stdout=-1, tree=False) as child:
        assert child.communicate() == (b"hi\n", None)
        assert child.held_open


def test_kill_reaches_the_tree_of_a_popen(grandchild: Any) -> None:
    script, path = grandchild(session=True)
    child = pipewright.Popen(["sh", "-c", f"{script} exec sleep 600"])
    pid = written_pid(path)
    child.kill()
    assert child.wait() == -9
    has_ended(pid)


def test_the_end_of_a_with_block_ends_the_tree(grandchild: Any) -> None:
    script, path = grandchild()
    with pipewright.Popen(["sh", "-c", script]) as child:
        pid = written_pid(path)
    assert child.returncode == 0 and child.usage is not None
    has_ended(pid)


def test_stop_asks_first_and_then_kills() -> None:
    script = "trap 'echo stopping; exit 3' TERM; echo ready; while :; do sleep 0.01; done"
    with pipewright.Popen(["sh", "-c", script], stdout=-1) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        # All the time that the shell needs on a busy machine.
        assert child.stop(grace=LIMIT) == 3
        assert child.stdout.read() == b"stopping\n"


def test_a_graceful_stop_at_the_time_limit(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"trap 'echo cleaned; exit 0' TERM; echo ready; : > {mark}; while :; do sleep 0.01; done"
    options: Any = {"shell": True, "capture_output": True, "kill_grace": 30}
    error = timed_out(lambda seconds: pipewright.run(script, timeout=seconds, **options), mark, 0.5)
    assert error.output == b"ready\ncleaned\n"


def test_a_keyboard_interrupt_ends_the_tree_and_carries_the_output(grandchild: Any, tmp_path: Path) -> None:
    script, path = grandchild(session=True)
    program = tmp_path / "program.py"
    program.write_text(
        "import pipewright, sys\n"
        "try:\n"
        f"    pipewright.run({'echo said; ' + script + ' exec sleep 600'!r}, shell=True, capture_output=True)\n"
        "except KeyboardInterrupt as error:\n"
        "    print('interrupted', error.stdout)\n"
    )
    with pipewright.Popen([PYTHON, str(program)], stdout=-1, start_new_session=True) as child:
        pid = written_pid(path)
        child.send_signal(signal.SIGINT)
        assert child.communicate()[0] == b"interrupted b'said\\n'\n"
    has_ended(pid)


def test_an_interrupt_just_after_a_start_carries_the_output(grandchild: Any, monkeypatch: Any) -> None:
    script, path = grandchild(session=True)
    real = pipewright._run.start

    def start(native: Any, how: Any, started: Any) -> Any:
        real(native, how, started)
        written_pid(path)
        # As the interpreter raises it before it hands the result over.
        raise KeyboardInterrupt

    monkeypatch.setattr(pipewright._run, "start", start)
    with pytest.raises(KeyboardInterrupt) as caught:
        pipewright.run("echo said; " + script + " exec sleep 600", shell=True, capture_output=True)
    assert caught.value.stdout == b"said\n"  # type: ignore[attr-defined]
    has_ended(written_pid(path))


def test_python_signal_handlers_run_during_a_wait() -> None:
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        pipewright.run(["sh", "-c", "sleep 0.4"])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == [1]


def test_the_tree_ends_with_a_killed_interpreter(grandchild: Any, tmp_path: Path) -> None:
    script, path = grandchild(session=True)
    program = tmp_path / "program.py"
    text = script + " exec sleep 600"
    program.write_text(f"import pipewright\npipewright.run({text!r}, shell=True, kill_on_parent_exit=True)\n")
    child = subprocess.Popen([PYTHON, str(program)], stderr=subprocess.PIPE)
    pid = 0

    def started() -> bool:
        nonlocal pid
        if child.poll() is not None:
            return True
        pid = pid_in(path)
        return pid != 0

    wait_until(started, "the grandchild")
    if child.poll() is not None:
        assert child.stderr is not None
        error = child.stderr.read().decode()
        assert "UnsupportedError" in error, error
        skip("supervisor", "trees cannot end with this process here")
    child.kill()
    child.wait()
    has_ended(pid)


def test_limits_hold_or_are_an_error_that_says_what_to_do() -> None:
    eater = "x = []\nwhile True: x.append(bytearray(1 << 20))"
    try:
        done = pipewright.run(
            [PYTHON, "-c", eater], limits={"memory": 64 << 20, "pids": 50}, capture_output=True, timeout=50
        )
    except pipewright.UnsupportedError as error:
        assert error.kind == "limit_unavailable" and "cannot be held" in str(error)
        return
    assert done.outcome == "out_of_memory" and done.out_of_memory is not None and done.tree_usage is not None
    with pytest.raises(pipewright.CalledProcessError, match="memory"):
        done.check_returncode()


def test_a_limit_that_does_not_exist_is_an_error_at_the_call() -> None:
    with pytest.raises(ValueError, match="minutes"):
        pipewright.run(["true"], limits={"minutes": 1})  # type: ignore[typeddict-unknown-key]


def test_a_terminal_of_its_own() -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && stty size"
    assert pipewright.run(script, shell=True, pty=(30, 100), capture_output=True).stdout == b"30 100\r\n"
    for stderr in (None, pipewright.PIPE):
        done = pipewright.run("echo out; echo err >&2", shell=True, pty=True, stdout=pipewright.DEVNULL, stderr=stderr)
        assert (done.stdout, done.stderr) == (None, b"err\r\n")
    with pipewright.Popen(["sh", "-c", "read line; echo got $line; stty size"], pty=True, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        child.resize(50, 132)
        child.stdin.write("hello\n")
        child.stdin.flush()
        assert "got hello\n50 132\n" in child.stdout.read()


def test_the_output_that_is_kept_can_be_limited() -> None:
    head = pipewright.run(["seq", "100000"], stdout=-1, max_output=("head", 4))
    tail = pipewright.run(["seq", "100000"], stdout=-1, max_output=("tail", 7))
    assert (head.stdout, tail.stdout, head.truncated) == (b"1\n2\n", b"100000\n", True)
    done = pipewright.run(["yes"], stdout=-1, max_output=("fail", 1000))
    assert done.outcome == "limit_exceeded" and len(done.stdout) == 1000
    with pytest.raises(pipewright.CalledProcessError, match="exceeded its output limit"):
        done.check_returncode()


def test_both_ends_of_the_output_can_be_kept(tmp_path: Path) -> None:
    keep = ("keep", 5, 10)
    done = pipewright.run(["seq", "1000"], stdout=-1, text=True, max_output=keep)
    assert done.stdout == "1\n2\n[3880 bytes, 996 lines left out]\n999\n1000\n"
    assert done.truncated and done.stdout_file is None
    done = pipewright.run("seq 1000; seq 3 >&2", shell=True, capture_output=True, max_output=(*keep, tmp_path))
    assert done.stdout_file is not None and done.stderr_file is None and done.stderr == b"1\n2\n3\n"
    assert str(done.stdout_file).encode() in done.stdout and len(done.stdout_file.read_bytes()) == 3893
    assert pickle.loads(pickle.dumps(done)).stdout_file == done.stdout_file
    whole = pipewright.Command(["seq", "1000"]) | pipewright.Command(["cat"])
    assert b"996 lines left out" in whole.run(stdout=-1, max_output=keep).stdout
    lines = [str(line) for line in pipewright.lines(["seq", "1000"], max_output=keep)]
    assert lines == ["1", "2", "[3880 bytes, 996 lines left out]", "999", "1000"]


def test_silence_ends_a_command(tmp_path: Path) -> None:
    tried = []

    def limited(seconds: float) -> None:
        tried.append(seconds)
        script = f"echo a; : > {tmp_path}/mark; exec sleep 600"
        pipewright.run(script, shell=True, capture_output=True, idle_timeout=seconds)

    error = timed_out(limited, tmp_path / "mark", 0.2)
    assert error.output == b"a\n" and error.ending is not None
    assert error.ending.outcome == "idle_timed_out" and error.timeout == tried[-1]


def test_facts_of_a_run() -> None:
    done = pipewright.run(["sh", "-c", "kill -9 $$"], capture_output=True)
    assert (done.returncode, done.outcome) == (-9, "signaled")
    assert done.usage is not None and done.usage["user"] >= 0
    assert done.elapsed is not None and done.elapsed > 0 and done.pid is not None and done.pid > 1
    assert pipewright.run(["true"], input=b"x" * 1000).stdin_unread == 1000


def test_a_stream_is_copied_as_it_arrives(capfd: pytest.CaptureFixture[str]) -> None:
    assert pipewright.run(["echo", "hi"], stdout=pipewright.TEE).stdout == b"hi\n"
    assert capfd.readouterr().out == "hi\n"


def test_niceness_and_limits_of_one_process() -> None:
    script = "ulimit -n; nice"
    nice = os.nice(0)
    out = pipewright.check_output(script, shell=True, nice=3, rlimits={"nofile": (64, 64)}, text=True)
    assert out.split() == ["64", str(min(nice + 3, 19))]
