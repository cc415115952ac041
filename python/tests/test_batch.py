"""Batches: ends, order, resume, notebooks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest
from helpers import LIMIT, has_ended, threads, wait_until, written_pid

import pipewright
from pipewright import Job

PYTHON = sys.executable


def test_each_job_has_its_end() -> None:
    run = pipewright.batch(["echo problem >&2; exit 3", ["true"], Job("kill -9 $$", name="killed")], slots=2)
    ends = {end.number: end for end in run}
    assert [ends[index].state for index in range(3)] == ["failed", "succeeded", "failed"]
    assert (ends[0].returncode, ends[1].returncode, ends[2].returncode) == (3, 0, -9)
    assert ends[0].tail == "problem" and ends[0].reason == "exit code 3" and not ends[0].ok
    assert run.counts["failed"] == 2 and not run.ok and [end.number for end in run.failures] != []
    assert "1 ok, 2 failed" in repr(run)


def test_jobs_wait_for_others_and_have_options(tmp_path: Path) -> None:
    out = tmp_path / "out"
    jobs = [
        Job(f"echo second >> {out}", after=["first"]),
        Job(f"echo $WORD; cat >> {out}", name="first", env={"WORD": "x"}, input="first\n", cwd=tmp_path),
        Job("exit 1", name="bad"),
        Job("true", after=["bad"]),
    ]
    states = {end.number: end.state for end in pipewright.batch(jobs, slots=4)}
    assert states == {0: "succeeded", 1: "succeeded", 2: "failed", 3: "skipped"}
    assert out.read_text() == "first\nsecond\n"
    with pytest.raises(TypeError):
        pipewright.batch([Job("true", no_such_option=1)])  # type: ignore[call-arg]


def test_a_log_is_resumed_and_nothing_runs_twice(tmp_path: Path) -> None:
    log, out = tmp_path / "run.db", tmp_path / "out"
    jobs = [f"echo {number} >> {out}; exit {number % 2}" for number in range(6)]
    first = pipewright.batch(jobs, slots=1, log=log, resume=True)
    seen = [next(first).number for _ in range(3)]
    first.close()
    again = pipewright.batch(jobs, slots=1, log=log, resume=True).run()
    assert again.counts["succeeded"] == 3 and again.counts["failed"] == 3
    lines = out.read_text().split()
    assert set(lines) == set("012345") and all(lines.count(str(number)) == 1 for number in seen)
    with pytest.raises(pipewright.BatchError):
        pipewright.batch(jobs, log=log)
    with pytest.raises(ValueError, match="log"):
        pipewright.batch(jobs, resume=True)


def test_an_interrupt_ends_the_jobs_and_the_log_goes_on(tmp_path: Path) -> None:
    log, pid_file = tmp_path / "run.db", tmp_path / "pid"
    program = tmp_path / "program.py"
    job = f"echo $$ > {pid_file}.part; mv {pid_file}.part {pid_file}; exec sleep 600"
    program.write_text(f"import pipewright\npipewright.batch(['true', {job!r}], slots=1, log={str(log)!r}).run()\n")
    with subprocess.Popen([PYTHON, str(program)], stderr=-1, start_new_session=True) as child:
        pid = written_pid(pid_file)
        child.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in child.communicate()[1]
    has_ended(pid)
    again = pipewright.batch(["true", job], slots=1, log=log, resume=True)
    end = next(again)
    assert end.number == 0 and end.before
    again.close()


def test_a_batch_can_be_stopped_and_drained(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    run = pipewright.batch(["true", f": > {mark}; exec sleep 600", "true"], slots=1)

    def stop() -> None:
        # The second job runs, and the third has been read: by a thread, which has the name of what it reads.
        wait_until(lambda: mark.exists() and "input" not in threads())
        run.stop()

    assert next(run).state == "succeeded"
    stopping = threading.Thread(target=stop)
    stopping.start()
    assert sorted(end.state for end in run) == ["not_run", "stopped"]
    stopping.join()
    assert run.counts["halted"] == "stopped"


def test_output_goes_to_files(tmp_path: Path) -> None:
    pipewright.batch([["echo", "hi"]], output_dir=tmp_path / "out").run()
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file() and path.name == "stdout"]
    assert [path.read_text() for path in files] == ["hi\n"]


def test_a_notebook_shows_a_summary() -> None:
    run = pipewright.batch(["echo '<b>' >&2; exit 2", "true"])
    before = run._repr_html_()
    assert "0 of 2" in before
    run.run()
    shown = run._repr_html_()
    assert "2 of 2: 1 ok, 1 failed" in shown and "exit code 2" in shown and "&lt;b&gt;" in shown and "<b>" not in shown


def test_many_jobs_at_the_same_time() -> None:
    run = pipewright.batch([Job("read line", input="\n") for _ in range(100)], slots=50)
    assert sum(end.ok for end in run) == 100


def test_a_fork_is_told_that_a_batch_is_not_its_own_and_does_not_wait_for_it() -> None:
    run = pipewright.batch([["sleep", "600"]], slots=1)
    waiting = threading.Thread(target=run.run)
    waiting.start()
    # The other thread mostly holds the state, and the fork has its lock without that thread.
    for _ in range(5):
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            try:
                repr(run)
            except pipewright.ForkedError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    run.stop()
    waiting.join(LIMIT)
    assert not waiting.is_alive()


def test_jobs_have_the_options_of_the_batch(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = "pwd; echo $WORD ${HOME-none}; umask; nice; id -u; exit 1"
    options: Any = {"clear_env": True, "env": {"WORD": "x", "PATH": os.environ["PATH"]}, "umask": 0o27, "nice": 3}
    limits: Any = {"pids": 500, "best_effort": True}
    user: Any = {"user": os.getuid()} if os.getuid() == 0 else {}
    run = pipewright.batch([script], cwd=tmp_path, output="on_failure", limits=limits, **user, **options).run()
    assert run.counts["failed"] == 1
    words = [str(tmp_path), "x none", "0027", str(min(os.nice(0) + 3, 19)), str(os.getuid())]
    assert capfd.readouterr().out.splitlines() == words
    with pytest.raises(KeyError):
        pipewright.batch(["true"], user="no such user")


def test_output_is_printed_after_a_failure_alone_and_its_ends_are_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = ["seq 1000; exit 2", "echo fine"]
    pipewright.batch(jobs, output="on_failure", keep_output=(5, 10)).run()
    said = "[3880 bytes, 996 lines left out]"
    assert capfd.readouterr().out.splitlines() == ["1", "2", said, "999", "1000"]
    pipewright.batch(jobs, output="on_failure", keep_output=(5, 10, tmp_path)).run()
    assert str(tmp_path) in capfd.readouterr().out
    assert [file.stat().st_size for file in tmp_path.iterdir()] == [3893]
    pipewright.batch(["seq 1000"], output="group", keep_output=4).run()
    assert capfd.readouterr().out == "1\n2\n"
    with pytest.raises(ValueError, match="'on_failure'"):
        pipewright.batch(["true"], output=cast(Any, "sometimes"))


def test_starts_are_held_back_and_reports_are_written(tmp_path: Path) -> None:
    joblog, junit = tmp_path / "joblog", tmp_path / "junit.xml"
    began = time.monotonic()
    run = pipewright.batch(
        ["true", "exit 3", "true"],
        slots=4,
        start_delay=0.05,
        max_load=1e9,
        min_free_memory=1,
        joblog=joblog,
        junit=junit,
    )
    assert sorted((end.number, end.returncode) for end in run) == [(0, 0), (1, 3), (2, 0)]
    assert time.monotonic() - began >= 0.1
    rows = [line.split("\t") for line in joblog.read_text().splitlines()]
    assert rows[0][0] == "Seq" and sorted((row[0], row[6]) for row in rows[1:]) == [("1", "0"), ("2", "3"), ("3", "0")]
    assert 'tests="3" failures="1"' in junit.read_text()
