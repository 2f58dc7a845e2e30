"""``bubbles status``: what is in force, at a glance. Nothing is started, nothing is made on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bubbles.cli import status_gateway
from bubbles.cli.report import print_json, print_table, session_key, styled, visible
from bubbles.cli.unchosen import BY_ONBOARD, no_boundary

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bubbles.cli.status_gateway import JobFacts
    from bubbles.config.schema import Settings
    from bubbles.controller.rulefiles import LoadedRules

MAX_SHOWN = 60
"""Characters of a session's own setting."""
LABEL = 11
"""Width of what stands before each line."""


def status(
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", metavar="NAME", parser=session_key, help="Also this session's own rules."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
) -> int:
    """Show the configuration, the sandbox, how approvals are asked for, and which rules are in force.

    Exit status 0, warnings or not.
    """
    from bubbles.config.load import load_settings
    from bubbles.controller.rulefiles import load_rulebook, rule_layers

    settings = load_settings()
    loaded = load_rulebook(rule_layers(settings, session))
    if as_json:
        print_json(_as_json(settings, loaded))
    else:
        _show(settings, loaded)
    return 0


def _as_json(settings: Settings, loaded: LoadedRules) -> dict[str, Any]:
    from bubbles import __version__

    tools = settings.tools
    config = settings.data_dir / "config.json"
    jobs = status_gateway.job_facts(settings)
    differing, faults = differences(settings, jobs)
    return {
        "version": __version__,
        "data_dir": str(settings.data_dir),
        "config": {
            "file": str(config),
            "exists": config.exists(),
            "warnings": [*settings.warnings, *settings.provider_warnings, *_faults(settings), *faults],
        },
        "model": _model(settings),
        "providers": configured(settings),
        "sessions": differing,
        "sandbox": {
            "backend": tools.sandbox.backend,
            "network": tools.sandbox.network,
            "warning": no_boundary(settings, mend=BY_ONBOARD),
        },
        "approvals": {"mode": tools.approvals.mode, "timeout_s": tools.approvals.timeout_s},
        "mcp_servers": mcp_servers(settings),
        **status_gateway.as_json(settings, jobs),
        "rules": {
            "loaded_at": loaded.loaded_at.isoformat(timespec="seconds"),
            "layers": [
                {
                    "layer": str(layer.layer),
                    "path": layer.path,
                    "files": len(layer.files),
                    "rules": layer.count,
                    "warnings": [str(warning) for warning in layer.warnings],
                }
                for layer in reversed(loaded.layers)
            ],
        },
    }


def _show(settings: Settings, loaded: LoadedRules) -> None:
    from bubbles import __version__

    tools = settings.tools
    config = settings.data_dir / "config.json"
    _line("version", __version__)
    _line("data", str(settings.data_dir), "" if settings.data_dir.exists() else "not there yet")
    _line("config", str(config), "" if config.exists() else "not there: defaults, and what BUBBLES_… variables say")
    jobs = status_gateway.job_facts(settings)
    differing, faults = differences(settings, jobs)
    _warn([*settings.warnings, *settings.provider_warnings, *_faults(settings), *faults])
    model = _model(settings)
    if model["model"] is None:
        _line("model", "none", model["problem"])
    else:
        _line("model", f"{model['model']} by {model['provider']}", model["reason"])
        _warn([model["problem"]] if model["problem"] else ())
    _line("providers", ", ".join(configured(settings)) or "none configured")
    network = tools.sandbox.network or "the backend's own default"
    weak = no_boundary(settings, mend=BY_ONBOARD)
    holds = "" if weak else "'bubbles sandbox doctor' shows what it holds"
    _line("sandbox", f"{tools.sandbox.backend}, network: {network}", holds)
    _warn([weak] if weak else ())
    _line("approvals", f"{tools.approvals.mode}, {tools.approvals.timeout_s:g} s to answer")
    _show_servers(settings)
    for label, text, warnings in status_gateway.lines(settings, jobs):
        _line(label, text)
        _warn(warnings)
    _line("rules", f"loaded {loaded.loaded_at.astimezone():%Y-%m-%d %H:%M:%S}", "the first layer is the strongest")
    rows = [
        (f"  {layer.layer}", str(layer.count), str(len(layer.files)), str(len(layer.warnings)), layer.path)
        for layer in reversed(loaded.layers)
    ]
    print_table(("  LAYER", "RULES", "FILES", "WARNINGS", "PATH"), rows)
    _warn(str(warning) for warning in loaded.warnings)
    for key, own in differing.items():
        _line("session", f"{key}: {', '.join(f'{name} {value}' for name, value in own.items())}")


def _model(settings: Settings) -> dict[str, str | None]:
    """Which model answers, by which provider, and why that one (PROV-02)."""
    from bubbles.errors import ConfigError
    from bubbles.providers.logins.store import missing_login
    from bubbles.providers.select import choose

    try:
        choice = choose(settings)
    except ConfigError as error:
        return {"model": None, "provider": None, "reason": None, "problem": str(error)}
    problem = missing_login(settings.data_dir, choice.provider)
    return {"model": choice.model, "provider": choice.provider, "reason": choice.reason, "problem": problem}


def configured(settings: Settings) -> list[str]:
    """Names of the providers that have a key or an address."""
    from bubbles.providers import select

    return [entry.name for entry in select.configured(settings)]


def mcp_servers(settings: Settings) -> list[dict[str, Any]]:
    """What was last seen of each; none is started."""
    if not settings.tools.mcp_servers:
        return []
    from bubbles.mcp.client.shelf import last_seen
    from bubbles.mcp.shown import as_json

    return [as_json(info) for info in last_seen(settings.data_dir, settings.tools.mcp_servers)]


def _show_servers(settings: Settings) -> None:
    if not settings.tools.mcp_servers:
        return
    from bubbles.mcp.client.shelf import last_seen
    from bubbles.mcp.shown import problem_of, remembered

    for info in last_seen(settings.data_dir, settings.tools.mcp_servers):
        _line("mcp server", f"{info.name} ({info.kind}): {remembered(info)}")
        _warn([problem_of(info)] if info.problem else ())


def differences(settings: Settings, jobs: JobFacts) -> tuple[dict[str, dict[str, str | int]], list[str]]:
    """What sessions have of their own: settings, jobs, a heartbeat; and what is wrong with the settings. One that has
    nothing is not there (CLI-03).
    """
    from bubbles.config.session import load_session_settings
    from bubbles.errors import ConfigError

    found: dict[str, dict[str, str | int]] = {}
    faults: list[str] = []
    for path in sorted((settings.data_dir / "session_state").glob("*/config.json")):
        try:
            own, warnings = load_session_settings(path)
        except ConfigError as error:
            faults.append(str(error))
            continue
        faults += warnings
        if more := own.model_dump(exclude_none=True):
            found[path.parent.name] = {name: _short(value) for name, value in more.items()}
    for key, its in jobs.by_session.items():
        found.setdefault(key, {}).update(its)
    return {key: found[key] for key in sorted(found)}, faults


def _short(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def _line(label: str, text: str, note: str | None = None) -> None:
    more = styled(f"  ({note})", "dim") if note else ""
    print(f"{styled(label.ljust(LABEL), 'bold')}{visible(text)}{more}")


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"  {styled('warning:', 'yellow')} {visible(warning)}")


def _faults(settings: Settings) -> list[str]:
    """What the settings name that there is not."""
    from sandbox_backends.registry import backend_names

    chosen, known = settings.tools.sandbox.backend, backend_names()
    if chosen in known:
        return []
    return [f"tools.sandbox.backend is {chosen!r}, which there is not: take one of {', '.join(known)}."]
