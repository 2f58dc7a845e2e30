"""``bubbles sandbox doctor``: what each place holds, measured in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from bubbles.cli.report import complain, print_json, run, spinner, styled, visible

if TYPE_CHECKING:
    from bubbles.app.workshop import Workshop
    from sandbox_backends.probes.report import ProbeResult, Report


def doctor(
    backend: Annotated[
        list[str] | None,
        typer.Option("--backend", "-b", help="Only this one; may be repeated.", show_default="all that there are"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every probe.")] = False,
) -> int:
    """Try some 70 things from inside each sandbox and say what holds. Takes a few seconds for each.

    Exit status 1 when the configured sandbox (or one named with --backend) cannot be used or breaks a promise.
    """
    from bubbles.app.workshop import workshop
    from bubbles.config.load import load_settings
    from sandbox_backends.errors import InvalidSpecError
    from sandbox_backends.registry import backend_names

    settings = load_settings()
    known = backend_names()
    for name in backend or ():
        if name not in known:
            raise InvalidSpecError(f"There is no sandbox backend {name!r}: take one of {', '.join(known)}.")
    configured = settings.tools.sandbox.backend
    with workshop(settings) as shop:
        reports = run(_examine(shop, tuple(backend or known)))
    judged = [report for report in reports if backend or report.backend == configured]
    failed = any(not report.usable or report.broken or report.disproved for report in judged)
    if as_json:
        print_json({"configured": configured, "ok": not failed, "backends": [report.to_json() for report in reports]})
    else:
        show(reports, configured, verbose)
        if not backend and configured not in known:
            complain(f"tools.sandbox.backend is {configured!r}, which there is not: take one of {', '.join(known)}.")
    return 1 if failed or (not backend and configured not in known) else 0


async def _examine(shop: Workshop, names: Sequence[str]) -> list[Report]:
    from sandbox_backends.probes.run import run_probes

    reports = []
    for name in names:
        with spinner(f"trying to break out of {name}"):
            reports.append(await run_probes(name, shop.backends, shop.owner))
    return reports


def show(reports: Sequence[Report], configured: str, verbose: bool) -> None:
    """For people: one line a backend, one a group, details on demand."""
    for report in reports:
        _headline(report, configured)
        if report.usable:
            _groups(report, verbose)
        print()
    if not verbose and any(report.usable for report in reports):
        print(styled("'bubbles sandbox doctor -v' shows every probe and what it means.", "dim"))


def _headline(report: Report, configured: str) -> None:
    mark = " (configured)" if report.backend == configured else ""
    name = styled(f"{report.backend}{mark}", "bold")
    if not report.usable:
        print(f"{name}  {styled('not usable', 'red')}")
        print(f"  {visible(report.reason)} {visible(report.remedy)}".rstrip())
        return
    counted = [result for result in report.results if result.held is not None]
    print(f"{name}  {visible(report.version)}  holds {len(report.held)} of {len(counted)}")
    for result in report.broken:
        print(styled(f"  broken promise: code in the sandbox can {result.info.title}: {visible(result.detail)}", "red"))
    for note in report.notes:
        print(styled(f"  {visible(note)}", "dim"))


def _groups(report: Report, verbose: bool) -> None:
    for group in dict.fromkeys(result.info.group for result in report.results):
        results = [result for result in report.results if result.info.group == group and result.held is not None]
        opened = [result for result in results if result.held is False]
        held = f"{len(results) - len(opened)}/{len(results)}"
        colour = "red" if any(result.broken for result in opened) else "yellow" if opened else "green"
        names = ", ".join(result.info.id for result in opened)
        print(
            f"  {group:<12} {styled(f'{held:>6}', colour)}  {styled(f'open: {names}' if names else '', 'dim')}".rstrip()
        )
        if verbose:
            for result in (result for result in report.results if result.info.group == group):
                _detail(result)


def _detail(result: ProbeResult) -> None:
    word, colour = {True: ("held", "green"), False: ("open", "yellow"), None: ("n/a", "dim")}[result.held]
    if result.broken:
        colour = "red"
    promise = "promised" if result.promised else "not promised"
    print(f"    {result.info.number:>2} {styled(f'{word:<4}', colour)} {result.info.title}")
    print(styled(f"            {promise}; {visible(result.detail)}", "dim"))
    if result.held is False:
        print(styled(f"            {result.info.meaning}", "dim"))
