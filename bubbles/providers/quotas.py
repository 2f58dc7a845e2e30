"""How long a vendor asks to wait, and whether a quota comes back soon enough to wait for (PROV-05, B088, B089)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bubbles.providers import wording

LONGEST_WAIT_S = 120.0
"""A request is not held back for longer: it fails, and the person is told when the quota is available again."""
FARTHEST_S = 366 * 86_400.0

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{0,9})?)\s?([a-z]{1,12})")
_AGAIN_IN = re.compile(
    r"(?:try(?:ing)? again|retry(?:ing)?|resets?) (?:in|after) (?:about )?"
    r"((?:\d{1,9}(?:\.\d{0,9})?\s?[a-z]{1,12}[ ,]{0,2}){1,4})",
    re.IGNORECASE,
)
_RETRY_INFO = re.compile(r"""retryDelay\\?["']\s{0,4}:\s{0,4}\\?["'](\d{1,9}(?:\.\d{1,9})?)s""")
"""google.rpc.RetryInfo, also where a library has quoted it again."""
_DAY_IS_USED_UP = re.compile(r"""quotaId\\?["']\s{0,4}:\s{0,4}\\?["'][A-Za-z]{0,80}PerDay""")
"""google.rpc.QuotaFailure. The delay that comes with it is of no use: tomorrow is later."""
_RESET_AT = re.compile(
    r"resets? (?:at|on) (\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d{1,6})?(?: ?Z| ?UTC|[+-]\d\d:?\d\d)?)",
    re.IGNORECASE,
)
_RESET_FIELD = re.compile(
    r"""(resets_at|resets_in_seconds|x-ratelimit-reset)\\?["']\s{0,4}:\s{0,4}\\?["']?(\d{1,13})""", re.IGNORECASE
)
_RESET_HEADER = re.compile(r"(?:x-|anthropic-)?ratelimit-(?:[a-z-]{1,40}-)?reset(?:-[a-z]{1,20})?")
_SECONDS_OF = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    retryable: bool
    retry_after_s: float | None = None
    resets: str | None = None


def wait_of(headers: Mapping[str, str], words: str, body: str, now: datetime, *, spent: bool, limited: bool) -> Wait:
    """What a rate limit, or a server that is not available, says of waiting.

    ``words`` are the vendor's message and codes, ``body`` all of its answer. ``spent``: there is no more money or
    quota, whatever else is said. ``limited``: it is a rate limit.
    """
    named = {name.lower(): value for name, value in headers.items()}
    hint = _hint(named, words, body, now) if limited else _of_header(named, now)
    if limited:
        spent = spent or bool(_DAY_IS_USED_UP.search(body))
        if hint is None and not spent and wording.USED_UP.search(words):
            delay = max(_of_reset_fields(body, now), default=0.0)
            spent, hint = (False, delay) if 0 < delay <= LONGEST_WAIT_S else (True, None)
    if not spent and (hint is None or hint <= LONGEST_WAIT_S):
        return Wait(retryable=True, retry_after_s=hint)
    if hint is not None and hint > LONGEST_WAIT_S:
        return Wait(retryable=False, retry_after_s=hint, resets=_moment(hint, now))
    return Wait(retryable=False, resets=_stated(named, words, body, now))


def _hint(headers: Mapping[str, str], words: str, body: str, now: datetime) -> float | None:
    """Seconds that the vendor asks for: in its header, in Google's details, or in its sentence."""
    if (asked := _of_header(headers, now)) is not None:
        return asked
    if found := _RETRY_INFO.search(body):
        return _bounded(float(found[1]))
    return _duration(found[1]) if (found := _AGAIN_IN.search(words)) else None


def _of_header(headers: Mapping[str, str], now: datetime) -> float | None:
    """``Retry-After`` as seconds or as an HTTP date (RFC 9110, 10.2.3), or OpenAI's ``retry-after-ms``."""
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if not value:
            continue
        try:
            return _bounded(float(value) * scale)
        except ValueError:
            pass
        if (moment := _http_date(value)) is not None:
            return _bounded((moment - now).total_seconds())
    return None


def _http_date(value: str) -> datetime | None:
    from email.utils import parsedate_to_datetime

    try:
        moment = parsedate_to_datetime(value[:64])
    except (ValueError, TypeError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _bounded(seconds: float) -> float | None:
    return min(max(seconds, 0.0), FARTHEST_S) if math.isfinite(seconds) else None


def _duration(text: str) -> float | None:
    """Seconds of ``7m12.5s``, ``20 seconds``, ``500ms``."""
    total = 0.0
    for number, unit in _DURATION.findall(text.lower()):
        scale = 0.001 if unit == "ms" or unit.startswith("milli") else _SECONDS_OF.get(unit[0])
        if scale is None:
            break
        total += float(number) * scale
    return _bounded(total) if total else None


def _stated(headers: Mapping[str, str], words: str, body: str, now: datetime) -> str | None:
    """When a quota is available again, if that is said anywhere and is not about to be."""
    if found := _RESET_AT.search(words):
        return found[1]  # as it stands: without a zone it is the vendor's
    delays = [*_of_reset_headers(headers, now), *_of_reset_fields(body, now)]
    latest = max(delays, default=0.0)
    return _moment(latest, now) if latest > LONGEST_WAIT_S else None


def _of_reset_headers(headers: Mapping[str, str], now: datetime) -> Iterator[float]:
    for value in [text.strip()[:40] for name, text in headers.items() if _RESET_HEADER.fullmatch(name[:80])]:
        if value.isascii() and value.isdigit() and len(value) <= 13:
            yield _epoch_or_delay(int(value), now)
        elif (delay := _until(value, now)) is not None or (delay := _duration(value)) is not None:
            yield delay


def _until(value: str, now: datetime) -> float | None:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()


def _of_reset_fields(body: str, now: datetime) -> Iterator[float]:
    for found in _RESET_FIELD.finditer(body):
        yield _epoch_or_delay(int(found[2]), now)


def _epoch_or_delay(value: int, now: datetime) -> float:
    """Seconds from now of what is a number of seconds, or a moment in seconds or milliseconds since 1970."""
    if value > 10**11:
        return value / 1_000 - now.timestamp()
    return value - now.timestamp() if value > 10**9 else float(value)


def _moment(delay_s: float, now: datetime) -> str:
    """Such as ``2026-12-01 08:00 UTC, in about 5 hours``."""
    delay_s = min(delay_s, FARTHEST_S)
    moment = now.astimezone(UTC) + timedelta(seconds=delay_s, minutes=1) - timedelta(microseconds=1)  # rounded up
    for unit, seconds in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if delay_s >= 2 * seconds or seconds == 60:
            about = f"{round(delay_s / seconds)} {unit}s"
            break
    return f"{moment:%Y-%m-%d %H:%M} UTC, in about {about}"
