"""Takes secrets out of texts that are kept (SEC-03).

Two nets: the values that the controller's own environment holds under names such as ``…_TOKEN``, and the shapes that
keys are known to have. They are rather wide: better a word too many is hidden than a key kept. What hides a secret on
purpose (encoded, put together from parts) passes; no net holds that.

Time is linear in the text: every repetition is bounded, or ends where the next attempt would begin.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

REDACTED = "[redacted]"
MIN_SECRET = 6
"""Characters. What is shorter is a switch, not a key."""
MAX_HEAD = 64
"""Characters of a longer secret that are looked for; what follows them up to a blank goes with them."""
MAX_LEARNT = 64
"""Secrets that came up while the program runs, such as renewed tokens; the oldest are forgotten, being spent."""
MIN_LINE = 16
"""Characters of a line of a secret of several lines (a private key) that is looked for by itself."""

SECRET_WORD = re.compile(
    r"(?:API)?(?:KEY|TOKEN)|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|AUTH|COOKIE|PAT|PWD?|\w+PASSWORD",
    re.IGNORECASE,
)
AFTER_IT = re.compile(r"\d*|ID|B(?:ASE)?64|VALUE", re.IGNORECASE)
"""What may follow the word at the end of a name without changing what it names."""
NO_SECRET_NAMES = frozenset({"PWD", "OLDPWD"})
NO_SECRET_ENDS = ("_FILE", "_PATH", "_DIR", "_HOME", "_SOCK", "_SOCKET", "_URL", "_PID")
NO_SECRET_VALUE = re.compile(r"true|false|yes|none|null|(?:en|dis)abled|\d{1,7}", re.IGNORECASE)
LOOKS_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{12,}")
PASSWORD_OF_URL = re.compile(r"://[^\s/:@'\"?#]{0,256}:([^\s/'\"]{1,512})@")

_WORDS = (
    r"(?:password|passwd|passphrase|[_-]pwd|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|secret[_-]?key"
    r"|private[_-]?key|auth[_-]?key|session[_-]?key|credentials?)"
)
_REFERENCE = r"""(?!["']?(?:\$\(|(?:\$\w++|\$\{\w++\})+["']?(?:[\s;&|)<>"'`]|\Z)))"""
"""Ahead are not just names of variables, or a question to another program: no secret, and worth reading."""
_BARE = r"""[^\s"'`;&|<>(){},\\]"""
_VALUE = (
    rf"""{_REFERENCE}(?:"(?:[^"\\\s]|\\.){{1,512}}"|'[^'\s]{{1,512}}'"""  # quoted, one word
    r"""|"(?:[^"\\\n;&|]|\\.){1,512}"|'[^'\n;&|]{1,512}'"""  # quoted, several: not if it may be commands
    rf"""|["']?(?:{_BARE}|\\.)(?:{_BARE}|\\.|'[^'\s]{{1,128}}'|"[^"\s]{{1,128}}")*)"""
)


def _shape(text: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    return re.compile(text, flags | re.DOTALL)


SHAPES: tuple[re.Pattern[str], ...] = (
    _shape(
        r"(?P<keep>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)"
        r"(?:(?:(?!-----(?:BEGIN|END) ).)+-----END [A-Z0-9 ]{0,40}-----|[A-Za-z0-9+/=\s\\]+)"
    ),
    _shape(
        r"(?P<keep>(?<![A-Za-z0-9]))(?:"
        r"sk-[A-Za-z0-9_-]{16,}|[sr]k_(?:live|test)_[A-Za-z0-9]{10,}"  # OpenAI, Anthropic and kin; Stripe
        r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
        r"|xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"  # Slack
        r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"  # AWS, Google
        r"|(?<![_-])eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]*)?"  # JSON Web Token, RFC 7519
        r"|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|hf_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}"
        r"|tvly-[A-Za-z0-9-]{16,}|SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}|dop_v1_[a-f0-9]{40,}"
        r"|AGE-SECRET-KEY-1[A-Z0-9]{40,}"
        r")",
        re.NOFLAG,
    ),
    _shape(r"(?P<keep>(?:(?<![A-Za-z0-9])|\bbot)[0-9]{8,10}:)[A-Za-z0-9_-]{34,36}(?![A-Za-z0-9_-])"),  # Telegram
    _shape(
        r"(?P<keep>(?:authorization|x-api-key|api-key|x-auth-token|private-token|x-goog-api-key)[\"']?\s{0,4}[:=]"
        rf"\s{{0,4}}+[\"']?+(?:(?:bearer|basic|token|digest|apikey)\s{{1,4}})?(?!(?:bearer|basic|token|digest|apikey)\s)){_REFERENCE}[^\s\"'\\]+"
    ),
    _shape(r"(?P<keep>\bcookie[\"']?\s{0,4}:\s{0,4}+[\"']?+)[^\s\"'][^\"'\n]*"),
    _shape(r"(?P<keep>--cookie(?:\s{1,8}|=))(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"']+)"),
    _shape(rf"(?P<keep>\bbearer\s{{1,4}}){_REFERENCE}[A-Za-z0-9._~+/=-]{{8,}}"),
    _shape(rf"(?P<keep>--?(?:[a-z0-9]{{1,20}}[-_]){{0,3}}{_WORDS}(?:\s{{1,8}}|=))(?!-){_VALUE}"),
    _shape(rf"(?P<keep>{_WORDS}(?:_?\d{{1,3}})?[\"']?\s{{0,2}}[:=]\s{{0,2}}){_VALUE}"),
    _shape(
        r"(?P<keep>(?<![A-Za-z0-9_])(?:[A-Z0-9]{1,40}_){1,6}(?:KEY|TOKEN|SECRET|PASS|PASSWD|PASSPHRASE|PAT|AUTH|COOKIE|PWD)="
        rf"){_VALUE}",
        re.NOFLAG,
    ),
    _shape(
        r"(?P<keep>\b(?:curl|wget|http)\b[^;|&]{0,200}?\s-[A-Za-z]{0,8}[uU]\s{0,8}[\"']?[^\s:'\"]{1,128}:)"
        rf"{_VALUE}",
        re.NOFLAG,
    ),
    _shape(r"(?P<keep>\s--proxy-user[=\s][\"']?[^\s:'\"]{1,128}:)[^\s'\"]{1,512}"),
    _shape(rf"(?P<keep>(?<![A-Za-z0-9_])(?:PASS|PW|PGPASSWORD|MYSQL_PWD)=){_VALUE}", re.NOFLAG),
    _shape(rf"(?P<keep>{_WORDS}\\[\"']\s{{0,2}}:\s{{0,2}}\\[\"'])[^\\\"'\s]{{1,512}}"),
    _shape(r"(?P<keep>[?&'\"](?:pass|passwd|pwd|pw)=)(?!\$)[^\s&'\"#]{1,512}"),
    _shape(r"(?P<keep>:_auth(?:Token)?[=\s]{1,4})(?!\$)[^\s'\"]{4,512}"),
    _shape(r"(?P<keep>\b(?:identified\s+by|password)\s{1,4}['\"])[^'\"\n]{1,256}"),
    _shape(r"(?P<keep>https://(?:hooks\.slack\.com/services|discord(?:app)?\.com/api/webhooks)/)[^\s'\"]{8,256}"),
    _shape(
        r"(?P<keep>(?<![A-Za-z0-9]))(?:xai-|pplx-|r8_|nvapi-|dckr_pat_|shp(?:at|ss)_|lin_api_|ATATT3|figd_|glrt-)[\w-]{12,}",
        re.NOFLAG,
    ),
    _shape(rf"(?P<keep>--from-literal[=\s][^\s=]{{1,128}}=){_VALUE}"),
    _shape(
        r"(?P<keep>[?&](?:key|api_?key|(?:access_|refresh_)?token|sig|signature|secret|client_secret|password|auth|code)=)"
        r"(?!\$)[^\s&'\"#]{4,512}"
    ),
    _shape(r"(?P<keep>\bhttps?://)(?!\$)[^\s/:@'\"?#]{8,256}(?=@)"),
    _shape(r"(?P<keep>\s-pass(?:in|out)?\s{1,8}pass:)[^\s'\"]{1,512}"),
    _shape(rf"(?P<keep>\b(?:login|twine)\b[^\n;|&]{{0,200}}?\s-p\s{{1,8}}){_VALUE}", re.NOFLAG),
    _shape(rf"(?P<keep>\bredis-cli\b[^\n;|&]{{0,200}}?\s-a\s{{1,8}}){_VALUE}", re.NOFLAG),
    _shape(rf"(?P<keep>\bcurl\b[^\n;|&]{{0,200}}?\s-b\s{{0,8}}){_VALUE}", re.NOFLAG),
    _shape(r"(?P<keep>://[^\s/:@'\"?#]{0,256}:)(?!\$)[^\s/'\"]{1,512}(?=@)"),
    _shape(rf"(?P<keep>\baws_(?:secret_access_key|session_token)\s{{1,8}}){_VALUE}"),
    _shape(rf"(?P<keep>\bsshpass\s{{1,8}}-p\s{{0,8}}){_VALUE}", re.NOFLAG),
    _shape(rf"(?P<keep>\bmysql(?:dump|admin)?\b[^\n;|&]{{0,200}}?\s-p){_VALUE}", re.NOFLAG),
    _shape(
        rf"(?P<keep>\b(?:curl|wget|http)\b[^\n;|&]{{0,200}}?\s(?:-u\s{{0,8}}|--user[=\s])[\"']?[^\s:'\"]{{1,128}}:){_VALUE}",
        re.NOFLAG,
    ),
)


class Redactor:
    """``redact`` a text before it is written anywhere."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """``secrets`` are values that must never be kept; those shorter than ``MIN_SECRET`` are not looked for."""
        known = sorted({piece for secret in secrets for piece in _pieces(secret)}, key=len, reverse=True)
        # A pattern as long as a key file takes seconds to be made, and longer to be tried: its beginning will do.
        heads = dict.fromkeys(map(_head, known))
        self._known = re.compile("|".join(map(_however_quoted, heads))) if heads else None
        self._heads = frozenset(heads)
        self._learnt: dict[str, re.Pattern[str]] = {}
        self._learning = threading.Lock()

    @classmethod
    def of_environment(cls, host_env: Mapping[str, str], more: Iterable[str] = ()) -> Redactor:
        """One that knows the values of variables whose names say that they are secret, passwords in addresses, and
        ``more``, such as configured keys.
        """
        return cls(chain((secret for name, value in host_env.items() for secret in _secrets(name, value)), more))

    def learn(self, secret: str) -> None:
        """Look for this one too from now on. Any thread may call it, while others redact."""
        heads = [head for head in map(_head, _pieces(secret)) if head not in self._heads]
        patterns = {head: re.compile(_however_quoted(head)) for head in heads}
        with self._learning:
            kept = {head: pattern for head, pattern in self._learnt.items() if head not in patterns} | patterns
            while len(kept) > MAX_LEARNT:
                del kept[next(iter(kept))]
            self._learnt = kept  # another one: who is at a text goes on with what there was

    def mask(self, text: str) -> str:
        """Only the secrets that are known: what merely looks like one stays, for the text is worked with."""
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        for pattern in self._learnt.values():
            text = pattern.sub(REDACTED, text)
        return text

    def redact(self, text: str) -> str:
        text = self.mask(text)
        for shape in SHAPES:
            text = shape.sub(rf"\g<keep>{REDACTED}", text)
        return text


def _secrets(name: str, value: str) -> Iterator[str]:
    yield from PASSWORD_OF_URL.findall(value)
    if name in NO_SECRET_NAMES or name.upper().endswith(NO_SECRET_ENDS) or NO_SECRET_VALUE.fullmatch(value):
        return
    parts = name.split("_")
    while len(parts) > 1 and AFTER_IT.fullmatch(parts[-1]):
        parts.pop()
    if SECRET_WORD.fullmatch(parts[-1].rstrip("0123456789")):
        yield value
    elif any(SECRET_WORD.fullmatch(part) for part in parts) and LOOKS_RANDOM.fullmatch(value):
        yield value  # AUTH_TYPE=bearer names no secret, TOKEN_OF_CI=… does


def _pieces(secret: str) -> list[str]:
    """What to look for: the value, and each long line if there are several."""
    whole = secret.strip()
    lines = [line.strip() for line in whole.splitlines()]
    found = [whole, *(line for line in lines if len(line) >= MIN_LINE)] if len(lines) > 1 else [whole]
    return [piece for piece in found if len(_unquoted(piece)) >= MIN_SECRET]


def _head(secret: str) -> str:
    return _unquoted(secret)[:MAX_HEAD]


def _unquoted(text: str) -> str:
    return re.sub(r"[\"'\\]", "", text)


def _however_quoted(secret: str) -> str:
    """A pattern that finds it in shell text too, where quotes and backslashes may stand between any two characters."""
    found = r"[\"'\\\n]{0,4}".join(re.escape(character) for character in secret)
    return found + r"\S{0,100000}+" if len(secret) == MAX_HEAD else found
