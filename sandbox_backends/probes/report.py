"""What the doctor found, as plain data: how it looks is the command line's business (SBX-09)."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_backends.contract import Enforces
from sandbox_backends.probes.catalog import MEASURED_BY, ProbeInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    info: ProbeInfo
    held: bool | None
    """``None``: it does not apply here."""
    promised: bool
    detail: str

    @property
    def broken(self) -> bool:
        """Promised and open: a fault of this host or of the backend, and never to be shrugged off."""
        return self.promised and self.held is False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One backend, on this host, under this user."""

    backend: str
    root: bool
    """Whether the controller was root."""
    usable: bool
    reason: str = ""
    remedy: str = ""
    """The command or setting that mends what ``reason`` says."""
    version: str = ""
    enforces: Enforces = Enforces.NOTHING
    """What the backend claims."""
    notes: tuple[str, ...] = ()
    """Sentences about what was measured how, and the sandbox's own warnings."""
    results: tuple[ProbeResult, ...] = ()
    """By number; empty when the backend is not usable."""

    @property
    def held(self) -> tuple[ProbeResult, ...]:
        return tuple(result for result in self.results if result.held)

    @property
    def open(self) -> tuple[ProbeResult, ...]:
        return tuple(result for result in self.results if result.held is False)

    @property
    def broken(self) -> tuple[ProbeResult, ...]:
        return tuple(result for result in self.results if result.broken)

    @property
    def disproved(self) -> Enforces:
        """Flags that the backend claims and a probe got past."""
        passed = {result.info.id for result in self.open}
        flags = Enforces.NOTHING
        for flag, ids in MEASURED_BY.items():
            if flag in self.enforces and passed.intersection(ids):
                flags |= flag
        return flags

    def to_json(self) -> dict[str, object]:
        """Ready for ``json.dumps``."""
        return {
            "backend": self.backend,
            "root": self.root,
            "usable": self.usable,
            "reason": self.reason,
            "remedy": self.remedy,
            "version": self.version,
            "enforces": _names(self.enforces),
            "disproved": _names(self.disproved),
            "notes": list(self.notes),
            "counts": {
                "held": len(self.held),
                "open": len(self.open),
                "broken": len(self.broken),
                "not_applicable": sum(result.held is None for result in self.results),
            },
            "probes": [
                {
                    "number": result.info.number,
                    "id": result.info.id,
                    "group": result.info.group,
                    "title": result.info.title,
                    "meaning": result.info.meaning,
                    "held": result.held,
                    "promised": result.promised,
                    "detail": result.detail,
                    "held_by": list(result.info.holders(root=self.root)),
                }
                for result in self.results
            ],
        }


def _names(flags: Enforces) -> list[str]:
    return [flag.name.lower() for flag in flags if flag.name]
