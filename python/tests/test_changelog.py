"""From the first tag on, the changelog names every public item that is gone, of the crates and of this package."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, Iterable, Set

from helpers import skip

ROOT = Path(__file__).parents[2]
#: The crates of users. What is `pub` in them is public (`unreachable_pub`).
CRATES = (
    "pipewright",
    "pipewright-batch",
    "pipewright-cluster",
    "pipewright-disk",
    "pipewright-ipc",
    "pipewright-ipc-macros",
)
FILES = (*(f"crates/{name}/src" for name in CRATES), "python/pipewright")
RUST = re.compile(r"^\s*pub (?:const |async |unsafe )*(?:fn|struct|enum|union|trait|type|static|mod|const) (\w+)", re.M)
#: Functions and classes of Python with their methods, and attributes of a class.
PYTHON = re.compile(r"^(?:    )?(?:async )?(?:def|class) ([A-Za-z]\w*)|^    ([a-z]\w*): ", re.M)


def names(path: str, text: str) -> Set[str]:
    """Returns the public names of a file."""
    if path.endswith(".rs"):
        return set(RUST.findall(text.split("\n#[cfg(test)]\nmod ", 1)[0]))
    # Private modules have public names too: those of the package are imported from them.
    return {one or other for one, other in PYTHON.findall(text)} if path.endswith(".py") else set()


def unnamed(before: Iterable[str], after: Iterable[str], changelog: str) -> Set[str]:
    """Returns the names that are gone without a word."""
    words = set(re.findall(r"\w+", changelog))
    return set(before) - set(after) - words


def names_today() -> Set[str]:
    files = (path for folder in FILES for path in (ROOT / folder).rglob("*.*") if path.suffix in (".rs", ".py"))
    return {name for path in files for name in names(path.name, path.read_text("utf-8"))}


def git(*args: str) -> Any:
    return subprocess.run(["git", "-C", str(ROOT), *args], stdout=-1, stderr=-1, text=True)


def test_a_name_that_is_gone_is_missed() -> None:
    rust = "pub struct Kept;\n    pub const fn gone(&self) {}\npub(crate) fn inner() {}\n"
    rust += "\n#[cfg(test)]\nmod tests {\npub fn t() {}"
    python = "class Call:\n    size: int\n    async def end(self): ...\n    def _go(self): ..."
    before = names("a.rs", rust) | names("a.py", python)
    assert before == {"Kept", "gone", "Call", "size", "end"}
    assert unnamed(before, {"Kept", "size", "end"}, "* `Call` is `Calls`.") == {"gone"}
    assert unnamed(before, before, "") == set()


def test_the_names_of_today_are_found() -> None:
    today = names_today()
    # Of a crate, a method, the package and its method: what the next tag is compared with is no empty set.
    assert {"Command", "bytes_of", "run_async", "send_signal"} <= today


def test_the_changelog_names_what_is_gone_since_the_last_tag() -> None:
    tag = git("describe", "--tags", "--abbrev=0").stdout.strip()
    if not tag:
        skip("git-tag", "nothing has been released")
    before: Set[str] = set()
    for path in git("ls-tree", "-r", "--name-only", tag, *FILES).stdout.split():
        before |= names(path, git("show", f"{tag}:{path}").stdout)
    assert before
    assert not unnamed(before, names_today(), (ROOT / "CHANGELOG.md").read_text())
