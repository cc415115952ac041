"""File objects over the parent's ends of a command's streams."""

from __future__ import annotations

import errno
import io
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Optional, Tuple


class PipeFile(io.FileIO):
    """The parent's end of an output. Once `communicate` reads the pipe, it gives what that has read.

    So a stream has one decoder, which is fed once, whoever reads it.
    """

    #: True once something has been read here: a file above it may have read ahead.
    is_used = False
    #: What is left to give, instead of the pipe.
    rest: Optional[memoryview] = None

    def readinto(self, buffer: Any) -> Optional[int]:
        if self.rest is not None:
            return _take(self, buffer)
        self.is_used = True
        return super().readinto(buffer)

    def readall(self) -> bytes:
        if self.rest is not None:
            return self.read(len(self.rest)) or b""
        self.is_used = True
        return super().readall()

    def read(self, size: Optional[int] = -1) -> Any:
        if self.rest is None:
            return super().read(-1 if size is None else size)
        size = len(self.rest) if size is None or size < 0 else size
        part, self.rest = self.rest[:size], self.rest[size:]
        return bytes(part)


def _take(file: Any, buffer: Any) -> int:
    with memoryview(buffer).cast("B") as room:
        part, file.rest = file.rest[: len(room)], file.rest[len(room) :]
        room[: len(part)] = part
        return len(part)


class InputFile(io.FileIO):
    """The parent's end of the input. Keeps what is written to it while it has a list for that."""

    is_used = False
    kept: Optional[List[bytes]] = None

    def write(self, data: Any) -> int:
        if self.kept is not None:
            self.kept.append(bytes(data))
            return len(self.kept[-1])
        self.is_used = True
        return super().write(data) or 0


class TerminalIO(io.RawIOBase):
    """The parent's side of a terminal: its end is the end of a file, not an error."""

    is_used = False
    rest: Optional[memoryview] = None
    kept: Optional[List[bytes]] = None

    def __init__(self, number: int, writes: bool) -> None:
        self._number, self._writes = number, writes

    def fileno(self) -> int:
        return self._number

    def readable(self) -> bool:
        return not self._writes

    def writable(self) -> bool:
        return self._writes

    def readinto(self, buffer: Any) -> Optional[int]:
        if self.rest is not None:
            return _take(self, buffer)
        self.is_used = True
        try:
            return os.readv(self._number, [buffer])
        except OSError as error:
            if error.errno == errno.EIO:
                return 0
            if error.errno == errno.EAGAIN:
                return None
            raise

    def write(self, data: Any) -> Optional[int]:
        if self.kept is not None:
            self.kept.append(bytes(data))
            return len(self.kept[-1])
        self.is_used = True
        try:
            return os.write(self._number, data)
        except BlockingIOError:
            return None

    def close(self) -> None:
        if not self.closed:
            super().close()
            os.close(self._number)


def file_over(raw: Any, bufsize: int, text: Optional[Tuple[Optional[str], Optional[str]]], by_line: bool) -> Any:
    """Returns the file object over one of these, as `subprocess` has it. `text`: encoding and rule for errors."""
    file, writes = raw, raw.writable()
    if bufsize:
        size = bufsize if bufsize > 1 else io.DEFAULT_BUFFER_SIZE
        file = io.BufferedWriter(raw, size) if writes else io.BufferedReader(raw, size)
    if text is None:
        return file
    encoding, errors = text
    return io.TextIOWrapper(file, encoding=encoding, errors=errors, write_through=writes, line_buffering=by_line)


def raw_of(stream: Any) -> Any:
    """Returns the file of this module at the bottom of a stream, or `None` if the caller has put another one there."""
    buffer = getattr(stream, "buffer", stream)
    raw = getattr(buffer, "raw", buffer)
    return raw if isinstance(raw, (PipeFile, InputFile, TerminalIO)) else None


def sized_pipes(names: Any, size: int) -> List[Tuple[str, int, int]]:
    """Makes a pipe of at least that size for each stream. Returns its name, the child's end and the parent's."""
    import fcntl

    made: List[Tuple[str, int, int]] = []
    try:
        for name in names:
            reader, writer = os.pipe()
            made.append((name, reader, writer) if name == "stdin" else (name, writer, reader))
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, size)
    except BaseException:
        close_all([number for _, *ends in made for number in ends])
        raise
    return made


def close_all(numbers: List[int]) -> None:
    """Closes descriptors."""
    for number in numbers:
        os.close(number)
