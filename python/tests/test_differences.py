"""A test for each row of the table of differences in the README, against subprocess itself where it can run too."""

from __future__ import annotations

import ast
import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import LIMIT, has_ended, is_alive, skip, wait_until, written_pid

import pipewright

PYTHON = sys.executable
README = Path(__file__).parent.parent / "README.md"


def test_the_table_has_a_row_for_each_test_and_each_row_its_test() -> None:
    tree = ast.parse(Path(__file__).read_text())
    tests = {it.name for it in tree.body if isinstance(it, ast.FunctionDef) and it.name.startswith("test_")}
    table = README.read_text().split("## What differs from subprocess, and why", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    named = [re.findall(r"`(test_\w+)`", row.rsplit("|", 2)[1]) for row in rows]
    assert all(len(names) == 1 for names in named), "a row without a test"
    assert {name for names in named for name in names} == tests - {
        "test_the_table_has_a_row_for_each_test_and_each_row_its_test"
    }


def test_what_a_command_leaves_behind_is_killed(grandchild: Any) -> None:
    theirs, their_path = grandchild()
    subprocess.run(theirs, shell=True)
    assert is_alive(written_pid(their_path))
    ours, our_path = grandchild()
    assert pipewright.run(ours, shell=True).leftovers_killed == 1
    assert not is_alive(written_pid(our_path))


def test_a_kill_reaches_the_tree(grandchild: Any) -> None:
    for module, survives in ((subprocess, True), (pipewright, False)):
        script, path = grandchild()
        child: Any = module.Popen(["sh", "-c", f"{script} exec sleep 600"])
        pid = written_pid(path)
        child.kill()
        child.wait()
        if survives:
            assert is_alive(pid)
        else:
            has_ended(pid)


def test_the_end_of_a_with_block_ends_the_tree(grandchild: Any) -> None:
    script, path = grandchild()
    with pipewright.Popen(["sh", "-c", script]):
        pid = written_pid(path)
    has_ended(pid)


def test_a_held_pipe_is_not_waited_for(grandchild: Any) -> None:
    script, _ = grandchild(streams="")
    with pytest.raises(subprocess.TimeoutExpired), subprocess.Popen(["sh", "-c", script], stdout=-1) as child:
        try:
            child.communicate(timeout=1)
        finally:
            # Its `with` block would wait for nothing but the child; the pipe is held.
            child.kill()
    script, _ = grandchild(streams="")
    assert pipewright.run(f"echo a; {script}", shell=True, stdout=-1, tree=False).held_open
    late = "(sleep {}; echo late) & echo early"
    assert pipewright.run(late.format(600), shell=True, stdout=-1).stdout == b"early\n"
    assert pipewright.run(late.format(1.2), shell=True, stdout=-1, linger="eof").stdout == b"early\nlate\n"


def test_an_interrupt_kills_at_once(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import pipewright, sys\n"
        "script = 'trap \"\" INT; echo $$; exec sleep 600'\n"
        "try:\n    pipewright.call(script, shell=True)\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    with subprocess.Popen([PYTHON, str(program)], stdout=-1, start_new_session=True) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        os.killpg(child.pid, signal.SIGINT)
        assert child.stdout.read() == b"interrupted\n"
    has_ended(pid)


def test_preexec_fn_is_refused() -> None:
    with pytest.raises(ValueError, match="start_new_session"):
        pipewright.run(["true"], preexec_fn=lambda: None)
    script = "import os; print(os.getpid() == os.getsid(0))"
    assert pipewright.check_output([PYTHON, "-c", script], preexec_fn=os.setsid) == b"True\n"


def test_restore_signals_cannot_be_turned_off() -> None:
    with pytest.raises(ValueError, match="restore_signals"):
        pipewright.run(["true"], restore_signals=False)
    script = ["grep", "SigIgn", "/proc/self/status"]
    assert pipewright.check_output(script) == subprocess.check_output(script)


def test_a_child_has_an_empty_signal_mask() -> None:
    script = ["grep", "SigBlk", "/proc/self/status"]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        assert int(subprocess.check_output(script).split()[1], 16) != 0
        assert int(pipewright.check_output(script).split()[1], 16) == 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_errors_say_more() -> None:
    with pytest.raises(FileNotFoundError) as theirs:
        subprocess.run(["no-such-program"])
    with pytest.raises(FileNotFoundError) as ours:
        pipewright.run(["no-such-program"])
    assert str(theirs.value) == "[Errno 2] No such file or directory: 'no-such-program'"
    assert str(ours.value).startswith('cannot start "no-such-program": not found in PATH (searched ')
    assert ours.value.args == theirs.value.args and ours.value.filename == theirs.value.filename


def test_a_busy_program_is_tried_again(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/true").read_bytes())
    program.chmod(0o755)
    with program.open("ab"), pytest.raises(OSError, match="busy"):
        subprocess.run([program])

    def starts() -> bool:
        file = program.open("ab")
        timer = threading.Timer(0.02, file.close)
        timer.start()
        try:
            return pipewright.run([program]).returncode == 0
        except OSError as error:
            # It is tried for 127 ms, within which a thread may get no turn on a busy machine.
            assert error.errno == errno.ETXTBSY
            return False
        finally:
            timer.join()

    wait_until(starts, "a start after the file was closed")


def test_groups_are_dropped_with_the_user() -> None:
    if os.getuid() != 0:
        skip("root", "only root may change its user")
    script = ["grep", "Groups", "/proc/self/status"]
    assert pipewright.check_output(script, user=65534, cwd="/").split() == [b"Groups:"]
    kept = pipewright.check_output(script, user=65534, cwd="/", extra_groups=[7])
    assert kept.split() == [b"Groups:", b"7"]


def test_the_directory_is_entered_as_the_user(tmp_path: Path) -> None:
    if os.getuid() != 0:
        skip("root", "only root may change its user")
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    assert subprocess.run(["/bin/true"], cwd=private, user=65534).returncode == 0
    with pytest.raises(PermissionError):
        pipewright.run(["/bin/true"], cwd=private, user=65534)


def test_streams_end_when_communicate_begins() -> None:
    with pipewright.Popen("echo a; exec sleep 600", shell=True, stdin=-1, stdout=-1) as child:
        until = time.monotonic() + LIMIT
        while True:
            with pytest.raises(pipewright.TimeoutExpired) as error:
                child.communicate(timeout=0.3)
            if error.value.output or time.monotonic() > until:
                break
        assert child.stdin is not None and child.stdin.closed
        assert child.stdout is not None and child.stdout.read() == b""
        child.kill()
        assert child.communicate()[0] == b"a\n"


def test_what_was_read_ahead_is_in_communicate() -> None:
    results = []
    for module in (subprocess, pipewright):
        child: Any = module.Popen(["sh", "-c", "printf 'a\\nb\\nc\\n'"], stdout=-1, stderr=-1)
        child.stdout.peek()
        assert child.stdout.readline() == b"a\n" and child.wait() == 0
        results.append(child.communicate())
    assert results[0][0] != b"b\nc\n" and results[1] == (b"b\nc\n", b"")


def test_the_rest_of_the_input_follows_a_time_limit() -> None:
    script = "sleep 0.3; wc -c"
    data = bytes(300000)
    child: Any = pipewright.Popen(["sh", "-c", script], stdin=-1, stdout=-1, stderr=-1)
    with pytest.raises(pipewright.TimeoutExpired):
        child.communicate(data, timeout=0.01)
    assert child.communicate()[0].split() == [b"300000"]


def test_output_is_kept_if_the_streams_end_first() -> None:
    outputs = []
    for module in (subprocess, pipewright):
        child: Any = module.Popen("echo a; exec sleep 600 > /dev/null 2>&1", shell=True, stdout=-1, stderr=-1)
        while True:
            with pytest.raises(subprocess.TimeoutExpired) as error:
                child.communicate(timeout=0.2)
            if module is subprocess or error.value.output:
                break
        outputs.append(error.value.output)
        child.kill()
        child.communicate()
    assert outputs[1] == b"a\n"


def test_a_session_leads_its_group() -> None:
    script = "import os; print(os.getpid() == os.getsid(0) == os.getpgid(0))"
    out = pipewright.check_output([PYTHON, "-c", script], start_new_session=True, process_group=0)
    assert out == b"True\n"


def test_a_fork_of_the_interpreter_cannot_use_the_child() -> None:
    child = pipewright.Popen(["sleep", "600"])
    pid = os.fork()
    if pid == 0:
        try:
            child.poll()
        except pipewright.ForkedError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    child.kill()
    child.wait()


def test_a_child_that_other_code_reaps() -> None:
    child = pipewright.Popen(["sh", "-c", "exit 5"])
    os.waitpid(child.pid, 0)
    try:
        # The kernel keeps the status for a pidfd (Linux 6.15).
        assert child.wait() == 5
    except pipewright.Error as error:
        assert error.kind == "status_lost"
    theirs = subprocess.Popen(["sh", "-c", "exit 5"])
    os.waitpid(theirs.pid, 0)
    assert theirs.wait() == 0


def test_the_environment_is_in_order_of_its_names() -> None:
    done = pipewright.run(["env"], env={"Z": "1", "A": "2"}, capture_output=True)
    assert done.stdout == b"A=2\nZ=1\n"


def test_a_variable_needs_a_name() -> None:
    with pytest.raises(ValueError, match="has no name"):
        pipewright.run(["env"], env={"": "x"})


def test_signal_handlers_may_be_late() -> None:
    times = []
    before = signal.signal(signal.SIGALRM, lambda *_: times.append(time.monotonic()))
    try:
        begun = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        pipewright.run(["sleep", "0.3"])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(times) == 1 and times[0] - begun >= 0.01
    wait_until(lambda: times)


def test_a_supervisor_may_be_the_parent() -> None:
    done = pipewright.run([PYTHON, "-c", "import os; print(os.getppid())"], capture_output=True)
    expected = os.getpid()
    if done.containment == "supervisor":
        assert int(done.stdout) != expected
    else:
        assert int(done.stdout) == expected
    assert int(pipewright.check_output([PYTHON, "-c", "import os; print(os.getppid())"], tree=False)) == expected
