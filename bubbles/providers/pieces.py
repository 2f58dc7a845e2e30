"""Text that comes in pieces, which need not end where characters do."""

from __future__ import annotations

from bubbles.providers.vendor import mended


class TextPieces:
    """JSON names some characters in two halves, and a piece may end after the first."""

    def __init__(self) -> None:
        self._whole: list[str] = []
        self._cut = ""

    def add(self, piece: str) -> str:
        """What can be shown now."""
        if not piece:
            return ""
        piece = self._cut + piece
        self._cut = piece[-1] if "\ud800" <= piece[-1] <= "\udbff" else ""
        piece = mended(piece[: len(piece) - len(self._cut)])
        if piece:
            self._whole.append(piece)
        return piece

    @property
    def begun(self) -> bool:
        """Whether there is anything to show yet."""
        return bool(self._whole)

    def all(self) -> str:
        """Everything so far; a half that stayed alone is shown as a mark."""
        return "".join(self._whole) + ("\ufffd" if self._cut else "")
