"""What vendors write in their errors, as patterns. Every repetition is bounded: the texts are hostile."""

from __future__ import annotations

import re


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


TOO_LONG = _any(
    r"context[_ -]?(?:length|window|size|limit)[_ -]?(?:has been |was |is )?exceed",  # OpenAI's code; Zhipu, LM Studio
    r"exceed_context_size|context overflow|context the overflows",  # llama.cpp, LM Studio
    r"(?:exceed|longer than|greater than|larger than|too (?:long|large) for).{0,60}?"
    r"context[_ ](?:length|window|size|limit)",  # OpenAI, llama.cpp, Together, vLLM
    r"context (?:length|window|size) (?:is|of) (?:only )?\d",  # vLLM
    r"(?:configured|maximum|max) context (?:length|size|window)",  # OpenAI, DeepSeek, OpenRouter, vLLM, Ollama
    r"maximum (?:prompt|model|allowed input) length",  # xAI, vLLM, OpenRouter
    r"maximum number of (?:input |prompt )?tokens",  # Gemini
    r"number of tokens to keep from the initial prompt",  # LM Studio
    r"(?:prompt|input|request)s?[ _](?:is |are )?too[ _](?:long|large)",  # Anthropic, Bedrock, Ollama, Groq
    r"reduce the length of (?:the |your )?(?:message|prompt|input)",  # Groq, Cerebras, DeepSeek
    r"content'?: string too long",  # OpenAI: one message
    r"exceed\w{0,3} (?:the )?(?:model(?:'s)? )?token limit",  # Moonshot
    r"exceed\w{0,3} max(?:imum)? message tokens",  # Volcengine
    r"(?:input|prompt|total)[ _](?:tokens?|length)[^.]{0,60}? exceed|prompt exceed",  # Gemini, Copilot, Zhipu
    r"context window exceeds",  # MiniMax
    r"range of input length should be",  # DashScope
    r"must be less than max_seq_len",  # SiliconFlow
    r"tokens`? \+ `?max_new_tokens",  # TGI
    r"too many (?:input |prompt |total )?(?:text )?tokens",
    "prompt 超长|输入长度超|上下文长度超|超出最大长度",
)
TOO_LONG_FOR_QUOTA = _any(r"request[ _]too[ _]large", r"context_length_exceeded", r"tokens must be reduced")
"""With 429: one request is over what is allowed in a minute, so that waiting does not help."""

KEY_IS_WRONG = _any(
    r"(?:invalid|incorrect|missing|expired)[ _](?:x-)?api[ _-]?key",
    r"api[ _]key[ _](?:not[ _]valid|not[ _]found|invalid|expired)",  # Gemini answers 400
    r"authentication_error|permission_error|unauthenticated|unauthorized",
)
LIMITED = _any(
    *(r"rate[_ ]?limit", r"too[_ ]many[_ ]requests", r"resource_exhausted", r"throttl", r"quota", r"usage[_ ]limit"),
)
OUT_OF_MONEY = _any(
    r"insufficient[_ ](?:quota|balance|credit|funds)",  # OpenAI, DeepSeek, OpenRouter
    r"credit balance is too low",  # Anthropic answers 400
    r"billing_hard_limit|exceeded_current_quota_error",  # OpenAI, Moonshot
    r"usage[_ ]not[_ ]included",  # a ChatGPT subscription without Codex
)
USED_UP = _any(r"per[ -_]day", r"\b[rt]pd\b", r"\bdaily\b", r"check your plan and billing", r"usage[_ ]limit")
"""A quota for longer than a minute, if nothing is said of when to try again."""

FLAGGED = _any(r"moderation", r"flagged", r"content[_ ](?:policy|filter)")
INVALID = _any(
    r"invalid[_ ](?:request|argument|prompt)|bad[_ ]?request|not[_ ]found|unsupported",
    r"(?:content|cyber)[_ ](?:policy|filter)|moderation|safety|flagged|data_inspection_failed",
)
"""Codes inside a reply of status 200 that asking again does not change."""
