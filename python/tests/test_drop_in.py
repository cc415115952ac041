"""The shape of subprocess: arguments, results, exceptions."""

from __future__ import annotations

import asyncio
import inspect
import io
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, List

import pytest
from helpers import LIMIT, wait_until

import pipewright

PYTHON = sys.executable


def test_every_public_name_of_subprocess_is_there() -> None:
    for name in subprocess.__all__:
        assert hasattr(pipewright, name), name
    assert set(subprocess.__all__) <= set(pipewright.__all__)


def test_exceptions_and_results_are_those_of_subprocess() -> None:
    assert issubclass(pipewright.TimeoutExpired, subprocess.TimeoutExpired)
    assert issubclass(pipewright.CalledProcessError, subprocess.CalledProcessError)
    assert issubclass(pipewright.CompletedProcess, subprocess.CompletedProcess)
    assert issubclass(pipewright.Popen, subprocess.Popen)
    numbers = (pipewright.PIPE, pipewright.STDOUT, pipewright.DEVNULL)
    assert numbers == (subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL)
    with pytest.raises(subprocess.CalledProcessError) as error:
        pipewright.run(["sh", "-c", "echo out; echo err >&2; exit 7"], check=True, capture_output=True)
    assert (error.value.returncode, error.value.stdout, error.value.stderr) == (7, b"out\n", b"err\n")
    assert error.value.cmd[0] == "sh"


def test_every_argument_of_popen_is_kept_or_refused() -> None:
    accepted = {
        "bufsize": 0, "executable": "/bin/sh", "stdin": None, "stdout": -1, "stderr": -2, "preexec_fn": None,
        "close_fds": True, "shell": False, "cwd": "/", "env": {"A": "b"}, "universal_newlines": True,
        "startupinfo": None, "creationflags": 0, "restore_signals": True, "start_new_session": True, "pass_fds": (),
        "user": os.getuid(), "group": os.getgid(), "extra_groups": None, "encoding": "utf-8", "errors": "replace",
        "text": True, "umask": 0o22, "pipesize": 1 << 16, "process_group": None,
    }  # fmt: skip
    names = set(inspect.signature(subprocess.Popen.__init__).parameters) - {"self", "args"}
    assert names - set(accepted) == set(), "an argument that is not known"
    with pipewright.Popen(["sh", "-c", "echo $A"], **accepted) as child:
        assert child.communicate()[0] == "b\n"
    refused: Any = {"preexec_fn": print, "startupinfo": object(), "creationflags": 1, "restore_signals": False}
    for name, value in refused.items():
        with pytest.raises(ValueError, match=name):
            pipewright.Popen(["true"], **{name: value})
    with pytest.raises(TypeError, match="no_such_option"):
        pipewright.run(["true"], no_such_option=1)


def test_arguments_by_position_are_those_of_subprocess() -> None:
    assert pipewright.call(["sh", "-c", "exit 4"], -1, None, None, subprocess.DEVNULL) == 4
    with pytest.raises(TypeError):
        pipewright.Popen()
    with pytest.raises(TypeError):
        pipewright.Popen(["true"], args=["false"])


def test_text_encodings_and_newlines() -> None:
    script = "printf 'a\\r\\nb\\rc\\n'"
    assert pipewright.run(script, shell=True, capture_output=True, text=True).stdout == "a\nb\nc\n"
    assert pipewright.run(script, shell=True, capture_output=True).stdout == b"a\r\nb\rc\n"
    latin = pipewright.run(["printf", "\\344"], capture_output=True, encoding="latin-1").stdout
    assert latin == "\u00e4"
    assert pipewright.run(["cat"], input="\u00e4", encoding="utf-16", capture_output=True).stdout == "\u00e4"
    with pytest.raises(UnicodeDecodeError):
        pipewright.run(["printf", "\\344"], capture_output=True, encoding="utf-8")
    with pytest.raises(subprocess.SubprocessError):
        pipewright.run(["true"], text=True, universal_newlines=False)


def test_input_of_any_length_is_fed_while_output_is_read() -> None:
    data = os.urandom(1 << 20) * 3
    assert pipewright.run(["cat"], input=data, capture_output=True).stdout == data
    with pipewright.Popen(["cat"], stdin=-1, stdout=-1) as child:
        assert child.communicate(data)[0] == data
    assert pipewright.run(["true"], input=data).returncode == 0
    with pytest.raises(TypeError):
        pipewright.run(["cat"], input="text", capture_output=True)
    with pytest.raises(ValueError):
        pipewright.run(["cat"], input=b"", stdin=subprocess.DEVNULL)


def test_streams_are_descriptors_files_and_constants(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as file:
        assert pipewright.call(["sh", "-c", "echo a; echo b >&2"], stdout=file, stderr=pipewright.STDOUT) == 0
        assert pipewright.run(["echo", "c"], stdout=file.fileno()).stdout is None
    assert path.read_bytes() == b"a\nb\nc\n"
    with path.open() as file:
        assert pipewright.check_output(["cat"], stdin=file) == b"a\nb\nc\n"
    assert pipewright.check_output("echo x; echo y >&2", shell=True, stderr=pipewright.DEVNULL) == b"x\n"
    assert pipewright.check_output(["cat"], input=None) == b""
    with pytest.raises(ValueError):
        pipewright.check_output(["cat"], stdout=1)


@pytest.mark.parametrize("verb", ["run", "call", "check_call", "Popen", "run_async", "lines", "events", "pipeline"])
def test_a_file_that_nothing_else_refers_to_stays_open(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "out"
    function: Any = getattr(pipewright, verb)
    if verb == "run_async":
        asyncio.run(function(["echo", "hi"], stdout=path.open("w")))
    elif verb == "Popen":
        function(["echo", "hi"], stdout=path.open("w")).wait()
    elif verb in ("lines", "events"):
        list(function(["echo", "hi"], stdout=path.open("w")))
    elif verb == "pipeline":
        cat = pipewright.Command(["cat"], stdout=path.open("w"))
        (pipewright.Command(["echo", "hi"]) | cat).run()
    else:
        function(["echo", "hi"], stdout=path.open("w"))
    assert path.read_text() == "hi\n"
    if verb == "run":
        assert pipewright.check_output(["cat"], stdin=path.open()) == b"hi\n"


def test_the_rest_after_a_read_line_is_communicated() -> None:
    script = "echo one; echo two; echo three; echo err >&2"
    for text in (False, True):
        with pipewright.Popen(["sh", "-c", script], stdout=-1, stderr=-1, text=text) as child:
            assert child.stdout is not None
            first = child.stdout.readline()
            out, err = child.communicate()
        expected: Any = ("one\n", "two\nthree\n", "err\n")
        assert (first, out, err) == (expected if text else tuple(it.encode() for it in expected))


def test_a_communication_continues_after_its_timeout() -> None:
    with pipewright.Popen(["sh", "-c", "echo a; cat; echo b; exec sleep 600"], stdin=-1, stdout=-1) as child:
        seen: List[Any] = []
        until = time.monotonic() + LIMIT
        # The second time with both lines, which may take some on a busy machine.
        while seen.count(b"a\nb\n") < 2 and time.monotonic() < until:
            with pytest.raises(subprocess.TimeoutExpired) as error:
                child.communicate(timeout=0.3)
            assert error.value.timeout == 0.3
            seen.append(error.value.output)
        assert seen[-2:] == [b"a\nb\n"] * 2 and set(seen) <= {None, b"a\n", b"a\nb\n"}
        child.kill()
        assert child.communicate() == (b"a\nb\n", None)


def test_a_large_output_is_communicated_in_any_number_of_calls(grandchild: Any, tmp_path: Path) -> None:
    size = 20 << 20
    for stream in ("stdout", "stderr"):
        flood = f"head -c {size} /dev/zero" + (" >&2" if stream == "stderr" else "")
        streams: Any = {stream: -1}
        goes_on = tmp_path / f"after-{stream}"
        wait = f"while ! [ -e {goes_on} ]; do sleep 0.01; done"
        with pipewright.Popen(["sh", "-c", f"{flood}; {wait}; exit 3"], **streams) as child:
            for _ in range(2):
                with pytest.raises(subprocess.TimeoutExpired) as error:
                    child.communicate(timeout=0.01)
            goes_on.touch()
            got = child.communicate()
            assert (len(got[stream == "stderr"]), got[stream == "stdout"]) == (size, None)
            assert child.returncode == 3 and not child.held_open
            assert len(error.value.output or b"") + len(error.value.stderr or b"") <= size
    # Something that is left behind holds the stream.
    script, _ = grandchild(streams="", session=True)
    with pipewright.Popen(["sh", "-c", f"{script} head -c {size} /dev/zero"], stdout=-1) as child:
        assert (len(child.communicate()[0]), child.held_open) == (size, True)


def test_streams_of_a_child_are_files() -> None:
    with pipewright.Popen(["cat"], stdin=-1, stdout=-1, text=True, bufsize=1) as child:
        assert isinstance(child.stdin, io.TextIOWrapper) and isinstance(child.stdout, io.TextIOWrapper)
        child.stdin.write("line\n")
        assert child.stdout.readline() == "line\n"
        assert child.poll() is None and child.returncode is None
        child.stdin.close()
        assert child.wait() == 0
    assert child.stdout.closed and "returncode: 0" in repr(child)


def test_waits_time_out_and_the_child_runs_on() -> None:
    with pipewright.Popen(["sleep", "600"]) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.02)
        assert child.poll() is None
        child.terminate()
        assert child.wait() == -15 and child.poll() == -15
        child.send_signal(9)
        child.kill()


def test_waits_release_the_gil_and_other_threads_may_kill() -> None:
    child = pipewright.Popen(["sleep", "600"])
    codes = []
    threads = [threading.Thread(target=lambda: codes.append(child.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    child.kill()
    for thread in threads:
        thread.join()
    assert codes == [-9, -9, -9]
    child = pipewright.Popen(["sleep", "600"], stdout=-1)
    reader = threading.Thread(target=lambda: codes.append(child.communicate()))
    reader.start()
    child.kill()
    reader.join()
    assert codes[3] == (b"", None)


def test_a_child_inherits_its_streams_and_what_is_listed() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    script = f"import os\ntry:\n os.write({writer}, b'here')\nexcept OSError: pass"
    pipewright.run([PYTHON, "-c", script])
    pipewright.run([PYTHON, "-c", script], pass_fds=[writer])
    pipewright.run([PYTHON, "-c", script], close_fds=False)
    os.close(writer)
    with open(reader, "rb") as file:
        assert file.read() == b"herehere"


def test_environment_directory_session_group_and_mask(tmp_path: Path) -> None:
    assert pipewright.check_output(["env"], env={"ONLY": "this"}) == b"ONLY=this\n"
    assert pipewright.check_output(["pwd"], cwd=tmp_path, text=True).strip() == str(tmp_path.resolve())
    script = "import os; print(os.getpid() == os.getsid(0), os.getpid() == os.getpgid(0))"
    for options, expected in (
        ({"start_new_session": True}, "True True"),
        ({"process_group": 0}, "False True"),
        ({"preexec_fn": os.setsid}, "True True"),
        ({"preexec_fn": os.setpgrp}, "False True"),
    ):
        assert pipewright.check_output([PYTHON, "-c", script], text=True, **options).strip() == expected
    assert pipewright.check_output("umask", shell=True, umask=0o123) == b"0123\n"
    assert pipewright.check_output([b"echo", Path("x")]) == b"x\n"
    assert pipewright.check_output(["not-sh", "-c", "echo $0"], executable="sh") == b"not-sh\n"


def test_a_dropped_popen_leaves_its_child_running(recwarn: pytest.WarningsRecorder) -> None:
    pid = pipewright.Popen(["sleep", "600"]).pid
    assert any(issubclass(it.category, ResourceWarning) for it in recwarn.list)
    os.kill(pid, 0)
    os.kill(pid, 9)

    def is_forgotten() -> bool:
        pipewright.run(["true"])
        with pipewright.Popen(["true"]):
            pass
        return all(child.pid != pid for child in pipewright._popen._active)

    wait_until(is_forgotten, "the end of the dropped child")


def test_unknown_names_come_from_subprocess() -> None:
    assert pipewright._args_from_interpreter_flags is subprocess._args_from_interpreter_flags
    with pytest.raises(AttributeError):
        _ = pipewright.no_such_name


def test_an_import_alone_imports_no_subprocess() -> None:
    script = """
import sys, pipewright as subprocess
assert "pipewright._pipewright" in sys.modules
assert subprocess.PIPE == -1 and "run" in dir(subprocess)
for name in ("subprocess", "asyncio", "typing", "threading"):
    assert name not in sys.modules, name
try:
    subprocess.run(["sh", "-c", "sleep 60"], timeout=0.1)
except subprocess.TimeoutExpired as error:
    print(type(error).__mro__[1].__module__)
"""
    assert pipewright.check_output([PYTHON, "-I", "-c", script], text=True) == "subprocess\n"


def test_subprocess_is_found_if_pipewright_has_its_place() -> None:
    script = """
import sys, pipewright
sys.modules["subprocess"] = pipewright
import subprocess
assert subprocess.run is pipewright.run and sys.modules["subprocess"] is pipewright
assert subprocess.CompletedProcess.__mro__[1].__module__ == "subprocess"
print(subprocess.list2cmdline(["a b"]))
"""
    assert pipewright.check_output([PYTHON, "-I", "-c", script], text=True) == '"a b"\n'


def test_a_type_alias_can_be_made() -> None:
    assert pipewright.Popen[bytes].__origin__ is pipewright.Popen
    assert pipewright.CompletedProcess[str].__origin__ is pipewright.CompletedProcess
