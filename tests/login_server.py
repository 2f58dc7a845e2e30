"""OpenAI and GitHub on 127.0.0.1, as strict as they are: logins, tokens that end, refresh tokens that count once.

One server plays both. What a client does wrong is answered as the vendors answer it, and kept in ``faults``; a test
that expects none asks ``check()``. Time is the test's where it matters: ``now`` gives seconds.

For models: ``answers["/backend-api/codex/responses"] = handler`` (and ``/chat/completions``, ``/responses``); the token
of a request is checked before the handler gets it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from aiohttp import web

CODEX_CLIENT = "app_EMoamEEZ73f0CkXaXp7hrann"
COPILOT_CLIENT = "Iv1.b507a08c87ecfe98"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
MAIL = "ann@example.org"
USER = "ann-of-github"
ACCOUNT = "acc-4711"
API = ("/backend-api/codex/responses", "/chat/completions", "/responses", "/models")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Before = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


@dataclass(slots=True)
class _Authorization:
    """What the login page was asked for."""

    challenge: str
    redirect_uri: str
    client_id: str


@dataclass(slots=True)
class _Device:
    interval_s: float
    ends_at: float
    asked_at: float
    outcome: str = "authorization_pending"
    """``granted``, or the error to answer with."""


@dataclass(slots=True, kw_only=True)
class Behaviour:
    """What a test may choose. Numbers of seconds."""

    deny: str = field(default="", init=False)
    """The error with which the login page sends the browser back."""
    access_life_s: float = field(default=3_600.0, init=False)
    code_life_s: float = field(default=900.0, init=False)
    interval_s: float = field(default=1.0, init=False)
    enters_code: str = field(default="granted", init=False)
    """What the person does with the code for GitHub at once; empty: nothing yet."""
    slow_downs: int = field(default=0, init=False)
    """So many times the server says ``slow_down`` without being asked too often."""
    no_copilot: bool = field(default=False, init=False)
    tells_expires_in: bool = field(default=True, init=False)
    before: dict[str, list[Before]] = field(default_factory=dict, init=False)
    """By path: each is called for one request, in their order; what it returns is the answer."""


@dataclass(slots=True)
class LoginServer:
    now: Callable[[], float] = time.time
    url: str = field(default="", init=False)
    does: Behaviour = field(default_factory=Behaviour, init=False)
    answers: dict[str, Handler] = field(default_factory=dict, init=False)
    faults: list[str] = field(default_factory=list, init=False)
    requests: list[str] = field(default_factory=list, init=False)
    """Method and path of each."""
    secrets: set[str] = field(default_factory=set, init=False)
    """Every token and code that was ever given: none may be seen anywhere else."""
    renewals: int = field(default=0, init=False)
    revoked: list[str] = field(default_factory=list, init=False)
    _codes: dict[str, _Authorization] = field(default_factory=dict, init=False)
    _refresh: dict[str, bool] = field(default_factory=dict, init=False)
    """Whether it still counts."""
    _access: dict[str, float] = field(default_factory=dict, init=False)
    """When it ends."""
    _github: set[str] = field(default_factory=set, init=False)
    _devices: dict[str, _Device] = field(default_factory=dict, init=False)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a ``bubbles`` process log in here."""
        return {
            "BUBBLES_PROVIDERS__OPENAI_CODEX__LOGIN_URL": self.url,
            "BUBBLES_PROVIDERS__OPENAI_CODEX__BASE_URL": f"{self.url}/backend-api/codex",
            "BUBBLES_PROVIDERS__GITHUB_COPILOT__LOGIN_URL": self.url,
        }

    def check(self) -> None:
        assert not self.faults, "\n".join(self.faults)

    def count(self, path: str) -> int:
        return sum(request.endswith(f" {path}") for request in self.requests)

    def codex_login(self) -> dict[str, str]:
        """Tokens as a login would have got them."""
        return self._tokens()

    def github_token(self) -> str:
        token = self._secret("ghu_")
        self._github.add(token)
        return token

    def end_access(self) -> None:
        """No access token that was given so far counts any more."""
        self._access = dict.fromkeys(self._access, 0.0)

    def end_logins(self) -> None:
        self._refresh = dict.fromkeys(self._refresh, False)
        self._github.clear()

    def person_enters(self, outcome: str = "granted") -> None:
        for device in self._devices.values():
            device.outcome = outcome

    def authorized(self, request: web.Request) -> bool:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        return kind == "Bearer" and self._access.get(token, 0.0) > self.now()

    # OpenAI

    async def authorize(self, request: web.Request) -> web.StreamResponse:
        """The login page: whoever opens it is logged in at once."""
        asked = request.query
        wanted = {
            "response_type": "code",
            "client_id": CODEX_CLIENT,
            "scope": "openid profile email offline_access",
            "code_challenge_method": "S256",
            "id_token_add_organizations": "true",
            "codex_cli_simplified_flow": "true",
        }
        wrong = [name for name, value in wanted.items() if asked.getall(name, []) != [value]]
        back = urlsplit(asked.get("redirect_uri", ""))
        if back.scheme != "http" or back.hostname != "localhost" or back.path != "/auth/callback" or not back.port:
            wrong.append("redirect_uri")
        if len(asked.get("state", "")) < 22 or len(asked.get("code_challenge", "")) != 43:
            wrong.append("state or code_challenge")
        if wrong:
            return self._wrong(f"the login page was asked with a wrong {', '.join(wrong)}", 400)
        answer = {"state": asked["state"]}
        if self.does.deny:
            answer["error"] = self.does.deny
        else:
            code = answer["code"] = self._secret("ac_")
            answer["scope"] = wanted["scope"]
            self._codes[code] = _Authorization(asked["code_challenge"], asked["redirect_uri"], asked["client_id"])
        raise web.HTTPFound(f"{asked['redirect_uri']}?{urlencode(answer)}")

    async def token(self, request: web.Request) -> web.StreamResponse:
        if request.content_type == "application/x-www-form-urlencoded":
            asked: Mapping[str, Any] = dict(await request.post())
            return self._exchanged(asked)
        return self._renewed(json.loads(await request.text()))

    def _exchanged(self, asked: Mapping[str, Any]) -> web.Response:
        if asked.get("grant_type") != "authorization_code":
            return self._wrong("a form with another grant_type than authorization_code", 400, "unsupported_grant_type")
        authorization = self._codes.pop(asked.get("code", ""), None)
        if authorization is None:
            return web.json_response({"error": "invalid_grant"}, status=400)
        verifier = asked.get("code_verifier", "")
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if not 43 <= len(verifier) <= 128 or challenge != authorization.challenge:
            return self._wrong("the verifier does not fit the challenge", 400, "invalid_grant")
        if asked.get("redirect_uri") != authorization.redirect_uri or asked.get("client_id") != authorization.client_id:
            return self._wrong("redirect_uri or client_id are not those of the login page", 400, "invalid_grant")
        return web.json_response(self._tokens())

    def _renewed(self, asked: Mapping[str, Any]) -> web.Response:
        if asked.get("grant_type") != "refresh_token" or asked.get("client_id") != CODEX_CLIENT:
            return self._wrong("JSON that is no refresh", 400, "invalid_request")
        token = asked.get("refresh_token", "")
        counts = self._refresh.get(token)
        if counts is None:
            return _openai_error("refresh_token_invalidated")
        if not counts:
            self._refresh = dict.fromkeys(self._refresh, False)  # a stolen one, for all that OpenAI knows
            self.faults.append("a refresh token was used again")
            return _openai_error("refresh_token_reused")
        self._refresh[token] = False
        self.renewals += 1
        return web.json_response(self._tokens())

    async def revoke(self, request: web.Request) -> web.StreamResponse:
        asked = json.loads(await request.text())
        if asked.get("client_id") != CODEX_CLIENT or asked.get("token_type_hint") != "refresh_token":
            return self._wrong("a revocation without client or kind", 400)
        self.revoked.append(asked["token"])
        self._refresh[asked["token"]] = False
        return web.json_response({})

    def _tokens(self) -> dict[str, Any]:
        refresh = self._secret("rt_")
        self._refresh[refresh] = True
        auth = {"chatgpt_account_id": ACCOUNT, "chatgpt_plan_type": "plus"}
        life = self.does.access_life_s
        access = self._jwt({"iat": int(self.now()), "exp": int(self.now() + life), "https://api.openai.com/auth": auth})
        self._access[access] = self.now() + life
        found = {
            "access_token": access,
            "refresh_token": refresh,
            "id_token": self._jwt({"email": MAIL, "https://api.openai.com/auth": auth}),
        }
        return {**found, "expires_in": int(life)} if self.does.tells_expires_in else found

    def _jwt(self, claims: Mapping[str, Any]) -> str:
        parts = ({"alg": "RS256", "typ": "JWT", "kid": "k1"}, {**claims, "jti": secrets.token_hex(16)})
        texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
        made = ".".join([*texts, secrets.token_urlsafe(43)])
        self.secrets.add(made)
        return made

    # GitHub

    async def device_code(self, request: web.Request) -> web.StreamResponse:
        asked = await request.post()
        if asked.get("client_id") != COPILOT_CLIENT or asked.get("scope") != "read:user":
            return self._wrong("a device code for another client or scope", 400)
        code = self._secret("dc_")
        device = _Device(self.does.interval_s, self.now() + self.does.code_life_s, self.now())
        device.outcome = self.does.enters_code or device.outcome
        self._devices[code] = device
        user = secrets.token_hex(4).upper()
        found = {
            "device_code": code,
            "user_code": f"{user[:4]}-{user[4:]}",
            "verification_uri": f"{self.url}/login/device",
        }
        return web.json_response({**found, "expires_in": self.does.code_life_s, "interval": self.does.interval_s})

    async def device_token(self, request: web.Request) -> web.StreamResponse:
        """GitHub says everything with status 200."""
        asked = await request.post()
        if asked.get("grant_type") != DEVICE_GRANT or request.headers.get("Accept") != "application/json":
            return self._wrong("the wrong grant_type, or no JSON is accepted", 200, "unsupported_grant_type")
        device = self._devices.get(str(asked.get("device_code", "")))
        if device is None or asked.get("client_id") != COPILOT_CLIENT:
            return self._wrong("an unknown device code", 200, "incorrect_device_code")
        waited, device.asked_at = self.now() - device.asked_at, self.now()
        if waited < device.interval_s:
            device.interval_s += 5
            return self._wrong(f"asked again after {waited:.3f} s", 200, "slow_down")
        if self.does.slow_downs:
            self.does.slow_downs -= 1
            device.interval_s += 1
            return web.json_response({"error": "slow_down", "interval": device.interval_s})
        if self.now() > device.ends_at:
            return web.json_response({"error": "expired_token"})
        if device.outcome != "granted":
            return web.json_response({"error": device.outcome})
        return web.json_response({"access_token": self.github_token(), "token_type": "bearer", "scope": ""})

    async def copilot_token(self, request: web.Request) -> web.StreamResponse:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "token" or token not in self._github:
            return web.json_response({"message": "Bad credentials"}, status=401)
        if self.does.no_copilot:
            said = "No access to GitHub Copilot found. You are currently logged in as ann."
            return web.json_response(
                {"error_details": {"message": said}, "message": "Resource not accessible"}, status=403
            )
        self.renewals += 1
        made = self._secret("tid=") + ";exp=1;sku=free:" + secrets.token_hex(16)
        self.secrets.add(made)
        life = self.does.access_life_s
        self._access[made] = self.now() + life
        found = {"token": made, "expires_at": int(self.now() + life), "refresh_in": max(0, int(life) - 60)}
        return web.json_response({**found, "endpoints": {"api": self.url}})

    async def user(self, request: web.Request) -> web.StreamResponse:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind != "token" or token not in self._github:
            return web.json_response({"message": "Bad credentials"}, status=401)
        return web.json_response({"login": USER})

    # Both

    async def api(self, request: web.Request) -> web.StreamResponse:
        if not self.authorized(request):
            return web.json_response({"error": {"message": "token expired", "code": "token_expired"}}, status=401)
        handler = self.answers.get(request.path)
        return await handler(request) if handler else web.json_response({"error": "no handler"}, status=501)

    def _secret(self, prefix: str) -> str:
        made = prefix + secrets.token_hex(24)
        self.secrets.add(made)
        return made

    def _wrong(self, fault: str, status: int, code: str = "invalid_request") -> web.Response:
        self.faults.append(fault)
        return web.json_response({"error": code, "error_description": fault}, status=status)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/oauth/authorize", self.authorize),
            web.post("/oauth/token", self.token),
            web.post("/oauth/revoke", self.revoke),
            web.post("/login/device/code", self.device_code),
            web.post("/login/oauth/access_token", self.device_token),
            web.get("/api/v3/copilot_internal/v2/token", self.copilot_token),
            web.get("/api/v3/user", self.user),
            *(web.route("*", path, self.api) for path in API),
        ]


def _openai_error(code: str) -> web.Response:
    return web.json_response({"error": {"message": "Please log in again.", "code": code}}, status=401)


def failing(status: int, body: str = "", **headers: str) -> Before:
    """An answer for ``Behaviour.before``."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body, headers=headers)

    return answer


class Held:
    """For ``Behaviour.before``: the request has ``come``, and is answered when the test lets it ``go``."""

    def __init__(self) -> None:
        self.come, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, _: web.Request) -> None:
        self.come.set()
        await self.go.wait()


@asynccontextmanager
async def logins_served(now: Callable[[], float] = time.time) -> AsyncIterator[LoginServer]:
    server = LoginServer(now)

    @web.middleware
    async def watched(request: web.Request, handler: Handler) -> web.StreamResponse:
        server.requests.append(f"{request.method} {request.path}")
        if server.does.before.get(request.path):
            answer = await server.does.before[request.path].pop(0)(request)
            if answer is not None:
                return answer
        return await handler(request)

    app = web.Application(middlewares=[watched], client_max_size=64 << 20)
    app.add_routes(server.routes())
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()
