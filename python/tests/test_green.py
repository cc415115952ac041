"""Programs whose standard library is patched for green threads: gevent and eventlet."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
from helpers import skip

PROGRAM = """
{patch}
import threading
import pipewright

shell = ["sh", "-c", "head -c 3000000 /dev/zero; echo e >&2"]
child = pipewright.Popen(shell, stdout=pipewright.PIPE, stderr=pipewright.PIPE)
out, err = child.communicate(timeout=60)
assert (len(out), err) == (3000000, b"e\\n")
child = pipewright.Popen(["cat"], stdin=pipewright.PIPE, stdout=pipewright.PIPE)
assert child.communicate(bytes(3000000), timeout=60)[0] == bytes(3000000)
assert pipewright.run(["cat"], input=bytes(3000000), capture_output=True).stdout == bytes(3000000)
assert [str(line) for line in pipewright.lines(["echo", "x"])] == ["x"]
thread = threading.Thread(target=lambda: print(pipewright.run(["echo", "in a thread"], capture_output=True).stdout))
thread.start()
thread.join()
"""


@pytest.mark.parametrize(
    ("package", "patch"),
    [
        ("gevent", "from gevent import monkey; monkey.patch_all()"),
        ("eventlet", "import eventlet; eventlet.monkey_patch()"),
    ],
)
def test_commands_run_in_a_patched_program(package: str, patch: str) -> None:
    if find_spec(package) is None:
        skip(f"python-module:{package}", "is not installed")
    program = [sys.executable, "-W", "ignore", "-c", PROGRAM.format(patch=patch)]
    done = subprocess.run(program, capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"b'in a thread\\n'\n", b"")
