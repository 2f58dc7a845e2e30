"""A login that a test brings along."""

from __future__ import annotations

from bubbles.providers.logins.contract import Access, LoginError, NotLoggedInError


class OwnLogin:
    """Gives these one after another, the next one when the one before is refused; then there is no login any more."""

    def __init__(self, *given: Access | LoginError, provider: str = "openai_codex") -> None:
        self._given = list(given)
        self._provider = provider
        self.refused: list[Access] = []

    async def access(self, *, refused: Access | None = None) -> Access:
        if refused is not None:
            self.refused.append(refused)
            if self._given and self._given[0] is refused:
                del self._given[0]
        if not self._given:
            raise NotLoggedInError(self._provider)
        if isinstance(now := self._given[0], LoginError):
            raise now
        return now
