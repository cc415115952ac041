"""CPython's own suite for subprocess, with pipewright in the place of subprocess."""

from __future__ import annotations

import fnmatch
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import skip

#: The tests that cannot pass, and why.
BY_DESIGN = {
    "preexec_fn is refused": ["*preexec*", "*test_close_fds_after_preexec", "*test_surrogates_error_message"],
    "some public names are imported when they are used": ["*MiscTests.test__all__"],
    "restore_signals=False is refused": ["*test_restore_signals"],
    "patches private functions of subprocess": [
        "*test__use_vfork",
        "*test_call_keyboardinterrupt_no_kill",
        "*test_run_keyboardinterrupt_no_kill",
        "*test_context_manager_keyboardinterrupt_no_kill",
        "*test_communicate_BrokenPipeError_stdin_flush",
        "*test_communicate_BrokenPipeError_stdin_write",
        "*test_exception_errpipe_*",
        "*test_failed_child_execute_fd_leak",
        "*test_leak_fast_process_del_killed",
        "*test_zombie_fast_process_del",
        "*test_repr",
        "*test_stopped",
        "*vfork*",
    ],
}

RUNNER = """
import sys, unittest
import subprocess
import pipewright
sys.modules["subprocess"] = pipewright
import test.test_subprocess as suite
suite.subprocess = pipewright
with open(sys.argv[1], "w") as log:
    tests = unittest.defaultTestLoader.loadTestsFromModule(suite)
    result = unittest.TextTestRunner(stream=log, verbosity=2, buffer=True).run(tests)
print("ran", result.testsRun, len(result.skipped))
for test, text in result.failures + result.errors:
    print("failed", test.id(), "|", text.strip().splitlines()[-1])
"""


@pytest.mark.slow
def test_the_suite_of_cpython_passes_but_for_what_is_by_design(tmp_path: Path) -> None:
    try:
        import test.test_subprocess  # noqa: F401
    except ImportError:
        skip("python-module:test.test_subprocess", "this Python has no package test")
    if sys.version_info[:2] > (3, 13):
        skip("python-until:3.13", "the list of tests is that of Python 3.9 to 3.13")
    script = tmp_path / "runner.py"
    script.write_text(RUNNER)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "log")], stdout=-1, cwd=tmp_path, text=True, check=True
    )
    lines = [line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith(("ran ", "failed "))]
    ran, failed = lines[0], [line[1] for line in lines[1:]]
    assert int(ran[1]) > 250
    patterns = [pattern for group in BY_DESIGN.values() for pattern in group]
    unexpected = [line for line in lines[1:] if not any(fnmatch.fnmatch(line[1], it) for it in patterns)]
    assert unexpected == []
    if sys.version_info[:2] != (3, 11):
        # Some of the tests are not there, or have other names.
        return
    unused = [it for it in patterns if it != "*vfork*" and not any(fnmatch.fnmatch(name, it) for name in failed)]
    assert unused == [], "these tests pass: take them out of the list"
