"""Whether bwrap works here: it is run for real, as a user such as sessions have; and if not, why and what mends it."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from sandbox_backends.bubblewrap.command import command
from sandbox_backends.bubblewrap.layout import View
from sandbox_backends.bubblewrap.program import Program, require_python
from sandbox_backends.contract import BackendSettings
from sandbox_backends.errors import BackendUnavailableError
from sandbox_backends.privileges import RunAs, controller_drops, usable_uids
from sandbox_backends.threads import in_thread
from sandbox_backends.trials import run_short, trial_directory

PROFILE = (
    "echo 'abi <abi/4.0>, profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }' | "
    "sudo tee /etc/apparmor.d/bwrap && sudo apparmor_parser -r /etc/apparmor.d/bwrap"
)
UNCONFINED = " ".join(f"--security-opt {what}=unconfined" for what in ("seccomp", "apparmor", "systempaths"))
_CHECK = "import ctypes, json, platform, resource, selectors; print(platform.python_version())"


async def try_out(program: Program, settings: BackendSettings) -> str:
    """Open and close a sandbox without a session; the version of Python inside. Raises BackendUnavailableError."""
    python = await asyncio.to_thread(require_python, settings)
    uid = usable_uids()[-1] if controller_drops() else os.geteuid()
    view = View(tools=settings.tool_dirs)
    inner = (python, "-I", "-S", "-c", _CHECK)
    async with in_thread(trial_directory()) as directory:
        made = command(inner, view, program, RunAs(uid=uid, gid=uid), directory=directory)
        async with in_thread(made) as (argv, fds):
            status, said = await run_short(argv, fds)
    if status != 0:
        reason, remedy = await asyncio.to_thread(explain, said)
        raise BackendUnavailableError(reason, remedy)
    return said.strip()


def explain(said: str) -> tuple[str, str]:
    """(reason, remedy) for what bwrap said when it failed, with a look at the settings it may fail for. Blocks."""
    last = said.strip().splitlines()[-1].removeprefix("bwrap: ").split(". ")[0] if said.strip() else "it said nothing"
    if "No module named" in said:
        return f"Python in the sandbox is not complete ({last}).", "apt-get install python3"
    if "mount proc" in said:
        return (
            "This container hides parts of /proc, so that no sandbox inside it can have a /proc of its own.",
            "Start the container with --security-opt systempaths=unconfined, or take the docker backend.",
        )
    if not re.search(r"namespace|uid map|setgroups|RTM_NEW|pivot|not permitted|Permission denied", said):
        return f"bwrap failed: {last}.", "Look at it with 'bubbles sandbox doctor'."
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "AppArmor keeps bwrap from making user namespaces.",
            PROFILE,
        )
    if _setting("kernel/unprivileged_userns_clone") == "0":
        return "User namespaces are switched off for ordinary users.", "sudo sysctl kernel.unprivileged_userns_clone=1"
    if _setting("user/max_user_namespaces") == "0":
        return "The number of user namespaces is limited to 0.", "sudo sysctl user.max_user_namespaces=10000"
    if any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))):
        return (
            f"This container may not make namespaces ({last}).",
            f"Start it with {UNCONFINED}, or take the docker backend.",
        )
    return f"bwrap may not make a sandbox here: {last}.", "Take the docker backend."


def _setting(name: str) -> str | None:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return None
