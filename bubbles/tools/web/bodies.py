"""The body of an answer: read up to a bound, unpacked up to a bound, and told apart. Nothing here trusts a header."""

from __future__ import annotations

import codecs
import re
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from bubbles.tools.encodings import SAMPLE, encoding_of, kind_of
from bubbles.tools.web.characters import of_header

if TYPE_CHECKING:
    from aiohttp import ClientResponse

Kind = Literal["html", "text", "other"]

_MEDIA = re.compile(r"[a-z0-9!#$&^_.+-]{1,60}/[a-z0-9!#$&^_.+-]{1,60}")
_LOOKS_HTML = re.compile(
    rb"\s{0,512}(?:<!--.{0,1024}?-->\s{0,512})?<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_TEXTS = re.compile(
    r"text/.*|.*[+/](?:json|xml|yaml|toml)|application/(?:x-)?(?:javascript|ecmascript|ndjson|jsonlines|sh|sql|tex|php)"
)
_UNTOLD = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/unknown"})
PIECE = 65_536
MAX_MEMBERS = 64
"""Of a gzip file, one after the other: each costs a copy of a piece."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """As it came."""

    data: bytes
    content_type: str = ""
    packed: str = ""
    """Content-Encoding."""
    cut: bool = False
    """There is more, over the bound."""
    broken: bool = False
    """The connection ended before it was whole."""
    length: int | None = None
    """Bytes, as the server says."""

    @property
    def media_type(self) -> str:
        """Empty for none, or for what is none."""
        text = self.content_type.partition(";")[0].strip().lower()
        return text if _MEDIA.fullmatch(text) else ""

    @property
    def charset(self) -> str | None:
        """The codec that the header names."""
        return of_header(self.content_type)


async def received(response: ClientResponse, max_bytes: int) -> Body:
    """The body up to ``max_bytes``; of what is no text only its beginning. Raises ``WIRE_ERRORS`` if nothing came."""
    from bubbles.tools.web.dial import WIRE_ERRORS

    content_type = response.headers.get("Content-Type", "")
    packed = response.headers.get("Content-Encoding", "").strip().lower()
    data, broken = bytearray(), False
    try:
        while len(data) <= max_bytes and (chunk := await response.content.readany()):
            data += chunk
            if packed in ("", "identity") and len(data) >= SAMPLE:
                head = Body(data=bytes(data[:SAMPLE]), content_type=content_type)
                if kind(head) == "other":
                    break
    except TimeoutError:
        raise
    except WIRE_ERRORS:
        if not data:
            raise
        broken = True
    return Body(
        data=bytes(data[:max_bytes]),
        content_type=content_type,
        packed="" if packed == "identity" else packed,
        cut=len(data) > max_bytes,
        broken=broken,
        length=response.content_length,
    )


def unpacked(body: Body, max_bytes: int) -> Body:
    """With its data as it was before it was packed, up to ``max_bytes``. ``ValueError`` for what cannot be unpacked."""
    if not body.packed:
        return body
    if body.packed not in ("gzip", "x-gzip", "deflate"):
        raise ValueError("it comes packed in a way that was not asked for")
    try:
        data, whole = _inflated(body.data, _GZIP_OR_ZLIB, max_bytes)
    except zlib.error:
        if body.packed != "deflate":
            raise ValueError("it is packed, and damaged") from None
        try:
            data, whole = _inflated(body.data, -zlib.MAX_WBITS, max_bytes)  # what some servers take deflate for
        except zlib.error:
            raise ValueError("it is packed, and damaged") from None
    return Body(
        data=data[:max_bytes],
        content_type=body.content_type,
        cut=body.cut or len(data) > max_bytes,
        broken=body.broken or not (whole or body.cut or len(data) > max_bytes),
    )


def _inflated(data: bytes, window: int, max_bytes: int) -> tuple[bytes, bool]:
    """At most a byte over ``max_bytes``, and whether the end was seen. What came before a damage counts."""
    found = bytearray()
    at = 0
    for _ in range(MAX_MEMBERS):
        engine = zlib.decompressobj(window)
        while at < len(data) and not engine.eof:
            piece = data[at : at + PIECE]
            try:
                found += engine.decompress(piece, max_bytes + 1 - len(found))
            except zlib.error:
                if not found:
                    raise
                return bytes(found), False
            if len(found) > max_bytes:
                return bytes(found), True
            at += len(piece) - len(engine.unused_data)
        if at >= len(data):
            return bytes(found), engine.eof
    return bytes(found), False


def kind(body: Body) -> Kind:
    """Of an unpacked body, or of its beginning."""
    media, sample = body.media_type, body.data[:SAMPLE]
    if not _is_text(sample, body.charset):
        return "other"
    if media in ("text/html", "application/xhtml+xml") or (media in _UNTOLD and _LOOKS_HTML.match(sample)):
        return "html"
    return "text" if media in _UNTOLD or _TEXTS.fullmatch(media) else "other"


def described(body: Body) -> str:
    """What it is, if it is no text, and how large."""
    name = kind_of(body.data)
    if name == "binary data" and body.media_type not in _UNTOLD:
        name = body.media_type
    elif body.media_type not in _UNTOLD:
        name = f"{name} ({body.media_type})"
    if body.length is not None:
        return f"{name}, {body.length:,} bytes"
    return f"{name}, over {len(body.data):,} bytes" if len(body.data) >= SAMPLE else f"{name}, {len(body.data):,} bytes"


def _is_text(sample: bytes, charset: str | None) -> bool:
    if charset is not None and charset.startswith("utf-16"):
        return True
    return encoding_of(sample) is not None or sample.startswith(codecs.BOM_UTF32_LE)
