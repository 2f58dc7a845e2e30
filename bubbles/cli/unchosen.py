"""What somebody who did not choose the weakest sandbox should know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bubbles.config.schema import Settings

BY_FLAG = "take -b bubblewrap or docker"
BY_ONBOARD = "run 'bubbles onboard --sandbox bubblewrap' (or docker)"


def no_boundary(settings: Settings, *chosen: str | None, mend: str = BY_FLAG) -> str | None:
    """That ``local`` holds nothing, if it is in force and nobody chose it.

    ``chosen`` is what counts before the configuration: a flag, a session's own setting.
    """
    sandbox = settings.tools.sandbox
    if any(chosen) or "backend" in sandbox.model_fields_set or sandbox.backend != "local":
        return None
    return f"local is no boundary: {mend}, or set tools.sandbox.backend (to local, if meant)."
