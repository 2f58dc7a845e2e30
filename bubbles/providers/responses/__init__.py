"""Models that speak OpenAI's Responses API."""
