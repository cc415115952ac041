"""Text and bytes, by the rules of `subprocess`."""

from __future__ import annotations

import codecs
import sys

from pipewright._std import std as _std

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Union


class Decoding:
    """The way in which streams are decoded."""

    __slots__ = ("encoding", "errors")

    def __init__(self, encoding: Optional[str], errors: Optional[str]) -> None:
        if encoding is None:
            self.encoding = default_encoding()
        else:
            self.encoding = locale_encoding() if encoding == "locale" else encoding
        self.errors = errors or "strict"
        # Found before anything is started.
        codecs.lookup(self.encoding)

    def is_utf_8(self) -> bool:
        """Returns true for UTF-8 without a mark."""
        return codecs.lookup(self.encoding).name == "utf-8"

    def decode(self, data: bytes) -> str:
        """Decodes a stream, with `\\n` for each line end."""
        text = data.decode(self.encoding, self.errors)
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text

    def decode_part(self, data: bytes, begin: int) -> str:
        """Decodes a part of a stream, which begins at that byte and ends before its end. Characters that the cuts have
        hit are left out.
        """
        if begin:
            return self.decode(data[self._whole_from(data, begin) :])
        text = codecs.getincrementaldecoder(self.encoding)(self.errors).decode(data)
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text

    def _whole_from(self, data: bytes, begin: int) -> int:
        """Returns the number of bytes that belong to a character before the cut."""
        name = codecs.lookup(self.encoding).name
        if name.startswith("utf-8"):
            return next((n for n in range(min(4, len(data))) if data[n] & 0xC0 != 0x80), min(4, len(data)))
        unit = 2 if name.startswith("utf-16") else 4 if name.startswith("utf-32") else 1
        first = -begin % unit
        # The second half of a character, or what looks like one.
        for skipped in range(first, first + 4, unit):
            try:
                data[skipped:].decode(self.encoding)
                return skipped
            except UnicodeDecodeError as error:
                if error.start > 0:
                    return skipped
        return first

    def encode(self, text: Union[str, bytes]) -> bytes:
        """Encodes the input."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        return text.encode(self.encoding, self.errors)


def default_encoding() -> str:
    """Returns the encoding of text for which the caller names none, and warns as PEP 597 says."""
    if getattr(sys.flags, "warn_default_encoding", 0):
        _warn_of_default()
    return "utf-8" if sys.flags.utf8_mode else locale_encoding()


def locale_encoding() -> str:
    """Returns the encoding of the locale, also in Python's UTF-8 mode."""
    import locale

    # From Python 3.11 on; the older function warns about this file in UTF-8 mode.
    get: Any = getattr(locale, "getencoding", None)
    return str(get() if get is not None else locale.getpreferredencoding(False))


def _warn_of_default() -> None:
    import builtins
    import warnings

    # The line of the caller, who is outside of this package.
    frame: Any = sys._getframe()
    level, package = 1, __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warning: Any = vars(builtins)["EncodingWarning"]
    warnings.warn("'encoding' argument not specified.", warning, stacklevel=level)


def take(options: Dict[str, Any]) -> Optional[Decoding]:
    """Takes the arguments about text out of the options; `None` means bytes."""
    universal = options.pop("universal_newlines", None)
    text = options.pop("text", None)
    encoding = options.pop("encoding", None)
    errors = options.pop("errors", None)
    if text is not None and universal is not None and bool(universal) != bool(text):
        raise _std.SubprocessError(
            "Cannot disambiguate when both text and universal_newlines are supplied but different. "
            "Pass one or the other."
        )
    if encoding or errors or text or universal:
        return Decoding(encoding or None, errors)
    return None


def to_bytes(data: Any, decoding: Optional[Decoding]) -> bytes:
    """Converts the input."""
    if decoding is not None:
        return decoding.encode(data)
    if isinstance(data, str):
        raise TypeError("memoryview: a bytes-like object is required, not 'str'")
    return bytes(memoryview(data).cast("B")) if not isinstance(data, bytes) else data
