"""A fork while another thread starts a command, and a first use where nothing more can be imported."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from typing import Any

import pytest
from helpers import skip

#: Each fork ends by an alarm if it hangs, and tells how it has ended.
BEGIN = """
import os, signal, sys, threading
import pipewright

def forked(work):
    pid = os.fork()
    if pid == 0:
        try:
            # Ten times what a start takes on a busy machine: only one that hangs takes that long.
            signal.alarm(30)
            work()
        except BaseException as error:
            print("error", error, flush=True)
        finally:
            os._exit(0)
    return os.waitpid(pid, 0)[1]

def run():
    assert pipewright.run(["echo", "a"], capture_output=True).stdout == b"a\\n"
"""


def output_of(script: str) -> Any:
    return subprocess.run([sys.executable, "-c", BEGIN + script], stdout=subprocess.PIPE, check=True, text=True).stdout


def test_a_fork_during_the_first_use_in_a_thread_can_start_commands() -> None:
    # The thread stands still within its import, until the fork begins to wait for that.
    script = """
inside, goes_on = threading.Event(), threading.Event()
def hold(frame, *_):
    if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.endswith("_result.py"):
        inside.set()
        goes_on.wait()
def first():
    sys.settrace(hold)
    run()
thread = threading.Thread(target=first)
thread.start()
inside.wait()
# A fork that does not wait for the import is made before that.
threading.Timer(0.3, goes_on.set).start()
status = forked(run)
thread.join()
print(status)
"""
    assert output_of(script) == "0\n"


def test_forks_while_threads_start_commands_can_start_their_own() -> None:
    script = """
ended = threading.Event()
def start():
    while not ended.is_set():
        run()
threads = [threading.Thread(target=start) for _ in range(2)]
for thread in threads:
    thread.start()
def work():
    run()
    with pipewright.Popen(["true"]) as child:
        child.wait()
    assert list(pipewright.lines(["echo", "b"])) == ["b"]
try:
    print({forked(work) for _ in range(int(sys.argv[1]))})
finally:
    ended.set()
    for thread in threads:
        thread.join()
"""
    count = "800" if os.environ.get("PIPEWRIGHT_NET") == "all" else "60"
    command = [sys.executable, "-W", "ignore", "-c", BEGIN + script, count]
    assert subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout == "{0}\n"


@pytest.mark.parametrize("name", ["run", "Popen", "lines", "run_async"])
def test_what_has_been_imported_by_name_needs_no_file(name: str) -> None:
    uses = {
        "run": "run(['/no'], capture_output=True, text=True)",
        "Popen": "Popen(['/no'], stdout=-1)",
        "lines": "lines(['/no'])",
        "run_async": "loop.run_until_complete(run_async(['/no'], text=True, capture_output=True))",
    }
    if os.getuid() != 0:
        skip("root", "only root may change its root directory")
    script = f"""
import asyncio, resource, tempfile
from pipewright import {name}
def use():
    try:
        {uses[name]}
    except OSError as error:
        print(error.errno, flush=True)
loop = asyncio.new_event_loop()
def without_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), 4096))
    use()
forked(without_descriptors)
def elsewhere():
    with tempfile.TemporaryDirectory() as empty:
        os.chroot(empty)
    use()
forked(elsewhere)
"""
    assert output_of(script) == f"{errno.EMFILE}\n{errno.ENOENT}\n"
