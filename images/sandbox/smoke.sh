#!/bin/sh
# Run inside the finished image, as its own user and without network, before it gets its name. Silent when all is well.
set -eu
fail() { echo "smoke: $*" >&2; exit 1; }

[ "$(id -un)" = agent ] || fail "runs as $(id -un), not as agent"
[ "$(id -u)" = 1000 ] || fail "agent has uid $(id -u), not 1000"
[ "$HOME" = /home/agent ] || fail "HOME is $HOME"
for program in bash curl diff file git jq less make patch ps python3 rg ssh tar tree unzip xz zip; do
    command -v "$program" >/dev/null || fail "$program is missing"
done
# What the runner needs, and python3-minimal lacks.
python3 -I -S -B -c 'import array, base64, ctypes, errno, fcntl, json, resource, selectors, signal, socket, struct' ||
    fail "python3 is not complete"
python3 -c 'import ssl, sqlite3, venv, zoneinfo; zoneinfo.ZoneInfo("Europe/Berlin")' || fail "python3 is not complete"
[ -s /etc/ssl/certs/ca-certificates.crt ] || fail "there are no certificate authorities"
[ "$(printf 'h\303\251' | wc -m)" = 2 ] || fail "the locale is not UTF-8"
raised=$(find / -xdev -type f -perm /6000 2>/dev/null | head -n 3)
[ -z "$raised" ] || fail "these files raise rights: $raised"
cd "$(mktemp -d)"
git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first || fail "git does not work"
