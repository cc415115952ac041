"""Errors are Python exceptions with facts, and no panic crosses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import skip

import pipewright
from pipewright import _pipewright

PYTHON = sys.executable


def test_a_missing_program_names_the_places_that_were_searched() -> None:
    with pytest.raises(FileNotFoundError) as error:
        pipewright.run(["no-such-program"], env={"PATH": "/first:/second"})
    assert isinstance(error.value, pipewright.StartError)
    assert (error.value.errno, error.value.filename) == (errno.ENOENT, "no-such-program")
    assert (error.value.kind, error.value.searched) == ("not_found", ["/first", "/second"])
    assert str(error.value) == 'cannot start "no-such-program": not found in PATH (searched 2 directories)'


@pytest.mark.parametrize("first", ["ipc", "batch", "run", "Popen", "lines"])
def test_errors_are_whole_without_a_free_descriptor(first: str) -> None:
    script = """
import errno, os, resource, sys
import pipewright
# Each C library has words of its own.
words = ["too many open files", os.strerror(errno.EMFILE).lower()]
if sys.argv[1] == "ipc":
    from pipewright.ipc import Pool
    act = lambda: Pool(["true"]).call(b"x")
elif sys.argv[1] == "batch":
    from pipewright import batch
    act = lambda: list(batch([["true"]], progress=False))
else:
    function = getattr(pipewright, sys.argv[1])
    act = lambda: function(["true"])
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 100))
try:
    act()
except pipewright.Error as error:
    print(any(it in str(error).lower() for it in words))
"""
    assert pipewright.check_output([PYTHON, "-I", "-c", script, first], text=True) == "True\n"


def test_a_missing_directory_and_a_missing_interpreter_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        pipewright.run(["true"], cwd=tmp_path / "none")
    assert error.value.filename == str(tmp_path / "none") and error.value.kind == "current_dir_missing"
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(FileNotFoundError) as error:
        pipewright.run([script])
    assert error.value.interpreter == "/no/such/interpreter"
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        pipewright.run(["true"], cwd=tmp_path / "file")


def test_files_that_cannot_be_executed(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    with pytest.raises(PermissionError):
        pipewright.Popen([plain])
    plain.chmod(0o755)
    with pytest.raises(OSError) as error:
        pipewright.Popen([plain])
    assert error.value.errno == errno.ENOEXEC
    with pytest.raises(PermissionError):
        pipewright.Popen([tmp_path])


def test_what_no_program_can_have_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"NUL|nul"):
        pipewright.run(["echo", "a\0b"])
    with pytest.raises(ValueError):
        pipewright.run(["true"], env={"A=B": "c"})
    with pytest.raises(OSError):
        pipewright.run(["true"], stdout=999)


def test_a_panic_becomes_an_exception_and_nothing_else() -> None:
    script = (
        "import pipewright\n"
        "try:\n"
        "    pipewright._pipewright.inject_panic()\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, isinstance(error, pipewright.Error))\n"
        "print(pipewright.run(['echo', 'on'], capture_output=True).stdout)\n"
    )
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "InternalError True\nb'on\\n'\n"
    with pytest.raises(pipewright.InternalError):
        _pipewright.inject_panic()


def test_a_child_of_another_process_is_refused() -> None:
    child = pipewright.Popen(["sleep", "600"])
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Nothing of pytest may run here.
        try:
            try:
                child.kill()
                os.write(writer, b"killed")
            except pipewright.ForkedError as error:
                os.write(writer, str(error).encode())
            # But a fork may start its own.
            out = pipewright.run(["echo", "own"], capture_output=True).stdout
            os.write(writer, b"; " + out)
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with open(reader, "rb") as file:
        said = file.read().decode()
    assert f"belongs to process {os.getpid()}" in said and said.endswith("; own\n")
    assert child.poll() is None
    child.kill()
    assert child.wait() == -9


def test_a_subinterpreter_is_refused() -> None:
    try:
        import _xxsubinterpreters as interpreters  # type: ignore[import-not-found]
    except ImportError:
        try:
            import _interpreters as interpreters  # type: ignore[import-not-found]
        except ImportError:
            skip("python-module:_interpreters", "this Python has no subinterpreters")
    script = (
        "try:\n"
        "    import pipewright\n"
        "    said = 'imported'\n"
        "except ImportError as error:\n"
        "    said = str(error)\n"
        "import os; os.write(int(number), said.encode())\n"
    )
    reader, writer = os.pipe()
    this = interpreters.create()
    try:
        interpreters.run_string(this, f"number = {writer}\n{script}")
    finally:
        interpreters.destroy(this)
        os.close(writer)
    with open(reader, "rb") as file:
        assert "subinterpreter" in file.read().decode()
