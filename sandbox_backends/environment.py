"""The base environment of a command, for each kind of place. Nothing is inherited: every name here is written down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LOOPBACK = ("127.", "localhost", "::1", "[::1]")
HARD_HOME = "/home/agent"
"""HOME in every place that has a file system of its own."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

PASSED_ON = frozenset(
    # Who and where, as a login shell has it.
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TERM TMPDIR XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_DATA_HOME "
    "XDG_CACHE_HOME XDG_STATE_HOME SSH_AUTH_SOCK DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY APPDATA LOCALAPPDATA "
    # Where toolchains lie.
    "JAVA_HOME GRADLE_USER_HOME GOPATH GOROOT GOCACHE GOMODCACHE CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN NVM_DIR "
    "PNPM_HOME VOLTA_HOME PYENV_ROOT VIRTUAL_ENV CONDA_PREFIX RBENV_ROOT GEM_HOME ANDROID_HOME ANDROID_SDK_ROOT "
    "FLUTTER_ROOT PUB_CACHE DOTNET_ROOT LD_LIBRARY_PATH PKG_CONFIG_PATH NIX_PATH NIX_PROFILES "
    # How to reach the network from here.
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS PIP_CERT GIT_SSL_CAINFO "
    "NO_PROXY no_proxy".split()
)
"""Names that the local backends take over from the controller. Proxy URLs may hold passwords and are not among them."""

OF_THE_PERSON = frozenset(
    "HOME XDG_RUNTIME_DIR XDG_CONFIG_HOME XDG_DATA_HOME XDG_CACHE_HOME XDG_STATE_HOME SSH_AUTH_SOCK "
    "DBUS_SESSION_BUS_ADDRESS APPDATA LOCALAPPDATA DISPLAY WAYLAND_DISPLAY".split()
)
"""Names that lead to a person's logins: ``local_isolated`` does not take them over (SBX-03)."""


def passed_on(host: Mapping[str, str]) -> dict[str, str]:
    """What ``local`` commands get of the controller's environment."""
    chosen = {name: value for name, value in host.items() if name in PASSED_ON or name.startswith("LC_")}
    return {"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", **chosen}


def with_own_home(base: Mapping[str, str], home: str) -> dict[str, str]:
    """``base`` with HOME and all that programs derive a login's place from led into ``home``."""
    kept = {name: value for name, value in base.items() if name not in OF_THE_PERSON}
    return {
        **kept,
        "HOME": home,
        "XDG_CONFIG_HOME": f"{home}/.config",
        "XDG_DATA_HOME": f"{home}/.local/share",
        "XDG_CACHE_HOME": f"{home}/.cache",
        "XDG_STATE_HOME": f"{home}/.local/state",
        "APPDATA": f"{home}/.config",
        "LOCALAPPDATA": f"{home}/.local/share",
        "GNUPGHOME": f"{home}/.gnupg",
        "DOCKER_CONFIG": f"{home}/.docker",
        "KUBECONFIG": f"{home}/.kube/config",
        "AWS_CONFIG_FILE": f"{home}/.aws/config",
        "AWS_SHARED_CREDENTIALS_FILE": f"{home}/.aws/credentials",
        "AZURE_CONFIG_DIR": f"{home}/.azure",
        "CLOUDSDK_CONFIG": f"{home}/.config/gcloud",
        "GH_CONFIG_DIR": f"{home}/.config/gh",
        "NPM_CONFIG_USERCONFIG": f"{home}/.npmrc",
    }


def of_hard_place(home: str, proxy: str | None, allow: Sequence[str] = ()) -> dict[str, str]:
    """What a command in bubblewrap or docker gets. ``proxy`` is the URL of the egress bridge inside, if any.

    Loopback is the sandbox's own, unless ``allow`` lists it: then the host's is meant, and asked for by the proxy.
    """
    env = {
        "PATH": f"{home}/.local/bin:{SYSTEM_PATH}",
        "HOME": home,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",
    }
    if proxy is not None:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            env[name] = env[name.lower()] = proxy
        if not any(entry.startswith(LOOPBACK) for entry in allow):
            env["NO_PROXY"] = env["no_proxy"] = "localhost,127.0.0.1,::1"
    return env
