"""File objects over the parent's ends of a command's streams."""

from __future__ import annotations

import errno
import io
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def take_read_ahead(stream: Any, number: int) -> Any:
    """Returns what a file object has read ahead, and leaves it at its end. The native module has a copy of the pipe."""
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.dup2(nothing, number, inheritable=False)
    finally:
        os.close(nothing)
    return stream.read()


class TerminalIO(io.RawIOBase):
    """The parent's side of a terminal: its end is the end of a file, not an error."""

    def __init__(self, number: int, writes: bool) -> None:
        self._number, self._writes = number, writes

    def fileno(self) -> int:
        return self._number

    def readable(self) -> bool:
        return not self._writes

    def writable(self) -> bool:
        return self._writes

    def readinto(self, buffer: Any) -> int:
        try:
            return os.readv(self._number, [buffer])
        except OSError as error:
            if error.errno == errno.EIO:
                return 0
            raise

    def write(self, data: Any) -> int:
        return os.write(self._number, data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._number)
