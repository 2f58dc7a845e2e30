"""Logins to model providers that have no key: OpenAI Codex and GitHub Copilot (PROV-03)."""
