"""What ``bubbles channels status`` shows: the settings of each channel, and what a running gateway says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bubbles.cli.report import complain, print_json, styled, visible

if TYPE_CHECKING:
    from bubbles.channels.contract import Manifest
    from bubbles.cli.gateway_live import Live
    from bubbles.config.channels import ChannelSettings
    from bubbles.config.schema import Settings

MAX_IDS = 10
"""Of those who are let in, that are shown; ``--json`` has all."""
MAX_TURNED_AWAY = 5
EVERYBODY = "*"
STRANGER = "stranger"


def shown(settings: Settings, *, as_json: bool) -> int:
    """Prints how the channels stand. Raises what is wrong with the settings."""
    from bubbles.channels.registry import manifests, settings_of
    from bubbles.cli.gateway_live import live

    found = live(settings)
    if as_json:
        channels = [_as_json(each, settings_of(settings.channels, each.name), found) for each in manifests()]
        print_json({"gateway": gateway_as_json(found), "channels": channels, "warnings": list(settings.warnings)})
        return 0
    for warning in settings.warnings:
        complain(warning)
    for manifest in manifests():
        _show(manifest, settings_of(settings.channels, manifest.name), found)
    print(f"{styled('gateway', 'bold')}: {visible(gateway_line(found))}")
    return 0


def has_token(chosen: ChannelSettings) -> bool | None:
    """None for a channel that takes none."""
    return getattr(chosen, "token", None) is not None if "token" in type(chosen).model_fields else None


def faults(manifest: Manifest, chosen: ChannelSettings) -> Iterator[str]:
    """What keeps a channel from starting. Sentences."""
    from bubbles.channels.registry import missing

    if missing(manifest):
        yield f"channels.{manifest.name} needs a library that is not there: run {install(manifest)}."
    if has_token(chosen) is False:
        yield f"channels.{manifest.name}.token is not set: run 'bubbles channels login {manifest.name}'."


def doubts(name: str, chosen: ChannelSettings) -> Iterator[str]:
    """What its owner should know of who is let in. Sentences."""
    if not chosen.allow_from:
        yield f"channels.{name}.allowFrom is empty, so nobody is let in: run 'bubbles channels login {name}'."
    if EVERYBODY in chosen.allow_from:
        yield f"channels.{name}.allowFrom has '*': everybody who finds the assistant may use it. Name people instead."


def install(manifest: Manifest) -> str:
    return f"pip install 'bubbles[{manifest.extra}]'"


def let_in(ids: Sequence[str]) -> str:
    """Such as ``2 (4711, 4712)``."""
    if EVERYBODY in ids:
        return "everybody"
    if not ids:
        return "nobody"
    return f"{len(ids)} ({', '.join((*ids[:MAX_IDS], *(['…'] if len(ids) > MAX_IDS else [])))})"


def gateway_line(found: Live) -> str:
    """Such as ``runs (process 4711, http://127.0.0.1:18790), ready``."""
    from bubbles.gateway.lock import UNKNOWN

    if found.holder is None:
        return "not running: 'bubbles gateway' starts it"
    pid = "" if found.holder.pid == UNKNOWN else f"process {found.holder.pid}"
    where = ", ".join(part for part in (pid, found.url) if part)
    why = found.answer.get("why")
    ready = (
        "" if not found.answer else ", ready" if found.answer["ready"] else f", not ready{f': {why}' if why else ''}"
    )
    return f"runs{f' ({where})' if where else ''}{ready}{f': {found.problem}' if found.problem else ''}"


def gateway_as_json(found: Live) -> dict[str, Any]:
    return {
        "running": found.holder is not None,
        "pid": found.holder and found.holder.pid,
        "url": found.url,
        "ready": found.answer.get("ready"),
        "why": found.answer.get("why"),
        "problem": found.problem,
    }


def _as_json(manifest: Manifest, chosen: ChannelSettings, found: Live) -> dict[str, Any]:
    from bubbles.channels.registry import missing

    return {
        "name": manifest.name,
        "enabled": chosen.enabled,
        "install": install(manifest) if missing(manifest) else None,
        "has_token": has_token(chosen),
        "allow_from": list(chosen.allow_from),
        "everybody": EVERYBODY in chosen.allow_from,
        "group_policy": chosen.group_policy,
        "problems": list(faults(manifest, chosen)) if chosen.enabled else [],
        "warnings": list(doubts(manifest.name, chosen)) if chosen.enabled else [],
        "live": found.of(manifest.name),
    }


def _show(manifest: Manifest, chosen: ChannelSettings, found: Live) -> None:
    name = manifest.name
    its = found.of(name)
    print(f"{styled(name, 'bold')}: {visible(_state(name, chosen, its, found))}")
    if its is not None and its.get("why"):
        _warn(str(its["why"]))
    if not chosen.enabled:
        return
    token = {None: "", True: "token: set; ", False: "token: not set; "}[has_token(chosen)]
    print(visible(f"  {token}let in: {let_in(chosen.allow_from)}; in groups: {chosen.group_policy}"))
    for sentence in (*faults(manifest, chosen), *doubts(name, chosen)):
        _warn(sentence)
    for one in (its or {}).get("turned_away", ())[:MAX_TURNED_AWAY]:
        print(visible(f"  turned away: {_turned_away(name, one, chosen)}"))


def _state(name: str, chosen: ChannelSettings, its: Mapping[str, Any] | None, found: Live) -> str:
    if its is None:
        if not chosen.enabled:
            return f"off; 'bubbles channels login {name}' sets it up"
        return "on" if found.holder is None or found.problem else "on, but not when the gateway was started"
    who = f" as {its['who']}" if its.get("who") else ""
    restarts = its.get("restarts") or 0
    again = f", started anew {'once' if restarts == 1 else f'{restarts} times'}" if restarts else ""
    off = "" if chosen.enabled else "; off, once the gateway is started again"
    return f"{its.get('phase')}{who}, since {_moment(its.get('since'))}{again}{off}"


def _turned_away(channel: str, one: Mapping[str, Any], chosen: ChannelSettings) -> str:
    name = f" ({one['name']})" if one.get("name") else ""
    said = f"{one.get('id')}{name}, {_moment(one.get('at'))}"
    if one.get("why") != STRANGER:
        return f"{said}: {str(one.get('why')).replace('_', ' ')}"
    if one.get("id") in chosen.allow_from:
        return f"{said}. They are let in once the gateway is started again."
    put = f'put "{one.get("id")}" into channels.{channel}.allowFrom'
    return f"{said}. To let them in, {put} and start the gateway again."


def _moment(text: object) -> str:
    try:
        return f"{datetime.fromisoformat(str(text)).astimezone():%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError):
        return "?"


def _warn(sentence: str) -> None:
    print(f"  {styled('warning:', 'yellow')} {visible(sentence)}")
