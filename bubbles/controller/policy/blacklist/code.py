"""A few plain signs of harm in code that stands in a command line (``python -c``, ``perl -e``, a here document).

No language is read here: these are suspicions. A program in a file is not looked at.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator

from bubbles.controller.policy.blacklist.finding import Hit, destructive, high_risk
from bubbles.controller.policy.shell.reading import UNKNOWN

_VAST = r"""(?:/|/\*|~/?|~/\*|\$HOME/?|\.\./?)(?=["'`\s;&|)]|$)"""
_HOME = (
    r"""(?:[\w.]{0,30}expanduser\(\s{0,3}["']~/?["']\s{0,3}\)|[\w.]{0,20}Path\.home\(\)|[\w.]{0,20}homedir\(\)"""
    r"""|["'](?:/|~|\.\.)/?["']|[\w.]{0,20}(?:environ|ENV|env)[\[.(]{1,2}['"]?HOME)"""
)
_DECODES = re.compile(
    r"b64decode|base64|fromhex|unhexlify|\batob\(|decode64|MIME::Base64|\bunpack\(|codecs\.decode|zlib\.decompress"
    r"|marshal\.loads|rot13|\bchr\(",
)
_FETCHES = re.compile(
    r"urlopen|urlretrieve|requests\.get|httpx\.|\bfetch\(|https?\.get\(|LWP::|Net::HTTP|open-uri|URI\.open|file_get_contents\(.http"
)
_RUNS = re.compile(
    r"\bexec\(|\bexec\b\s|\beval\b|os\.system|os\.popen|os\.exec|subprocess|child_process|\bsystem\b|\bpopen\b|spawn|Function\("
    r"|__import__|do shell script"
)
_DESTROYS = (
    (
        re.compile(r"\brm\s{1,9}(?:-{1,2}[\w-]+\s{1,9}){1,6}(?:--\s{1,9})?['\"]?" + _VAST),
        "it runs rm -r of root or home",
    ),
    (
        re.compile(
            r"(?:rmtree|rm_rf|rm_r|remove_dir_all|rmSync|rmdirSync|remove_tree|rimraf)\b['\"]?\s{0,3}\(?\s{0,3}" + _HOME
        ),
        "it deletes root or home",
    ),
    (
        re.compile(r"/dev/(?:sd[a-z]|hd[a-z]|vd[a-z]|xvd|nvme\d|mmcblk\d|mem\b)|sysrq-trigger"),
        "it uses a disk directly",
    ),
    (
        re.compile(
            r"\bfork\b[\s()]{0,6}(?:while|until|for)\b|\b(?:while|until|for|loop)\b[^\n;]{0,40}[\n;:{]?\s{0,20}[\w.]{0,12}\bfork\b"
            r"|\bfork\b[^\n]{0,20}\bwhile\b|:\(\)\s{0,3}\{\s{0,3}:\s{0,3}\|\s{0,3}:"
        ),
        "it starts processes without end",
    ),
)
_ENCODED = re.compile(r"[A-Za-z0-9+/]{8,4000}={0,2}")
_MOST_WORDS = 20
_POWER = re.compile(r"\bmkfs(?:\.\w+)?\s+/dev/|['\"](?:/s?bin/)?(?:poweroff|reboot|halt|shutdown)(?:\s+[\w+-]+)*['\"]")
_SOCKET = re.compile(r"socket|TCPSocket|net\.connect|createConnection|fsockopen|IO::Socket")
_SHELL = re.compile(r"dup2|pty\.spawn|/bin/(?:ba|z|da)?sh|cmd\.exe|['\"]sh['\"]")
_SECRETS = re.compile(
    r"/etc/(?:g?shadow|sudoers)|\.ssh/|\.aws/credentials|\.netrc\b|\.gnupg/|\.kube/config|\.docker/config\.json"
    r"|\.git-credentials|\.bubbles/(?:config|rules|session_rules|logins)|\.codex/(?:auth|config|rules)|/proc/\w+/environ"
)
_STARTUP = re.compile(
    r"\.(?:bashrc|bash_profile|profile|zshrc|zshenv|zprofile|bash_login)\b|/etc/(?:cron|profile|rc\.local|systemd|ld\.so)"
    r"|\.config/(?:autostart|systemd)|Launch(?:Agents|Daemons)|\.git/hooks|/var/spool/cron"
)
_ESCALATES = re.compile(r"\b(?:sudo|pkexec|doas)\s+-?\w|\bsetuid\(\s*0|os\.setuid")


def spelled(text: str) -> Iterator[str]:
    """What the longer words of ``text`` say, were they base64 or hexadecimal digits."""
    for word in _ENCODED.findall(text)[:_MOST_WORDS]:
        for decode in (base64.b64decode, bytes.fromhex):
            try:
                yield decode(word).decode()
            except ValueError:
                continue


def signs(code: str) -> Iterator[Hit]:
    """What in ``code`` looks like harm."""
    for sign, reason in _DESTROYS:
        if sign.search(code):
            yield destructive(f"code in the command line is destructive: {reason}")
    if _RUNS.search(code):
        if _DECODES.search(code):
            yield high_risk("code in the command line decodes text and runs it")
            yield from decoded(code)
        if _FETCHES.search(code):
            yield high_risk("code in the command line fetches something and runs programs or code")
        if _POWER.search(code):
            yield destructive("code in the command line stops or wipes the machine")
        if _ESCALATES.search(code):
            yield high_risk("code in the command line uses another user's rights")
    if _SOCKET.search(code) and _SHELL.search(code):
        yield destructive("code in the command line hands a shell over to the network")
    if _SECRETS.search(code):
        yield high_risk("code in the command line names files with keys, passwords or permissions")
    if _STARTUP.search(code):
        yield high_risk("code in the command line names files that run on their own later")
    if "/dev/tcp/" in code.replace(UNKNOWN, ""):
        yield high_risk("code in the command line opens a network connection")


def decoded(text: str) -> Iterator[Hit]:
    """Destruction that is spelled in base64 or hexadecimal."""
    for plain in spelled(text):
        for sign, reason in _DESTROYS:
            if sign.search(plain):
                yield destructive(f"encoded text in the command is destructive: {reason}")
