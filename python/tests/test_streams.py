"""Lines, events and pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import pytest
from helpers import has_ended, is_alive, timed_out, written_pid

import pipewright
from pipewright import PIPE, Command


def test_lines_come_from_both_streams_with_their_source() -> None:
    # Two streams have no order but that of their readers: each line is written once the one before has been read.
    lines = pipewright.lines("echo out; read go; echo err >&2; read go; printf end", shell=True, stdin=PIPE, bufsize=0)
    seen = []
    for line in lines:
        seen.append((line.source, str(line)))
        if str(line) != "end":
            lines.stdin.write(b"\n")
    assert seen == [("stdout", "out"), ("stderr", "err"), ("stdout", "end")]
    assert lines.finish().returncode == 0


def test_a_line_arrives_while_the_command_runs() -> None:
    with pipewright.lines("echo ready; exec sleep 600", shell=True) as lines:
        assert next(lines) == "ready"
        assert lines.pid > 1


def test_leaving_early_ends_the_tree(grandchild: Any) -> None:
    script, path = grandchild()
    with pipewright.lines(f"echo ready; {script} sleep 600", shell=True) as lines:
        assert next(lines) == "ready"
        pid = written_pid(path)
    has_ended(pid)


def test_lines_raise_after_the_last_line(tmp_path: Path) -> None:
    seen: List[str] = []

    def limited(seconds: float) -> None:
        seen.clear()
        for line in pipewright.lines(f"echo a; : > {tmp_path}/mark; exec sleep 600", shell=True, timeout=seconds):
            seen.append(line)

    assert isinstance(timed_out(limited, tmp_path / "mark", 0.3), pipewright.TimeoutExpired)
    with pytest.raises(pipewright.CalledProcessError):
        for line in pipewright.lines("echo b; exit 3", shell=True, check=True):
            seen.append(line)
    assert seen == ["a", "b"]


def test_long_lines_are_cut() -> None:
    [line] = pipewright.lines(["printf", "%0100d", "1"], max_line=10)
    assert (line, line.truncated) == ("0" * 10, True)


def test_finish_drops_the_rest() -> None:
    lines = pipewright.lines(["seq", "200000"])
    assert next(lines) == "1"
    assert lines.finish().returncode == 0


def test_events_are_the_start_the_output_and_the_end() -> None:
    events = list(pipewright.events(["sh", "-c", "echo out; echo err >&2; exit 2"]))
    assert events[0].kind == "started" and events[-1].kind == "exited"
    assert b"".join(it.value for it in events if it.kind == "stdout") == b"out\n"
    assert b"".join(it.value for it in events if it.kind == "stderr") == b"err\n"
    assert events[-1].value.returncode == 2
    with pytest.raises(pipewright.TimeoutExpired):
        list(pipewright.events(["sleep", "600"], timeout=0.05))


def test_a_stream_has_the_input_of_its_command() -> None:
    with pipewright.lines(["cat"], stdin=PIPE) as lines:
        for word in (b"one", b"two"):
            lines.stdin.write(word + b"\n")
            lines.stdin.flush()
            assert next(lines) == word.decode()
        lines.stdin.close()
        assert list(lines) == [] and lines.finish().returncode == 0
    with pipewright.events(["cat"], stdin=PIPE, text=True, bufsize=1) as events:
        assert next(events).kind == "started"
        events.stdin.write("é\n")
        assert next(events) == ("stdout", "é\n")
        events.stdin.close()
        assert [it.kind for it in events] == ["exited"]
    with (Command(["tr", "a-z", "A-Z"]) | Command(["cat"])).lines(stdin=PIPE, bufsize=0, encoding="latin-1") as piped:
        piped.stdin.write("ä b\n")
        piped.stdin.close()
        assert list(piped) == ["ä B"]
    with pytest.raises(ValueError, match="may not both be used"):
        pipewright.lines(["cat"], stdin=PIPE, input=b"a")
    assert pipewright.lines(["true"]).stdin is None and pipewright.events(["cat"], input=b"a").stdin is None


def test_the_end_of_a_stream_closes_the_input_of_its_command() -> None:
    with pipewright.events(["sleep", "600"], stdin=PIPE) as events:
        # Nobody will read it.
        events.stdin.write(b"left in the buffer")
    assert events.stdin.closed and not is_alive(events.pid)
    # Without a wait for an item, too.
    with pipewright.lines(["cat"], stdin=PIPE) as lines:
        pass
    assert lines.stdin.closed


def test_a_pipeline_has_the_end_of_each_stage() -> None:
    done = (Command(["seq", "5"]) | Command(["sort", "-rn"]) | Command(["head", "-n1"])).run(stdout=-1, text=True)
    assert done.stdout == "5\n" and [stage["returncode"] for stage in done.stages] == [0, 0, 0]
    failed = pipewright.pipeline(Command(["sh", "-c", "echo x; exit 3"]) | Command(["cat"]), capture_output=True)
    assert (failed.returncode, failed.stdout) == (3, b"x\n")
    with pytest.raises(pipewright.CalledProcessError):
        pipewright.pipeline(Command(["false"]), Command(["cat"]), check=True)


def test_a_pipeline_takes_input_and_time_limits(tmp_path: Path) -> None:
    upper = Command(["cat"]) | Command(["tr", "a-z", "A-Z"])
    assert upper.run(input="abc", capture_output=True, text=True).stdout == "ABC"
    sleeps = Command(["echo", "a"]) | Command(f"cat; : > {tmp_path}/mark; exec sleep 600", shell=True)
    limited = timed_out(lambda seconds: sleeps.run(capture_output=True, timeout=seconds), tmp_path / "mark", 0.3)
    assert isinstance(limited, pipewright.TimeoutExpired) and limited.output == b"a\n"
    assert list((Command(["seq", "2"]) | Command(["cat"])).lines()) == ["1", "2"]
    assert [it.kind for it in (Command(["true"]) | Command(["true"])).events()] == ["started", "exited"]


def test_a_pipeline_that_cannot_start_leaves_nothing() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        (Command(["sleep", "600"]) | Command(["no-such-program"])).run()
