"""What failures mean, in the words of many vendors."""

from __future__ import annotations

import json
import socket
import ssl
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbles.providers.contract import Category, ProviderError
from bubbles.providers.failures import MAX_BODY_CHARS, MAX_DETAIL_CHARS, of_error, of_exception, of_response, scrubbed

NOW = datetime(2026, 11, 30, 22, 0, tzinfo=UTC)


def answer(status: int, body: object, **headers: str) -> ProviderError:
    text = body if isinstance(body, str) else json.dumps(body)
    return of_response(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, text, now=lambda: NOW
    )


def said(message: str, **more: object) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


TOO_LONG = """
400 | This model's maximum context length is 128000 tokens. However, your messages resulted in 130500 tokens.
400 | Your input exceeds the context window of this model. Please adjust your input and try again.
400 | prompt is too long: 208310 tokens > 200000 maximum
400 | input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length
400 | The input token count (1200000) exceeds the maximum number of tokens allowed (1048575).
400 | The decoder prompt (length 40000) is longer than the maximum model length of 32768.
400 | You passed 4097 input tokens. However, the model's context length is only 4096 tokens
400 | Input length (265330) exceeds model's maximum context length (262144).
400 | the request exceeds the available context size. try increasing the context size or enable context shift
500 | the request exceeds the available context size. try increasing the context size or enable context shift
400 | request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it
400 | exceeds context size
400 | prompt too long; exceeded max context length by 4 tokens
400 | the input length exceeds the context length
400 | Please reduce the length of the messages or completion.
413 | Request too large for model `llama` in organization `o` on tokens per minute (TPM): Limit 6000, Requested 9011
429 | Request too large for gpt-4o in organization org on tokens per min (TPM): Limit 30000, Requested 45000.
413 | request_too_large: Request exceeds the maximum size
400 | This endpoint's maximum context length is 131072 tokens. However, you requested about 200000 tokens
400 | Input is too long for requested model.
400 | Invalid request: Your request exceeded model token limit: 8192
400 | invalid params, context window exceeds limit (2013)
400 | Prompt exceeds max length
400 | Range of input length should be [1, 30720]
400 | length of prompt_tokens (35000) must be less than max_seq_len (32768).
400 | Total tokens of image and text exceed max message tokens
400 | This model's maximum prompt length is 131072 but the request contains 537812 tokens.
400 | Prompt contains 50000 tokens, too large for model with 32768 maximum context length
400 | prompt token count of 130000 exceeds the limit of 128000
400 | The number of tokens to keep from the initial prompt is greater than the context length
422 | Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097
400 | The input (300 tokens) is longer than the model's context length (200 tokens).
400 | Prompt 超长
"""


@pytest.mark.req("PROV-06")
@pytest.mark.parametrize("line", TOO_LONG.strip().splitlines())
def test_every_vendors_words_for_a_request_that_is_too_long_are_known(line: str) -> None:
    status, _, message = line.partition(" | ")
    for body in (said(message), {"object": "error", "message": message}, [said(message)], {"detail": message}, message):
        error = answer(int(status), body)
        assert error.category is Category.CONTEXT_TOO_LONG, body
        assert not error.retryable


@pytest.mark.parametrize(
    ("status", "body", "category"),
    [
        (400, said("max_tokens is too large: 90000. It supports at most 16384 completion tokens."), Category.REJECTED),
        (400, said("max_tokens (90000) exceeds the limit of 8192"), Category.REJECTED),
        (
            400,
            said("Invalid 'messages[3].tool_calls[0].id': string too long. Expected maximum length 40"),
            Category.REJECTED,
        ),
        (400, said("Image is too large"), Category.REJECTED),
        (400, said("Unknown field.", code="data_inspection_failed"), Category.REJECTED),
        (422, {"detail": [{"loc": ["body"], "msg": "field required", "type": "missing"}]}, Category.REJECTED),
        (404, said("No such model.", code="model_not_found"), Category.REJECTED),
        (405, "", Category.REJECTED),
        (403, said("Your input was flagged", metadata={"reasons": ["violence"]}), Category.REJECTED),
        (403, said("Country not supported"), Category.AUTHENTICATION),
        (400, [said("API key not valid.", status="INVALID_ARGUMENT")], Category.AUTHENTICATION),
        (401, "", Category.AUTHENTICATION),
        (402, said("Insufficient Balance"), Category.RATE_LIMIT),
        (400, said("Your credit balance is too low to access the API."), Category.RATE_LIMIT),
        (408, "", Category.UNAVAILABLE),
        (409, "", Category.UNAVAILABLE),
        (500, said("Oh."), Category.UNAVAILABLE),
        (503, said("The model is overloaded. context length exceeded"), Category.UNAVAILABLE),
        (529, said("Overloaded", type="overloaded_error"), Category.UNAVAILABLE),
    ],
)
def test_answers_have_their_category(status: int, body: object, category: Category) -> None:
    error = answer(status, body)
    assert error.category is category
    assert error.retryable is (category is Category.UNAVAILABLE)


def test_what_a_vendor_repeats_of_the_request_decides_nothing() -> None:
    """The person may well talk of such things."""
    error = answer(400, said("Invalid value " + "x" * 2_000 + " prompt is too long"))
    assert error.category is Category.REJECTED


def test_openrouter_tells_what_the_vendor_behind_it_said() -> None:
    raw = json.dumps({"type": "error", "error": {"message": "prompt is too long: 3 tokens > 2 maximum"}})
    error = answer(400, said("Provider returned error", code=400, metadata={"raw": raw}))
    assert error.category is Category.CONTEXT_TOO_LONG


def quota(period: str, delay: str) -> list[dict[str, Any]]:
    """As Gemini's OpenAI-compatible address answers."""
    violation = {"quotaId": f"GenerateRequestsPer{period}PerProjectPerModel-FreeTier", "quotaValue": "20"}
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    message = "You exceeded your current quota, please check your plan and billing details."
    return [said(message, code=429, status="RESOURCE_EXHAUSTED", details=details)]


@pytest.mark.req("PROV-05")
@pytest.mark.parametrize(
    ("body", "headers", "retryable", "after"),
    [
        pytest.param(said("Slow down."), {}, True, None, id="nothing said"),
        pytest.param(said("Slow down."), {"Retry_After": "20"}, True, 20.0, id="seconds"),
        pytest.param(said("Slow down."), {"retry_after": "1.5"}, True, 1.5, id="parts of a second"),
        pytest.param(said("Slow down."), {"retry_after_ms": "250"}, True, 0.25, id="milliseconds"),
        pytest.param(said("Slow down."), {"retry_after": "Mon, 30 Nov 2026 22:00:30 GMT"}, True, 30.0, id="date"),
        pytest.param(said("Slow down."), {"retry_after": "Mon, 30 Nov 2020 22:00:30 GMT"}, True, 0.0, id="past date"),
        pytest.param(said("Slow down."), {"retry_after": "soon"}, True, None, id="nonsense"),
        pytest.param(said("Slow down."), {"retry_after": "nan"}, True, None, id="no number"),
        pytest.param(said("Slow down."), {"retry_after": "-5"}, True, 0.0, id="negative"),
        pytest.param(said("Slow down."), {"retry_after": "120"}, True, 120.0, id="just short enough"),
        pytest.param(said("Slow down."), {"retry_after": "121"}, False, 121.0, id="too long"),
        pytest.param(quota("Minute", "3s"), {}, True, 3.0, id="B089 a minute's quota with a time"),
        pytest.param(quota("Day", "3s"), {}, False, None, id="B088 a day's quota with a time that means nothing"),
        pytest.param(quota("Day", "36000s"), {}, False, 36_000.0, id="B088 a day's quota with a time"),
        pytest.param(
            json.dumps(quota("Day", "9s")).replace('"', '\\"'), {}, False, None, id="B088 quoted by a library"
        ),
        pytest.param(said("Rate limit reached on requests per day (RPD): Limit 200."), {}, False, None, id="a day's"),
        pytest.param(
            said("Rate limit reached on tokens per day (TPD). Please try again in 7m12.5s."),
            {},
            False,
            432.5,
            id="Groq's",
        ),
        pytest.param(
            said("Rate limit reached on tokens per day (TPD). Please try again in 9.5s."),
            {},
            True,
            9.5,
            id="a moving day",
        ),
        pytest.param(said("Rate limit reached. Please try again in 20s. Visit us."), {}, True, 20.0, id="in words"),
        pytest.param(said("Try again in 2 minutes and 5 seconds"), {}, True, 120.0, id="in long words"),
        pytest.param(said("No.", code="insufficient_quota"), {"retry_after": "1"}, False, None, id="no money"),
        pytest.param(said("No.", type="exceeded_current_quota_error"), {}, False, None, id="no money at Moonshot"),
        pytest.param(said("Rate limit exceeded: free-models-per-day"), {}, False, None, id="OpenRouter's free models"),
    ],
)
def test_rate_limits_that_pass_are_told_from_quotas_that_are_used_up(
    body: object, headers: dict[str, str], retryable: bool, after: float | None
) -> None:
    error = answer(429, body, **headers)
    assert (error.category, error.retryable, error.retry_after_s) == (Category.RATE_LIMIT, retryable, after)


@pytest.mark.parametrize(
    ("body", "headers", "resets"),
    [
        (said("No."), {"retry_after": "18000"}, "2026-12-01 03:00 UTC, in about 5 hours"),
        (said("No."), {"retry_after": "180"}, "2026-11-30 22:03 UTC, in about 3 minutes"),
        (said("No."), {"retry_after": "99999999999"}, "2027-12-01 22:00 UTC, in about 366 days"),
        (
            said("per day"),
            {"x_ratelimit_reset_requests": "7h30m0s", "x_ratelimit_reset_tokens": "6ms"},
            "2026-12-01 05:30",
        ),
        (said("per day"), {"anthropic_ratelimit_requests_reset": "2026-12-01T08:00:00Z"}, "2026-12-01 08:00 UTC"),
        (
            said("free-models-per-day", metadata={"headers": {"X-RateLimit-Reset": "1796083200000"}}),
            {},
            "2026-12-01 00:00 UTC, in about 2 hours",
        ),
        (said("Usage limit reached. Your limit will reset at 2026-12-01 07:00:00"), {}, "2026-12-01 07:00:00"),
        (said("per day"), {}, None),
        (said("per day"), {"x_ratelimit_reset": "9" * 400}, None),
    ],
)
def test_b088_the_time_at_which_a_quota_comes_back_is_told(
    body: object, headers: dict[str, str], resets: str | None
) -> None:
    error = answer(429, body, **headers)
    assert not error.retryable
    assert error.resets == resets or (resets and error.resets and error.resets.startswith(resets))


@pytest.mark.parametrize("message", ["server_error", "Oh.", "", None])
def test_a_server_that_is_down_for_long_is_not_asked_again(message: str | None) -> None:
    error = answer(503, {"error": message}, retry_after="600")
    assert (error.category, error.retryable, error.resets) == (
        Category.UNAVAILABLE,
        False,
        "2026-11-30 22:10 UTC, in about 10 minutes",
    )


@pytest.mark.parametrize(
    ("error", "category"),
    [
        ({"message": "Oh.", "type": "server_error"}, Category.UNAVAILABLE),
        ({"message": "Overloaded", "type": "overloaded_error"}, Category.UNAVAILABLE),
        ({"message": "Provider returned error", "code": 502}, Category.UNAVAILABLE),
        ({"message": "Slow down", "code": "429"}, Category.RATE_LIMIT),
        ({"message": "Rate limit reached", "type": "rate_limit_exceeded"}, Category.RATE_LIMIT),
        ({"message": "No.", "code": "insufficient_quota"}, Category.RATE_LIMIT),
        ({"message": "prompt is too long", "type": "invalid_request_error"}, Category.CONTEXT_TOO_LONG),
        ({"message": "No.", "type": "invalid_request_error"}, Category.REJECTED),
        ({"message": "No.", "code": "content_filter"}, Category.REJECTED),
        ({"message": "Invalid API key", "type": "x"}, Category.AUTHENTICATION),
        ("something broke", Category.UNAVAILABLE),
        (17, Category.UNAVAILABLE),
        ([], Category.UNAVAILABLE),
    ],
)
def test_errors_inside_a_reply_have_their_category(error: object, category: Category) -> None:
    assert of_error(error).category is category


class VendorError(Exception):
    """As the libraries of vendors, and litellm, raise them."""

    def __init__(self, message: str, status_code: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status_code = status_code
        self.litellm_response_headers = headers


@pytest.mark.parametrize(
    ("error", "category", "retryable"),
    [
        (ConnectionRefusedError(111, "refused"), Category.UNAVAILABLE, True),
        (TimeoutError(), Category.UNAVAILABLE, True),
        (ssl.SSLError("wrong version number"), Category.UNAVAILABLE, True),
        (ssl.SSLCertVerificationError("self-signed"), Category.UNAVAILABLE, False),
        (ValueError("bad header"), Category.REJECTED, False),
        (VendorError("litellm.BadRequestError: prompt is too long", 400), Category.CONTEXT_TOO_LONG, False),
        (VendorError("litellm.RateLimitError: slow down", 429, {"retry-after": "4"}), Category.RATE_LIMIT, True),
        (VendorError("litellm.InternalServerError", 500), Category.UNAVAILABLE, True),
        (ProviderError(Category.REJECTED, "mine"), Category.REJECTED, False),
    ],
)
def test_exceptions_have_their_category(error: Exception, category: Category, retryable: bool) -> None:
    found = of_exception(error)
    assert (found.category, found.retryable) == (category, retryable)


def test_a_name_that_cannot_be_looked_up_is_said_in_plain_words() -> None:
    found = of_exception(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    assert (found.category, found.retryable) == (Category.UNAVAILABLE, True)
    assert "is this machine online?" in str(found)
    assert found.mend is not None
    assert "this machine is online" in found.mend


KEY = 'sk-näive/"quoted"+key\\end'


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize(
    "text",
    [
        KEY,
        json.dumps({"key": KEY}),
        repr(KEY),
        "https://h/?key=sk-n%C3%A4ive%2F%22quoted%22%2Bkey%5Cend",
        f"x{KEY}y" * 50,
    ],
)
def test_no_error_holds_the_key(text: str) -> None:
    for error in (
        of_response(401, {}, text, secrets=[KEY]),
        of_response(401, {}, json.dumps(said(text)), secrets=[KEY]),
        of_error({"message": text}, secrets=[KEY]),
        of_exception(OSError(text), secrets=[KEY]),
        of_exception(VendorError(text, 401), secrets=[KEY]),
    ):
        assert "quoted" not in str(error)
        assert len(str(error)) <= MAX_DETAIL_CHARS


def test_a_detail_is_one_short_line_that_a_log_can_hold() -> None:
    text = scrubbed("a\x1b[31m\n\u202eb\ud800" + "c" * 10_000, [])
    assert text.startswith("a [31m b c")
    assert text.isprintable()
    assert len(text) == MAX_DETAIL_CHARS


def test_a_short_secret_does_not_take_the_text_apart() -> None:
    assert scrubbed("the text", ["e", "", "x"]) == "the text"


@pytest.mark.parametrize(
    "unit", ["a", " ", "prompt ", "exceed context ", "1s", "resets at ", '"quotaId": "A', "[{", "input tokens "]
)
def test_hostile_bodies_cost_little(unit: str) -> None:
    body = unit * (2 * MAX_BODY_CHARS // len(unit))
    began = time.process_time()
    for status in (400, 429, 500):
        of_response(status, {"x-ratelimit-" + "a-" * 50 + "reset": body}, json.dumps(said(body)))
        of_response(status, {}, body)
    assert time.process_time() - began < 1.5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "status", "detail", "metadata", "raw"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.integers(100, 599), JSON, st.dictionaries(st.sampled_from(["Retry-After", "x-ratelimit-reset"]), st.text()))
def test_no_answer_makes_anything_but_a_provider_error(status: int, body: Any, headers: dict[str, str]) -> None:
    for error in (of_response(status, headers, json.dumps(body)), of_error(body)):
        assert isinstance(error, ProviderError)
        assert len(str(error)) <= MAX_DETAIL_CHARS
