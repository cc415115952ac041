"""Lines in another encoding than UTF-8, of events: the native module splits and decodes UTF-8 only."""

from __future__ import annotations

import codecs
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Deque, Optional, Tuple

    from pipewright._pipewright import Run
    from pipewright._text import Decoding


class Decoder:
    """The decoders of both streams, each fed once."""

    def __init__(self, decoding: Decoding) -> None:
        make = codecs.getincrementaldecoder(decoding.encoding)
        self.both = {name: make(decoding.errors) for name in ("stdout", "stderr")}

    def feed(self, name: str, data: bytes, final: bool = False) -> str:
        """Returns the text of the next bytes."""
        text: str = self.both[name].decode(data, final)
        return text


class DecodedLines:
    """The lines of a run, with the methods of the native class."""

    def __init__(self, events: Run, longest: Optional[int], decoding: Decoding) -> None:
        self._most = longest
        self.events = events
        self._decoder = Decoder(decoding)
        self._begun = {"stdout": "", "stderr": ""}
        self._ready: Deque[Tuple[bool, str, bool]] = deque()
        #: The end of the run, once it has come.
        self.ending: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.events, name)

    def _take(self, event: Any) -> None:
        kind, value = event
        if kind == "exited":
            self.ending = value
            for name in ("stdout", "stderr"):
                self._split(name, self._decoder.feed(name, b"", True), True)
        elif kind in self._begun:
            self._split(kind, self._decoder.feed(kind, value), False)

    def _split(self, name: str, text: str, final: bool) -> None:
        *whole, begun = (self._begun[name] + text).split("\n")
        if final and begun:
            whole, begun = [*whole, begun], ""
        self._begun[name] = begun
        for line in whole:
            line = line[:-1] if line.endswith("\r") else line
            is_cut = self._most is not None and len(line) > self._most
            self._ready.append((name == "stderr", line[: self._most] if is_cut else line, is_cut))

    def _next(self, more: Any) -> Any:
        while not self._ready:
            if self.ending is not None:
                return False
            event = more()
            if event is None or event is False:
                return event
            self._take(event)
        return self._ready.popleft()

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Waits for the next line, as the native class does."""
        return self._next(lambda: self.events.wait(timeout))

    def poll(self) -> Any:
        """Returns the next line that has arrived, as the native class does."""
        return self._next(self.events.poll)

    def finish(self) -> Any:
        """Reads and drops the rest, and returns the end."""
        while self.wait():
            pass
        return self.ending
