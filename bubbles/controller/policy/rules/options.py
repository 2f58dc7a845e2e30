"""Options that stand between a program and its sub-command, where restrictive rules look through them.

An option that is not written here may take a value or not: then both are considered.
"""

from __future__ import annotations

from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TAKE: Mapping[str, frozenset[str]] = {
    "git": _words("-C -c --git-dir --work-tree --namespace --config-env --super-prefix --attr-source"),
    "docker": _words("-H --host -c --context --config -l --log-level --tlscacert --tlscert --tlskey"),
    "podman": _words("-c --connection --url --identity --log-level --root --runroot"),
    "npm": _words("--prefix -C -w --workspace --registry --userconfig --globalconfig --cache --loglevel --otp --tag"),
    "pnpm": _words("-C --dir -F --filter --registry"),
    "yarn": _words("--cwd --registry"),
    "cargo": _words("-C -Z --config --color --manifest-path --target-dir"),
    "kubectl": _words("-n --namespace --context --kubeconfig --cluster --user -s --server --as --token"),
    "helm": _words("-n --namespace --kube-context --kubeconfig"),
    "gh": _words("-R --repo --hostname"),
    "go": _words("-C"),
    "systemctl": _words("-H --host -M --machine"),
    "aws": _words("--profile --region --output --endpoint-url"),
    "gcloud": _words("--project --account --configuration --format"),
    "make": _words("-C -f -j -I -o -W --directory --file"),
    "pip": _words("--python --proxy --log --cache-dir"),
    "uv": _words("--directory --project --python --config-file --cache-dir"),
    "poetry": _words("-C --directory -P --project"),
    "hg": _words("-R --repository --cwd --config"),
    "svn": _words("--username --password --config-dir"),
}
_TAKE_NOTHING: Mapping[str, frozenset[str]] = {
    "git": _words(
        "-p -P --paginate --no-pager --bare --no-replace-objects --literal-pathspecs --glob-pathspecs "
        "--noglob-pathspecs --icase-pathspecs --no-optional-locks --no-lazy-fetch --no-advice"
    ),
    "docker": _words("-D --debug --tls --tlsverify"),
    "npm": _words(
        "--silent -s --quiet -q --verbose -d -dd -ddd --yes -y --global -g --workspaces --json --offline --force"
    ),
    "pnpm": _words("-r --recursive -w --workspace-root --silent -s"),
    "yarn": _words("--silent -s --verbose --offline"),
    "cargo": _words("-v -vv -q --verbose --quiet --offline --locked --frozen"),
    "systemctl": _words("--user --system --now -q --quiet --no-pager --force -f"),
    "make": _words("-B -k -n -s -i -e --silent --keep-going --dry-run"),
}
_TOOLCHAINS = _words("cargo rustc rustup clippy-driver")


def is_option(program: str, token: str) -> bool:
    return len(token) > 1 and (token[0] == "-" or (token[0] == "+" and program in _TOOLCHAINS))


def takes_value(program: str, token: str, *, leading: bool) -> bool | None:
    """Whether the next word is the option's; ``None`` is not known. ``leading``: it stands before any sub-command."""
    if token == "--" or token[0] == "+" or "=" in token:
        return False
    if leading:
        if token in _TAKE.get(program, ()):
            return True
        if token in _TAKE_NOTHING.get(program, ()):
            return False
    return None
