"""What kind of text some bytes are, if they are text."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

SAMPLE = 65_536
"""Bytes from the beginning of a file that tell what it is."""

PICTURES = (
    (re.compile(rb"\x89PNG\r\n\x1a\n"), "image/png"),
    (re.compile(rb"\xff\xd8\xff"), "image/jpeg"),
    (re.compile(rb"GIF8[79]a"), "image/gif"),
    (re.compile(rb"RIFF.{4}WEBP", re.DOTALL), "image/webp"),
)
"""What models see (``providers.contract.Image``)."""
_KINDS = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive, or a document made of one"),
    (b"\x7fELF", "a program (ELF)"),
    (b"\x1f\x8b", "gzip data"),
    (b"BZh", "bzip2 data"),
    (b"\xfd7zXZ\0", "xz data"),
    (b"\x28\xb5\x2f\xfd", "zstd data"),
    (b"SQLite format 3\0", "an SQLite database"),
)
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\v\b\x1b")) + b"\x7f"
_CHARACTER = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    codec: str
    mark: bytes = b""
    """The byte order mark at the beginning of the file."""
    remark: str = ""
    """What the model should know of it; nothing about plain UTF-8."""

    @property
    def wide(self) -> bool:
        return self.codec.startswith("utf-16")

    def shown(self, data: bytes) -> str:
        """``data``, which does not begin with the mark, with bytes that are no text as ``\\xNN``."""
        return data.decode(self.codec, "backslashreplace")

    def decode(self, data: bytes) -> str:
        """Such that ``encode`` gives the same bytes again. Raises UnicodeError."""
        return data.removeprefix(self.mark).decode(self.codec, "strict" if self.wide else "surrogateescape")

    def encode(self, text: str) -> bytes:
        """Raises UnicodeError for what this encoding lacks."""
        return self.mark + text.encode(self.codec, "strict" if self.wide else "surrogateescape")


def picture(data: bytes) -> str | None:
    """The media type, if ``data`` begins like a picture that models see."""
    return next((media for pattern, media in PICTURES if pattern.match(data)), None)


def kind_of(data: bytes) -> str:
    """What binary data is called."""
    return next((name for magic, name in _KINDS if data.startswith(magic)), "binary data")


def encoding_of(data: bytes) -> Encoding | None:
    """Of a file that begins with ``data``, or None if it is no text."""
    sample = data[:SAMPLE]
    for mark, codec in ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")):
        if sample.startswith(mark) and not sample.startswith(codecs.BOM_UTF32_LE):
            return Encoding(codec=codec, mark=mark, remark="the file is UTF-16")
    if b"\0" in sample or len(sample) - len(sample.translate(None, _CONTROL)) > len(sample) // 10:
        return None
    if sample.startswith(codecs.BOM_UTF8):
        return Encoding(codec="utf-8", mark=codecs.BOM_UTF8, remark="the file begins with a byte order mark")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)  # the sample may end within a character
    except UnicodeDecodeError:
        return _not_utf8(sample)
    return Encoding(codec="utf-8")


def _not_utf8(sample: bytes) -> Encoding:
    """Most bytes of Latin-1 do not happen to be characters of UTF-8."""
    characters = len(_CHARACTER.findall(sample))
    strangers = len(_CHARACTER.sub(b"", sample).translate(None, bytes(range(128))))
    if characters > strangers:
        return Encoding(codec="utf-8", remark=r"some bytes are no UTF-8 and are shown as \xNN")
    return Encoding(codec="latin-1", remark="the file is not UTF-8: it is read as Latin-1")
