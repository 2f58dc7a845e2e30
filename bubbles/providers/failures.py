"""What a failure of a vendor means: category, whether to ask again, and when (PROV-05, PROV-06, PROV-08).

The same for all provider paths. What vendors write is hostile: it is searched in bounded pieces by patterns that take
linear time, and what is kept of it for the log is short, without control characters and without secrets (SEC-03).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from bubbles.providers import quotas, wording
from bubbles.providers.contract import Category, ProviderError

MAX_BODY_CHARS = 65_536
"""Of a vendor's answer that are looked at."""
MAX_MESSAGE_CHARS = 2_000
"""Of its message that are searched: further on stands what a vendor repeats of the request."""
MAX_DETAIL_CHARS = 500
MIN_SECRET = 4
"""Characters. What is shorter is no secret, and would be found everywhere."""
REDACTED = "[redacted]"

_NEVER_FOR_LENGTH = frozenset({401, 403, 404, 408, 503, 529})
_PASSING = frozenset({408, 409, 425})
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


def of_response(
    status: int,
    headers: Mapping[str, str],
    body: str,
    *,
    secrets: Iterable[str] = (),
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> ProviderError:
    """What an answer with a status other than 2xx means. Names in ``headers`` may be in any case.

    ``secrets`` are taken out of what the error says. ``now`` is for times at which a quota is available again.
    """
    body = body[:MAX_BODY_CHARS]
    return _failure(status, headers, body, _parsed(body), secrets, now)


def of_error(
    error: object,
    *,
    secrets: Iterable[str] = (),
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> ProviderError:
    """What an error inside an answer of status 200 means: the value of ``error``, an object or a text."""
    try:
        body = json.dumps(error)[:MAX_BODY_CHARS]
    except (ValueError, TypeError, RecursionError):
        body = ""
    return _failure(_status_inside(error), {}, body, error, secrets, now)


def of_exception(error: BaseException, *, secrets: Iterable[str] = ()) -> ProviderError:
    """What a client's exception means; those with a ``status_code`` (openai's, litellm's) are answers of a server."""
    if isinstance(error, ProviderError):
        return error
    text = str(error)
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        headers = getattr(getattr(error, "response", None), "headers", None)
        headers = headers if isinstance(headers, Mapping) else getattr(error, "litellm_response_headers", None)
        known = {str(key): str(value) for key, value in headers.items()} if isinstance(headers, Mapping) else {}
        return of_response(status, known, text, secrets=secrets)
    from socket import gaierror
    from ssl import SSLCertVerificationError

    if isinstance(error, gaierror):
        unknown = ProviderError(Category.UNAVAILABLE, "its host's name cannot be looked up: is this machine online?")
        unknown.mend = "The name of its host cannot be looked up: see that this machine is online, or mend baseUrl."
        return unknown
    detail = scrubbed(f"{type(error).__name__}: {text}", secrets)
    if isinstance(error, SSLCertVerificationError):
        return ProviderError(Category.UNAVAILABLE, detail, retryable=False)
    if isinstance(error, ValueError | TypeError):  # an address or a header that no request can be made of
        return ProviderError(Category.REJECTED, detail)
    return ProviderError(Category.UNAVAILABLE, detail)


def broken(detail: str, *, secrets: Iterable[str] = ()) -> ProviderError:
    """A reply that broke off or makes no sense; the same request may well succeed."""
    return ProviderError(Category.UNAVAILABLE, scrubbed(detail, secrets))


def scrubbed(text: str, secrets: Iterable[str], limit: int = MAX_DETAIL_CHARS) -> str:
    """One short line without any of ``secrets``, however a URL, JSON or Python would write them."""
    from urllib.parse import quote

    text = text[:MAX_BODY_CHARS]
    for secret in sorted({secret for secret in secrets if len(secret) >= MIN_SECRET}, key=len, reverse=True):
        safe = secret.encode("utf-8", "replace").decode()
        for form in {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], quote(safe, safe=""), quote(safe)}:
            text = text.replace(form, REDACTED)
    text = _CONTROL.sub(" ", text).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _failure(
    status: int | None,
    headers: Mapping[str, str],
    body: str,
    parsed: object,
    secrets: Iterable[str],
    now: Callable[[], datetime],
) -> ProviderError:
    message, codes = _said(parsed)
    message = message or body
    words = f"{codes} {message[:MAX_MESSAGE_CHARS]}"
    category = _category(status, words, codes)
    parts = (f"status {status}" if status else "an error in the reply", codes, message)
    detail = scrubbed(": ".join(part for part in parts if part), secrets)
    if category not in (Category.RATE_LIMIT, Category.UNAVAILABLE):
        return ProviderError(category, detail)
    spent = category is Category.RATE_LIMIT and (status == 402 or bool(wording.OUT_OF_MONEY.search(words)))
    wait = quotas.wait_of(headers, words, body, now(), spent=spent, limited=category is Category.RATE_LIMIT)
    return ProviderError(
        category, detail, retryable=wait.retryable, retry_after_s=wait.retry_after_s, resets=wait.resets
    )


def _category(status: int | None, words: str, codes: str) -> Category:
    if status in (401, 407) or (status == 403 and not wording.FLAGGED.search(words)):
        return Category.AUTHENTICATION
    if status == 429:
        return Category.CONTEXT_TOO_LONG if wording.TOO_LONG_FOR_QUOTA.search(words) else Category.RATE_LIMIT
    if status == 413 or (status not in _NEVER_FOR_LENGTH and wording.TOO_LONG.search(words)):
        return Category.CONTEXT_TOO_LONG
    if status in (None, 400) and wording.KEY_IS_WRONG.search(words):
        return Category.AUTHENTICATION
    if status == 402 or (status in (None, 400) and wording.OUT_OF_MONEY.search(words)):
        return Category.RATE_LIMIT
    if status is None:
        if wording.LIMITED.search(words):
            return Category.RATE_LIMIT
        return Category.REJECTED if wording.INVALID.search(codes) else Category.UNAVAILABLE
    return Category.UNAVAILABLE if status >= 500 or status in _PASSING else Category.REJECTED


def _parsed(body: str) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _said(parsed: object, depth: int = 4) -> tuple[str, str]:
    """The message of an error, and its codes, wherever this vendor puts them."""
    if not depth:
        return "", ""
    if isinstance(parsed, list):  # Gemini's OpenAI-compatible address; FastAPI's list of faults
        said = [_said(item, depth - 1) for item in parsed[:5]]
        return " ".join(message for message, _ in said if message), " ".join(codes for _, codes in said if codes)
    if not isinstance(parsed, dict):
        return (parsed if isinstance(parsed, str) else ""), ""
    inner = parsed.get("error", parsed.get("detail"))
    if isinstance(inner, dict | list):
        return _said(inner, depth - 1)
    texts = [value for name in ("message", "msg", "error", "detail") if isinstance(value := parsed.get(name), str)]
    metadata = parsed.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None  # OpenRouter: what the vendor behind it said
    codes = [parsed.get(name) for name in ("code", "type", "status")]
    return (
        " ".join([*texts[:1], *([raw] if isinstance(raw, str) else [])]),
        " ".join(str(code)[:100] for code in codes if isinstance(code, str | int) and code != "error"),
    )


def _status_inside(error: Any) -> int | None:
    """Of an error object that says ``"code": 502``, as OpenRouter does."""
    if isinstance(error, dict):
        for name in ("code", "status", "status_code"):
            value = error.get(name)
            if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
                value = int(value)
            if isinstance(value, int) and 400 <= value <= 599:
                return value
    return None
