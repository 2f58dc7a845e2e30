"""The unit that ``bubbles gateway --systemd-unit`` prints, for a service of systemd that belongs to one user."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bubbles.config.load import Places

SECRETS = "Variables that config.json names as ${VAR}: write them, as VAR=value, into a file that only you can read"
UNIT = """\
# Bubbles' gateway, as a service of your own. Three commands put it to work:
#
#   mkdir -p ~/.config/systemd/user && bubbles gateway --systemd-unit > ~/.config/systemd/user/bubbles.service
#   systemctl --user daemon-reload && systemctl --user enable --now bubbles.service
#   loginctl enable-linger    # so that it also runs while you are not logged in
#
# How it is: systemctl --user status bubbles; what happens: journalctl --user -u bubbles -f

[Unit]
Description=Bubbles, a personal assistant: chat channels, jobs, heartbeats
# There is no waiting for the network: a channel that cannot connect tries again by itself.

[Service]
Type=notify
ExecStart={command} gateway
{environment}# {secrets}, and name it:
EnvironmentFile=-%h/.config/bubbles.env
# Commands of the sandbox 'local' find their programs by this; unset is what systemd has.
#Environment="PATH=/usr/local/bin:/usr/bin:/bin"

Restart=on-failure
RestartSec=10
# Wrong settings stay wrong: 2 is what it ends with then.
RestartPreventExitStatus=2
# It says so itself, twice in this time.
WatchdogSec=120

# Only the gateway itself is told to stop: it ends its turns and closes its sandboxes. What is left then is killed.
KillMode=mixed
TimeoutStopSec=15
# A command that takes too much memory is killed, and not the gateway with it.
OOMPolicy=continue

# Keys are in no core dump.
LimitCORE=0
# More must not be taken from it here: every command runs in a sandbox that the gateway makes. NoNewPrivileges and all
# that implies it for a user's service (SystemCallFilter, RestrictNamespaces, PrivateDevices, ProtectKernelTunables,
# LockPersonality, RestrictSUIDSGID, ...) forbid what bubblewrap needs where it is set-user-ID; PrivateUsers, and
# ProtectSystem, ProtectHome and PrivateTmp, which imply it here, forbid its user namespaces and hide the projects and
# the docker socket.

[Install]
WantedBy=default.target
"""


def unit(places: Places, program: tuple[str, ...] | None = None) -> str:
    """``program`` is what starts Bubbles, with an absolute path; by default as it was started now."""
    words = program or own_program()
    moved = places.environment.get("BUBBLES_HOME")
    environment = f"Environment={quoted(f'BUBBLES_HOME={places.data_dir}')}\n" if moved else ""
    command = " ".join(quoted(word).replace("$", "$$") for word in words)
    return UNIT.format(command=command, environment=environment, secrets=SECRETS)


def own_program() -> tuple[str, ...]:
    """The command beside the Python that runs; else that Python with the module."""
    beside = Path(sys.executable).with_name("bubbles")
    return (str(beside),) if beside.is_file() else (sys.executable, "-m", "bubbles")


def quoted(text: str) -> str:
    """As a word of systemd.syntax(7). A variable is not replaced in it, but in ExecStart: there ``$`` is doubled."""
    said = "".join(_escaped(character) for character in text)
    return said if said == text and text and all(c.isalnum() or c in "/._-+=:@," for c in text) else f'"{said}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character == "%":
        return "%%"
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
