"""What the model gets of a page that came."""

from __future__ import annotations

import http
from dataclasses import dataclass

from bubbles.tools.contract import ToolError, ToolResult
from bubbles.tools.untrusted import marked
from bubbles.tools.web.address import WebAddress
from bubbles.tools.web.bodies import Body, described, kind, unpacked
from bubbles.tools.web.characters import decoded
from bubbles.tools.web.html import Reading, read_html

MAX_REFUSAL = 2_000
"""Characters of the page that comes with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What came for an address, after all redirects."""

    address: WebAddress
    status: int
    body: Body


def result_of(page: Page, max_bytes: int, *, links: bool) -> ToolResult:
    """What the model gets of a page. Takes seconds at most, and belongs into a thread. Raises ``ToolError``."""
    origin = page.address.origin
    try:
        body = unpacked(page.body, max_bytes)
    except ValueError as error:
        raise ToolError(f"{origin} answered with what cannot be read: {error}.") from None
    refused = _refusal(page.status) if page.status >= 400 else ""
    if not body.data:
        raise ToolError(f"{origin} answers {refused or 'with an empty page'}.")
    what = kind(body)
    if what == "other":
        raise ToolError(f"{origin} answers {refused or 'with no text'}: it is {described(body)}.")
    text = decoded(body.data, body.charset)
    reading = read_html(text, page.address.text, links=links) if what == "html" else Reading(title="", text=text)
    shown = reading.text if not refused else reading.text[:MAX_REFUSAL]
    title = f"Title: {reading.title}\n" if reading.title else ""
    by_others = marked(f"{title}Address: {page.address.text}\n\n{shown}", origin)
    remarks = [reading.remark] if reading.remark else []
    if body.cut:
        remarks.append(f"only its first {max_bytes:,} bytes were read (tools.web.maxBytes)")
    if body.broken:
        remarks.append("the connection ended before the page was whole")
    told = f"\n[{'; '.join(remarks)}]" if remarks else ""
    head = f"{origin} answers {refused}.\n" if refused else ""
    return ToolResult(text=f"{head}{by_others}{told}", is_error=bool(refused))


def _refusal(status: int) -> str:
    """In our own words: the server's may be anything."""
    try:
        return f"{status} {http.HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
