"""Containers, clouds and stores: what deletes data elsewhere, and what opens the machine to a container."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bubbles.controller.policy.blacklist.finding import Call, Hit, Table, destructive, every, high_risk
from bubbles.controller.policy.blacklist.options import PLAIN, shape
from bubbles.controller.policy.shell.reading import UNKNOWN

_DOCKER = shape(
    "Hvelpuwhcfm",
    "privileged volumes force all",
    "host volume mount pid ipc userns cap-add security-opt device env name network net user workdir entrypoint file"
    " context publish label env-file log-level config",
)
_OPENS = ("SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE", "SYS_RAWIO", "DAC_READ_SEARCH", "ALL", "BPF", "NET_ADMIN")
_HOST_PARTS = re.compile(
    r"/(?:$|etc|root|boot|proc|sys|dev$|dev/(?!shm|net/tun)|var/run|run|var/lib|usr|s?bin|lib)(?:/|$)"
)


def _docker(call: Call) -> Iterator[Hit]:
    options = _DOCKER.take(call.args)
    operands = options.operands
    if options.has("H", "host") and (options.of("host") or _before_verb(call.args, "-H")):
        yield high_risk(f"{call.program} talks to a daemon of its own choice")
    if not operands:
        return
    if operands[0] in ("run", "create", "exec") or operands[1:2] in (("run",), ("create",), ("exec",)):
        yield from _container(call)
    yield from _cleanup(call, operands)


def _before_verb(args: tuple[str, ...], option: str) -> bool:
    return any(arg.startswith(option) for arg in args[:2])


def _container(call: Call) -> Iterator[Hit]:
    options = _DOCKER.take(call.args)
    if options.has("privileged"):
        yield high_risk(f"{call.program} --privileged gives a container the whole machine")
    if any(value == "host" for value in options.of("pid", "ipc", "userns")):
        yield high_risk(f"{call.program} lets a container into the machine's own processes")
    if any(value.upper().removeprefix("CAP_") in _OPENS for value in options.of("cap-add")):
        yield high_risk(f"{call.program} --cap-add gives a container rights of the superuser")
    if any("unconfined" in value or "disable" in value for value in options.of("security-opt")):
        yield high_risk(f"{call.program} --security-opt takes a container's protections away")
    if options.of("device"):
        yield high_risk(f"{call.program} --device gives a container a device of the machine")
    mounts = [value.partition(":")[0] for value in options.of("v", "volume")]
    for value in options.of("mount"):
        parts = dict(part.partition("=")[::2] for part in value.split(","))
        mounts.append(parts.get("source", parts.get("src", "")))
    for source in mounts:
        yield from _mounted(call, source)


def _mounted(call: Call, source: str) -> Iterator[Hit]:
    if not source.startswith(("/", "~", ".", UNKNOWN)) or UNKNOWN in source:
        return
    if call.ground.within_roots(source, call.segment.directories):
        return
    worth = call.ground.worth(source, call.segment.directories)
    if source.endswith(".sock"):
        yield high_risk(f"{call.program} gives a container {source}, and by it the machine")
    elif (worth is not None and worth.vital) or _HOST_PARTS.match(source):
        yield high_risk(f"{call.program} shows a container {source} of the machine")


def _cleanup(call: Call, operands: tuple[str, ...]) -> Iterator[Hit]:
    options = _DOCKER.take(call.args)
    deed = operands[:2]
    if deed == ("system", "prune"):
        harm = destructive if options.has("volumes", "a", "all") else high_risk
        yield harm(f"{call.program} system prune deletes containers, images or volumes")
    elif deed in (("volume", "rm"), ("volume", "prune"), ("volume", "remove")):
        yield destructive(f"{call.program} volume {deed[1]} deletes stored data")
    elif "down" in operands and ("compose" in operands or call.program == "docker-compose"):
        if any(arg in ("-v", "--volumes") for arg in call.args):
            yield high_risk(f"{call.program} down -v deletes stored data")
    elif (operands[0] in ("rm", "rmi", "kill") and any(UNKNOWN in one for one in call.args)) or operands[1:2] == (
        "prune",
    ):
        yield high_risk(f"{call.program} removes more than one names")


def _aws(call: Call) -> Iterator[Hit]:
    options = shape("", "recursive force delete", "region profile output endpoint-url query").take(call.args)
    deed = options.operands[:2]
    if deed == ("s3", "rm") and options.has("recursive"):
        yield destructive("aws s3 rm --recursive deletes stored data")
    elif deed == ("s3", "rb"):
        yield destructive("aws s3 rb deletes a store")
    elif deed == ("s3", "sync") and options.has("delete"):
        yield high_risk("aws s3 sync --delete deletes stored data")
    elif deed == ("s3", "rm") or (
        len(deed) == 2 and deed[1].startswith(("delete-", "terminate-", "deregister-", "purge-"))
    ):
        yield high_risk(f"aws {' '.join(deed)} deletes something in the cloud")


def _gsutil(call: Call) -> Iterator[Hit]:
    options = shape("hoip").take(call.args)
    verb = options.operands[:1]
    if verb == ("rb",) or (verb == ("rm",) and options.has("r", "R")):
        yield destructive("gsutil deletes stored data")
    elif verb == ("rm",) or (verb == ("rsync",) and options.has("d")):
        yield high_risk("gsutil deletes stored data")


def _cloud(call: Call) -> Iterator[Hit]:
    verb = next(
        (arg for arg in call.args if arg in ("delete", "destroy", "purge", "remove", "rm", "apps:destroy")), None
    )
    if verb is not None:
        yield high_risk(f"{call.program} {verb} deletes something in the cloud")


def _stack(call: Call) -> Iterator[Hit]:
    if "destroy" in call.args or any(arg.lstrip("-") == "destroy" for arg in call.args):
        yield destructive(f"{call.program} destroy takes down what it has built")
    elif call.args[:2] == ("state", "rm") or "force-unlock" in call.args:
        yield high_risk(f"{call.program} {call.args[0]} forgets what it has built")


def _kubectl(call: Call) -> Iterator[Hit]:
    options = shape("nlfoA", "all all-namespaces force", "namespace selector filename context kubeconfig").take(
        call.args
    )
    operands = options.operands
    if operands[:1] == ("delete",):
        vast = options.has("all", "all-namespaces", "A") or any(
            one.split("/")[0] in ("ns", "namespace", "namespaces", "pv", "pvc", "crd", "all") for one in operands[1:2]
        )
        yield (destructive if vast else high_risk)("kubectl delete removes what runs in a cluster")
    elif operands[:1] in (("drain",), ("cordon",), ("replace",)) or operands[:2] == ("scale", "--replicas=0"):
        yield high_risk(f"kubectl {operands[0]} changes what runs in a cluster")


def _helm(call: Call) -> Iterator[Hit]:
    if call.args[:1] in (("uninstall",), ("delete",), ("rollback",)):
        yield high_risk(f"helm {call.args[0]} changes what runs in a cluster")


_DROPS = re.compile(
    r"\bdrop\s{1,9}(?:database|schema|table|keyspace)\b|\btruncate\s{1,9}(?:table\s)?|dropDatabase\(|\.drop\(\)"
    r"|\bdelete\s{1,9}from\s{1,9}[\w.\"`]{1,80}\s{0,9}(?:;|$)",
    re.IGNORECASE,
)


def _sql(call: Call) -> Iterator[Hit]:
    bodies = [one.target.text for one in call.segment.redirects if one.operator in ("<<", "<<<", "<<-")]
    bodies += [word for before in call.segment.upstream[-1:] for word in before[1:]]
    for text in (*call.args, *bodies):
        if _DROPS.search(text):
            yield destructive(f"{call.program} empties or deletes a database or table")


def _always(call: Call) -> Iterator[Hit]:
    if call.args and call.args[0] not in ("--help", "--version", "-V"):
        yield destructive(f"{call.program} deletes a database or more")


def _redis(call: Call) -> Iterator[Hit]:
    for arg in call.args:
        if arg.upper() in ("FLUSHALL", "FLUSHDB", "SHUTDOWN"):
            yield destructive(f"redis {arg.upper()} empties or stops a store")
    for before in call.segment.upstream[-1:]:
        if any(word.upper().startswith("FLUSH") for word in before[1:]):
            yield destructive("redis FLUSHALL empties a store")


def _mysqladmin(call: Call) -> Iterator[Hit]:
    if any(arg in ("drop", "shutdown") for arg in call.args):
        yield destructive("mysqladmin deletes a database or stops the server")


def _npm(call: Call) -> Iterator[Hit]:
    verb = PLAIN.take(call.args).operands[:1]
    if verb in (("unpublish",), ("yank",)):
        yield high_risk(f"{call.program} {verb[0]} takes a published version away from others")


TABLE: Table = {
    **every("docker podman nerdctl docker-compose podman-compose", _docker),
    "aws": _aws,
    **every("gsutil", _gsutil),
    **every(
        "gcloud az doctl heroku fly flyctl linode-cli hcloud ibmcloud oci rclone mc s3cmd wrangler vercel netlify",
        _cloud,
    ),
    **every("terraform tofu terragrunt pulumi cdk sls serverless vagrant", _stack),
    **every("kubectl oc k", _kubectl),
    "helm": _helm,
    **every("psql mysql mariadb sqlite3 mongo mongosh cqlsh clickhouse-client sqlcmd duckdb", _sql),
    **every("dropdb dropuser", _always),
    **every("redis-cli valkey-cli keydb-cli", _redis),
    "mysqladmin": _mysqladmin,
    **every("npm pnpm yarn cargo gem", _npm),
}
