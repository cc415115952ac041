"""The output of a child while its input is fed. A large one is read into one growing object, and not copied."""

from __future__ import annotations

import io
import select
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional, Tuple

    from pipewright._pipewright import Child, Communication

#: The size of a read: that of an enlarged pipe.
_READ = 1 << 20
#: The time between two looks at the child.
_LOOK = 0.05
#: As in the native module: the time without output after the child's end, and the most time after it.
_QUIET = 0.25
_CAP = 5.0


class Reading:
    """Reads the outputs to their end, in as many calls as the caller likes."""

    def __init__(self, native: Communication, child: Child) -> None:
        self._native = native
        self._child = child
        self._file: Optional[io.FileIO] = None
        self._large: Optional[io.BytesIO] = None
        self._index = 0
        self._ended: Optional[float] = None
        self._held_open = False

    @property
    def held_open(self) -> bool:
        """True if something still held a stream open when reading ended."""
        return self._held_open or self._native.held_open

    def so_far(self) -> Tuple[bytes, bytes]:
        """Returns both streams so far."""
        if self._large is None:
            return self._native.so_far()
        data = self._large.getvalue()
        return (data, b"") if self._index == 0 else (b"", data)

    def run(self, timeout: Optional[float]) -> bool:
        """Continues. Returns true once the child has ended and its output has been read."""
        until = None if timeout is None else time.monotonic() + timeout
        if self._large is None:
            done = self._native.run(timeout)
            if done is not None:
                return done
            large = self._native.take_large()
            if large is None:
                raise AssertionError("an output is large, and cannot be taken")
            self._index, number, data = large
            self._file = io.FileIO(number)
            self._large = io.BytesIO()
            self._large.write(data)
        if self._file is not None:
            if not self._read(self._file, self._large, until):
                return False
            self._file.close()
            self._file = None
        left = None if until is None else max(0.0, until - time.monotonic())
        return self._child.wait(left) is not None

    def _read(self, file: io.FileIO, large: io.BytesIO, until: Optional[float]) -> bool:
        """Reads to the end of the stream. Returns false if the time is up first."""
        ready = select.poll()
        ready.register(file, select.POLLIN)
        room = memoryview(bytearray(_READ))
        last = look = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= look:
                look = now + _LOOK
                if self._ended is None and self._child.poll() is not None:
                    self._ended = now
            if self._ended is not None and now >= min(max(last, self._ended) + _QUIET, self._ended + _CAP):
                self._held_open = True
                return True
            if until is not None and now >= until:
                return False
            wait = look if until is None else min(look, until)
            if not ready.poll(max(0.0, wait - now) * 1000):
                continue
            count = file.readinto(room)
            if count == 0:
                return True
            if count is None:
                # Something else has read it.
                continue
            large.write(room[:count])
            last = now
