"""The examples of the docstrings, and of the README, run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import textwrap
from pathlib import Path

import pytest

import pipewright

MODULES = ["pipewright", *(f"pipewright.{it.name}" for it in pkgutil.iter_modules(pipewright.__path__))]
README = Path(__file__).parent.parent / "README.md"
PAGES = sorted(README.parent.parent.glob("docs/*.md"))
BLOCK = re.compile(r"^( *)```python\n(.*?)^\1```", re.S | re.M)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_every_public_name_has_a_docstring() -> None:
    for name in pipewright.__all__:
        value = getattr(pipewright, name)
        assert isinstance(value, (int, str)) or value.__module__ == "subprocess" or value.__doc__, name


def test_the_readme_names_what_there_is() -> None:
    text = README.read_text()
    for name in re.findall(r"pipewright\.(\w+)", text):
        assert hasattr(pipewright, name), name
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) >= 2
    for block in blocks:
        compile(block, "README", "exec", flags=0x2000)  # Top-level await is allowed.


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_of_the_pages(page: Path) -> None:
    """Sessions run, block by block with the same names; other blocks are at least Python."""
    parser, runner, names = doctest.DocTestParser(), doctest.DocTestRunner(), {"__name__": page.stem}
    for number, (indent, block) in enumerate(BLOCK.findall(page.read_text(encoding="utf-8"))):
        if ">>>" in block:
            test = parser.get_doctest(block, names, f"{page.name}[{number}]", str(page), 0)
            runner.run(test, clear_globs=False)
            names = test.globs
        else:
            compile(textwrap.dedent(indent + block), str(page), "exec", flags=0x2000)
    assert runner.summarize(verbose=False).failed == 0
