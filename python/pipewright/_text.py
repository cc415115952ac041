"""Text and bytes, by the rules of `subprocess`."""

from __future__ import annotations

from pipewright._std import std as _std

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional, Union


class Decoding:
    """The way in which streams are decoded."""

    __slots__ = ("encoding", "errors")

    def __init__(self, encoding: Optional[str], errors: Optional[str]) -> None:
        self.encoding = encoding or default_encoding()
        self.errors = errors or "strict"

    def decode(self, data: bytes) -> str:
        """Decodes a stream, with `\\n` for each line end."""
        text = data.decode(self.encoding, self.errors)
        return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text

    def encode(self, text: Union[str, bytes]) -> bytes:
        """Encodes the input."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        return text.encode(self.encoding, self.errors)


def default_encoding() -> str:
    """Returns the encoding of the locale."""
    import locale

    return locale.getpreferredencoding(False)


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
        return Decoding(encoding, errors)
    return None


def to_bytes(data: Any, decoding: Optional[Decoding]) -> bytes:
    """Converts the input."""
    if decoding is not None:
        return decoding.encode(data)
    if isinstance(data, str):
        raise TypeError("memoryview: a bytes-like object is required, not 'str'")
    return bytes(memoryview(data).cast("B")) if not isinstance(data, bytes) else data
