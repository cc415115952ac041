"""Text: one decoder for each stream, marks at the start of a stream, cut characters, names of encodings."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import descriptors

import pipewright


def test_a_line_and_then_communicate_are_one_stream() -> None:
    script = "printf 'a\\r\\nb\\303'; sleep 0.05; printf '\\244c\\r'; sleep 0.05; printf '\\nd'"
    child: Any = pipewright.Popen(["sh", "-c", script], stdout=-1, encoding="utf-8")
    assert (child.stdout.readline(), child.communicate()[0]) == ("a\n", "bäc\nd")


def test_a_stream_in_utf_16_is_decoded_once(tmp_path: Path) -> None:
    text = "".join(f"zeile {n} 😀\n" for n in range(10000))
    (tmp_path / "text").write_bytes(text.encode("utf-16"))
    child: Any = pipewright.Popen(["cat", str(tmp_path / "text")], stdout=-1, stderr=-1, encoding="utf-16")
    first = child.stdout.readline() + child.stdout.read(3)
    out, err = child.communicate()
    assert first + out == text and err == ""


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_no_mark_is_added(encoding: str) -> None:
    child: Any = pipewright.Popen(["sh", "-c", "printf abc; sleep 600"], stdout=-1, stderr=-1, encoding=encoding)
    while True:
        with pytest.raises(pipewright.TimeoutExpired) as error:
            child.communicate(timeout=0.05)
        if error.value.output:
            break
    assert (error.value.output, error.value.stderr) == (b"abc", None)
    child.kill()
    child.wait()
    # Neither for an empty input, nor a second time.
    assert pipewright.run("wc -c", shell=True, input="", stdout=-1, encoding=encoding, errors="replace").returncode == 0
    path = os.devnull
    with open(path, "w") as nothing:
        child = pipewright.Popen(["cat"], stdin=-1, stdout=-1, stderr=nothing, encoding=encoding)
    child.stdin.write("ab")
    child.stdin.flush()
    assert child.communicate("cd")[0] == "abcd"
    assert pipewright.check_output(["wc", "-c"], input="").split() == [b"0"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-32-le"])
@pytest.mark.parametrize("kind", ["head", "tail"])
@pytest.mark.parametrize("keep", range(1000, 1008))
def test_what_a_limit_keeps_is_whole_characters(encoding: str, kind: Any, keep: int, tmp_path: Path) -> None:
    text = "".join(f"{n}日本😀" for n in range(300))
    (tmp_path / "text").write_bytes(text.encode(encoding))
    done = pipewright.run(["cat", str(tmp_path / "text")], stdout=-1, encoding=encoding, max_output=(kind, keep))
    assert done.truncated and len(done.stdout) > 240
    assert text.startswith(done.stdout) if kind == "head" else text.endswith(done.stdout)


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.10 has this name")
def test_the_encoding_of_the_locale_by_its_name() -> None:
    assert pipewright.run(["echo", "hi"], stdout=-1, encoding="locale").stdout == "hi\n"
    assert pipewright.check_output(["cat"], input="hi", encoding="locale") == "hi"
    assert pipewright.getoutput("echo hi", encoding="locale") == "hi"
    child: Any = pipewright.Popen(["echo", "hi"], stdout=-1, encoding="locale")
    assert child.communicate()[0] == "hi\n"


def test_a_wrong_encoding_starts_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    before = descriptors()
    for call in (pipewright.run, pipewright.Popen, pipewright.check_output):
        with pytest.raises(LookupError):
            call(["touch", str(tmp_path / "started")], encoding="no-such")
    assert not list(tmp_path.iterdir()) and descriptors() == before


def test_the_size_of_a_pipe_is_set_before_the_start(tmp_path: Path) -> None:
    before = descriptors()
    for _ in range(20):
        child: Any = pipewright.Popen(["head", "-c", "50000", "/dev/zero"], stdout=-1, stderr=-1, pipesize=4096)
        assert len(child.communicate()[0]) == 50000
    assert descriptors() == before
    command = ["touch", str(tmp_path / "started")]
    for size in (1 << 30, 1 << 31):
        kinds = []
        for module in (subprocess, pipewright):
            # Until Python 3.11.4, subprocess leaves two open.
            before = descriptors()
            with pytest.raises((OSError, OverflowError)) as error:
                module.Popen(command, stdin=-1, stdout=-1, stderr=-1, pipesize=size)
            kinds.append([it for it in type(error.value).__mro__ if it in (OSError, PermissionError, OverflowError)])
        assert kinds[0] == kinds[1] and descriptors() == before
    assert not list(tmp_path.iterdir())


def test_lines_and_events_are_in_the_encoding_of_the_call() -> None:
    script = "printf 'h\\351llo \\200\\r\\nw\\366rld'; printf 'e\\n' >&2"
    latin = [b"h\xe9llo \x80".decode("latin-1"), "wörld"]
    lines = pipewright.lines(script, shell=True, encoding="latin-1")
    assert [str(line) for line in lines if line.source == "stdout"] == latin
    assert lines.finish().returncode == 0
    with pytest.raises(UnicodeDecodeError):
        list(pipewright.lines(script, shell=True, encoding="utf-8", errors="strict"))
    with pytest.raises(LookupError):
        pipewright.lines(script, shell=True, encoding="no-such")
    # Bytes that are no text stay a replacement, without a word about text.
    assert [str(line) for line in pipewright.lines(["printf", "a\\351b\\n"])] == ["a\ufffdb"]
    split = ["sh", "-c", "printf '\\303'; sleep 0.05; printf '\\244'"]
    events = [event for event in pipewright.events(split, text=True, encoding="utf-8") if event.kind == "stdout"]
    assert "".join(event.value for event in events) == "ä"

    async def main() -> None:
        lines = pipewright.lines_async(script, shell=True, encoding="latin-1")
        assert [str(line) async for line in lines if line.source == "stdout"] == latin
        events = [it async for it in pipewright.events_async(split, encoding="utf-8") if it.kind == "stdout"]
        assert "".join(it.value for it in events) == "ä"

    asyncio.run(main())
