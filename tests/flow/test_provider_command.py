"""``bubbles provider`` as a person uses it: real processes, a real terminal, vendors on 127.0.0.1."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.login_server import ACCOUNT, MAIL, USER, LoginServer, failing, logins_served
from tests.ptys import Person, at_a_terminal

pytestmark = [pytest.mark.req("PROV-03", "SEC-03"), pytest.mark.timeout(60)]

ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+/oauth/authorize\?\S+)\s")
BROWSER = """#!{python}
import sys, urllib.request
with open({seen!r}, "ab") as seen:
    try:
        seen.write(urllib.request.urlopen(sys.argv[1], timeout=10).read())
    except Exception as error:
        seen.write(repr(error).encode())
"""


@pytest.fixture
async def server() -> AsyncIterator[LoginServer]:
    async with logins_served() as served:
        yield served


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def env(server: LoginServer, data: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL")}
    home = {"HOME": str(data.parent), "BUBBLES_HOME": str(data), "TERM": "xterm"}
    return {**kept, **home, **server.environment}


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "bubbles", "provider", *argv]


async def done(argv: list[str], env: Mapping[str, str], stdin: bytes = b"") -> tuple[int, str, str]:
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(*argv, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
    out, err = await program.communicate(stdin)
    return program.returncode or 0, out.decode(), err.decode()


def kept(data: Path, provider: str) -> dict[str, Any]:
    found = json.loads((data / "logins" / f"{provider}.json").read_text())
    assert isinstance(found, dict)
    return found


def nothing_leaked(server: LoginServer, data: Path, *texts: str) -> None:
    """Only the files of the logins hold what the server has given."""
    assert server.secrets
    files = [path for path in data.parent.rglob("*") if path.is_file() and path.parent != data / "logins"]
    for text in (*texts, *(path.read_bytes().decode("utf-8", "replace") for path in files)):
        for secret in server.secrets:
            for part in (secret, secret[-20:]):
                assert part not in text


async def came_back(address: str) -> str:
    """Where a browser that is sent away ends."""
    async with aiohttp.ClientSession() as browser, browser.get(address, allow_redirects=False) as answer:
        assert answer.status == 302, await answer.text()
        return answer.headers["Location"]


async def login_page(person: Person) -> str:
    shown = await person.sees("paste here")
    found = ADDRESS.search(shown)
    assert found, shown
    return found[1]


async def test_a_browser_comes_back_by_itself_and_the_login_is_kept_for_its_owner_alone(
    server: LoginServer, env: dict[str, str], data: Path, tmp_path: Path
) -> None:
    page, script = tmp_path / "page", tmp_path / "browser"
    script.write_text(BROWSER.format(python=sys.executable, seen=str(page)))
    script.chmod(0o755)
    async with at_a_terminal(command("login", "OpenAI-Codex"), {**env, "DISPLAY": ":0", "BROWSER": str(script)}) as ann:
        shown = await ann.sees(f"Logged in to openai_codex as {MAIL}.")
        assert "A browser has been opened there" in shown
        shown += await ann.sees("bubbles onboard --provider openai_codex --model ")
        assert await ann.leaves() == 0
        shown += ann.unread
    server.check()
    assert b"You can close this page" in page.read_bytes()
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (data, data / "logins", *(data / "logins").iterdir())
    }
    assert modes == {"data": 0o700, "logins": 0o700, "openai_codex.json": 0o600, "openai_codex.lock": 0o600}
    login = kept(data, "openai_codex")
    assert (login["account"], login["person"], login["more"]["issuer"]) == (ACCOUNT, MAIL, server.url)
    nothing_leaked(server, data, shown)


async def test_without_a_browser_the_address_is_pasted_and_a_forged_one_changes_nothing(
    server: LoginServer, env: dict[str, str], data: Path
) -> None:
    async with at_a_terminal(command("login", "openai_codex", "--no-browser"), {**env, "DISPLAY": ":0"}) as ann:
        page = await login_page(ann)
        ann.types(page + "\n")  # the wrong one of the two addresses
        await ann.sees("The address has no code. Paste the whole address")
        back = await came_back(page)
        ann.types(re.sub(r"state=[^&]+", "state=forged", back) + "\n")
        await ann.sees("The address belongs to another login. Paste the whole address")
        ann.types(f"  '{back}' \n")
        await ann.sees(f"Logged in to openai_codex as {MAIL}.")
        assert await ann.leaves() == 0
    server.check()
    assert kept(data, "openai_codex")["account"] == ACCOUNT


async def test_a_page_of_another_site_is_turned_away_and_the_real_callback_still_counts(
    server: LoginServer, env: dict[str, str], data: Path
) -> None:
    async with at_a_terminal(command("login", "openai_codex", "--no-browser"), env) as ann:
        back = await came_back(await login_page(ann))
        forged = re.sub(r"state=[^&]+", "state=forged", back)
        port = re.search(r":(\d+)/", back)
        assert port
        async with aiohttp.ClientSession() as browser:

            async def status(url: str, method: str = "GET", **headers: str) -> int:
                async with browser.request(method, url, headers=headers, allow_redirects=False) as answer:
                    assert "no-referrer" in answer.headers["Referrer-Policy"]
                    return answer.status

            assert await status(forged) == 400
            assert await status(back.partition("state=")[0]) == 400
            assert await status(f"{back}&code=other") == 400
            assert await status(back, Host=f"evil.example:{port[1]}") == 403
            assert await status(back, Origin="https://evil.example") == 403
            assert await status(back, **{"Sec-Fetch-Dest": "image", "Sec-Fetch-Mode": "no-cors"}) == 403
            assert await status(back.replace("/auth/callback", "/")) == 404
            assert await status(back, "POST") == 405
            assert not (data / "logins" / "openai_codex.json").exists()
            assert await status(back) == 200
        await ann.sees("Logged in to openai_codex")
        assert await ann.leaves() == 0
    server.check()


async def test_what_is_not_granted_or_not_answered_is_one_sentence(
    server: LoginServer, env: dict[str, str], data: Path
) -> None:
    server.does.deny = "access_denied"
    async with at_a_terminal(command("login", "openai_codex", "--no-browser"), env) as ann:
        ann.types(await came_back(await login_page(ann)) + "\n")
        await ann.sees("bubbles: openai_codex: the login was not granted (access_denied). Nothing was changed.")
        assert await ann.leaves() == 1
    server.does.deny = ""
    server.does.before["/oauth/token"] = [failing(503, "upstream connect error")]
    async with at_a_terminal(command("login", "openai_codex", "--no-browser"), env) as ann:
        ann.types(await came_back(await login_page(ann)) + "\n")
        shown = await ann.sees("Begin again: bubbles provider login openai_codex")
        assert "status 503" in shown
        assert await ann.leaves() == 1
    assert not (data / "logins" / "openai_codex.json").exists()
    nothing_leaked(server, data)


@pytest.mark.parametrize("provider", ["openai_codex", "github_copilot"])
async def test_control_c_ends_a_login_and_leaves_nothing(
    server: LoginServer, env: dict[str, str], data: Path, provider: str
) -> None:
    server.does.enters_code = ""
    async with at_a_terminal(command("login", provider, "--no-browser"), env) as ann:
        await ann.sees("paste here" if provider == "openai_codex" else "waiting for GitHub")
        ann.types("\x03")
        assert await ann.leaves() == 130
        assert "Traceback" not in ann.unread
    assert not (data / "logins" / f"{provider}.json").exists()


async def test_a_code_is_entered_at_github_and_the_server_is_asked_as_often_as_it_likes(
    server: LoginServer, env: dict[str, str], data: Path
) -> None:
    server.does.slow_downs = 1
    async with at_a_terminal(command("login", "github_copilot"), env) as ann:
        shown = await ann.sees(f"Logged in to github_copilot as {USER}.")
        assert re.search(rf"{re.escape(server.url)}/login/device\s+[0-9A-F]{{4}}-[0-9A-F]{{4}}\s", shown)
        assert await ann.leaves() == 0
        shown += ann.unread
    server.check()
    login = kept(data, "github_copilot")
    assert login["access_token"].startswith("tid=")
    assert login["more"]["api"] == server.url
    nothing_leaked(server, data, shown)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("access_denied", "was not granted"),
        ("expired_token", "the code has expired"),
        ("weird_thing", "it says weird_thing"),
    ],
)
async def test_a_code_that_leads_nowhere_is_one_sentence(
    server: LoginServer, env: dict[str, str], data: Path, outcome: str, said: str
) -> None:
    server.does.enters_code = outcome
    status, out, err = await done(command("login", "github_copilot"), env)
    assert (status, out.count("/login/device")) == (1, 1)
    (line,) = err.splitlines()
    assert said in line
    assert not (data / "logins" / "github_copilot.json").exists()


async def test_an_account_without_copilot_is_told_at_once(server: LoginServer, env: dict[str, str], data: Path) -> None:
    server.does.no_copilot = True
    status, out, err = await done(command("login", "github_copilot"), env)
    assert status == 1
    assert "Logged in to github_copilot" in out
    assert "the account has no access to Copilot (No access to GitHub Copilot found." in err
    nothing_leaked(server, data, out, err)


async def test_scripts_get_json_and_status_shows_no_secret(
    server: LoginServer, env: dict[str, str], data: Path
) -> None:
    status, out, err = await done(command("login", "github_copilot", "--json"), env)
    assert status == 0
    assert json.loads(out)["person"] == USER
    assert "/login/device" in err
    keyed = {**env, "BUBBLES_PROVIDERS__OPENAI__API_KEY": "sk-hidden-1234567890abcdef"}
    _, shown, _ = await done(command("status", "--json"), keyed)
    found = json.loads(shown)
    assert [(one["provider"], one["logged_in"]) for one in found["logins"]] == [
        ("openai_codex", False),
        ("github_copilot", True),
    ]
    assert found["keys"] == ["openai"]
    _, plain, _ = await done(command("status"), keyed)
    assert USER in plain
    assert "bubbles provider login openai_codex" in plain
    assert "sk-hidden" not in shown + plain
    nothing_leaked(server, data, out, err, shown, plain)


async def test_logout_ends_the_login_at_the_vendor_and_here(
    server: LoginServer, env: dict[str, str], data: Path
) -> None:
    async with at_a_terminal(command("login", "openai_codex", "--no-browser"), env) as ann:
        ann.types(await came_back(await login_page(ann)) + "\n")
        assert await ann.leaves() == 0
    token = kept(data, "openai_codex")["refresh_token"]
    assert await done(command("logout", "openai_codex"), env) == (0, "Logged out of openai_codex.\n", "")
    assert server.revoked == [token]
    assert not (data / "logins" / "openai_codex.json").exists()
    assert await done(command("logout", "openai_codex"), env) == (0, "There was no login of openai_codex.\n", "")


async def test_logout_removes_the_login_though_the_vendor_cannot_be_told(
    server: LoginServer, env: dict[str, str], data: Path
) -> None:
    status, _, _ = await done(command("login", "github_copilot"), env)
    assert status == 0
    dead = {**env, "BUBBLES_PROVIDERS__GITHUB_COPILOT__LOGIN_URL": "http://127.0.0.1:9"}
    status, out, _ = await done(command("logout", "github_copilot"), dead)
    assert status == 0
    assert "which was not told" in out
    assert not (data / "logins" / "github_copilot.json").exists()


@pytest.mark.parametrize("name", [".json.damaged-20261201-120000", ".json"])
async def test_logout_leaves_no_token_behind(server: LoginServer, env: dict[str, str], data: Path, name: str) -> None:
    """A damaged file is kept aside, and a program that is killed may leave a new one half-written."""
    folder = data / "logins"
    await asyncio.to_thread(folder.mkdir, parents=True)
    for left in (f"openai_codex{name}", ".openai_codex.json.new"):
        await asyncio.to_thread((folder / left).write_text, '{"refresh_token": "rt-canary')
    status, out, _ = await done(command("logout", "openai_codex"), env)
    assert (status, out.splitlines()[0]) == (0, "Logged out of openai_codex.")
    assert ("could not be told" in out) == (name == ".json")
    assert [path.name for path in folder.iterdir()] == ["openai_codex.lock"]
    assert "canary" not in out


async def test_logout_of_a_link_removes_what_it_leads_to(env: dict[str, str], data: Path, tmp_path: Path) -> None:
    (data / "logins").mkdir(parents=True)
    (tmp_path / "elsewhere.json").write_text("{")
    (data / "logins" / "github_copilot.json").symlink_to(tmp_path / "elsewhere.json")
    assert (await done(command("logout", "github_copilot"), env))[0] == 0
    assert not (tmp_path / "elsewhere.json").exists()


async def test_where_no_login_can_be_kept_nobody_makes_one(env: dict[str, str], data: Path) -> None:
    await asyncio.to_thread((data / "logins" / "openai_codex.lock").mkdir, parents=True)
    status, out, err = await done(command("login", "openai_codex"), env)
    assert (status, out) == (1, "")
    assert "cannot be used" in err


async def test_a_login_that_cannot_be_kept_is_ended_again(server: LoginServer, env: dict[str, str], data: Path) -> None:
    async with at_a_terminal(command("login", "openai_codex", "--no-browser"), env) as ann:
        address = await login_page(ann)
        await asyncio.to_thread((data / "logins" / "openai_codex.json").mkdir)
        ann.types(await came_back(address) + "\n")
        await ann.sees("cannot be written")
        assert await ann.leaves() == 1
    assert len(server.revoked) == 1
    server.check()


async def test_a_new_login_ends_the_one_before(server: LoginServer, env: dict[str, str], data: Path) -> None:
    tokens = []
    for _ in range(2):
        async with at_a_terminal(command("login", "openai_codex", "--no-browser"), env) as ann:
            ann.types(await came_back(await login_page(ann)) + "\n")
            assert await ann.leaves() == 0
        tokens.append(kept(data, "openai_codex")["refresh_token"])
    assert server.revoked == tokens[:1]
    server.check()


@pytest.mark.parametrize("verb", ["login", "logout"])
async def test_a_wrong_name_is_one_sentence_with_both_names(env: dict[str, str], verb: str) -> None:
    status, out, err = await done(command(verb, "openai"), env)
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert "'openai' has no login: take one of openai_codex, github_copilot" in line


async def test_tokens_are_never_sent_without_encryption_to_another_machine(env: dict[str, str]) -> None:
    plain = {**env, "BUBBLES_PROVIDERS__OPENAI_CODEX__LOGIN_URL": "http://auth.example.org"}
    status, _, err = await done(command("login", "openai_codex"), plain)
    assert status == 2
    assert "providers.openai_codex.loginUrl must begin with https://" in err


async def test_off_a_terminal_lines_are_printed_and_the_address_comes_from_standard_input(
    env: dict[str, str], data: Path
) -> None:
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(
        *command("login", "openai_codex"), env=env, stdin=pipe, stdout=pipe, stderr=pipe
    )
    assert program.stdin
    assert program.stdout
    shown = (await program.stdout.readuntil(b"paste here")).decode()
    found = ADDRESS.search(shown)
    assert found
    program.stdin.write((await came_back(found[1])).encode())  # without the end of its line
    program.stdin.close()
    out, err = await program.communicate()
    assert program.returncode == 0, err
    assert f"Logged in to openai_codex as {MAIL}." in out.decode()


async def test_a_vendor_that_cannot_be_reached_is_one_sentence(env: dict[str, str]) -> None:
    dead = {**env, "BUBBLES_PROVIDERS__GITHUB_COPILOT__LOGIN_URL": "http://127.0.0.1:9"}
    status, out, err = await done(command("login", "github_copilot"), dead)
    assert (status, out) == (1, "")
    (line,) = err.splitlines()
    assert "GitHub gave no login (127.0.0.1:9 cannot be reached: " in line
    assert "Error" not in line


async def test_sigterm_ends_a_login(env: dict[str, str]) -> None:
    async with at_a_terminal(command("login", "openai_codex", "--no-browser"), env) as ann:
        await login_page(ann)
        ann.sends(signal.SIGTERM)
        assert await ann.leaves() == 130
