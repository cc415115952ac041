"""A case of `beside.py`: its files, its findings, and what both sides have in common."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, ClassVar, Dict, List, NamedTuple

#: The limit of every wait. Only a case that hangs takes that long.
LIMIT = 60.0


def descriptors() -> int:
    """Returns the number of open descriptors."""
    return len(os.listdir("/proc/self/fd"))


def left_of(before: int) -> int:
    """Returns the number of descriptors beyond those before that stay.

    A thread may be about to end what a case has abandoned, and the one that reaps lives for a second more.
    """
    until = time.monotonic() + LIMIT
    while (more := descriptors() - before) > 0 and time.monotonic() < until:
        time.sleep(0.005)
    return max(more, 0)


def short(value: Any) -> str:
    """Returns a value with its size instead of its bytes."""
    if isinstance(value, (bytes, str)) and len(value) > 60:
        return f"{value[:20]!r}… ({len(value)})"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(short(it) for it in value) + ")"
    return repr(value)


class Finding(NamedTuple):
    """Something that differs."""

    seed: int
    number: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"--seed {self.seed} --case {self.number} ({self.kind}): {self.text}"


class Case:
    """A case, and what has been found in it."""

    folder: ClassVar[Path]

    def __init__(self, seed: int, number: int, kind: str) -> None:
        self.seed, self.number, self.kind = seed, number, kind
        self.findings: List[Finding] = []

    @classmethod
    def use(cls, folder: str) -> None:
        """Writes the data that all cases use."""
        cls.folder = Path(folder)
        text = "".join(f"{n} zeile äöü € 😀\r\n" if n % 3 else f"{n} \n" for n in range(140000))
        (cls.folder / "plain").write_bytes(b"".join(b"%d line\n" % n for n in range(280000)))
        (cls.folder / "text").write_bytes(text.encode())
        (cls.folder / "utf-16").write_bytes(text.encode("utf-16"))
        (cls.folder / "utf-8-sig").write_bytes(text.encode("utf-8-sig"))

    def data(self, name: str) -> str:
        return str(self.folder / name)

    def path(self, name: str) -> str:
        return str(self.folder / f"{name}-{self.number}")

    def found(self, text: str) -> None:
        self.findings.append(Finding(self.seed, self.number, self.kind, text))

    def compare(self, what: Any, options: Dict[str, Any], pair: List[Any]) -> None:
        theirs, ours = pair
        if theirs != ours:
            shown = {key: short(value) for key, value in options.items()}
            self.found(f"{what} {shown}: theirs {short(theirs)}, ours {short(ours)}")
