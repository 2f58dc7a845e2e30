"""Telegram's updates and connection, against a Bot API server with the real one's limits and its traps."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import traceback
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bubbles.channels.contract import (
    ChannelError,
    FatalChannelError,
    Incoming,
    NotSentError,
)
from bubbles.channels.telegram.channel import TelegramChannel
from bubbles.channels.telegram.polling import AT_ONCE, Pace
from bubbles.config.channels import TelegramSettings
from tests.channel_servers.desk import Desk, DiskFullError, failure, running
from tests.channel_servers.proxies import http_proxy, socks_proxy
from tests.channel_servers.telegram import (
    ANN,
    BOB,
    GROUP,
    TOKEN,
    cut,
    page,
    refuses,
    slow_down,
)
from tests.channel_servers.telegram_scene import Scene, fetched, message, piece, telegram_scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with telegram_scene() as made:
        yield made


# -- updates --


@pytest.mark.req("CHAN-07")
async def test_an_update_that_makes_no_sense_is_passed_over(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    broken: list[Any] = [
        {"message": {"text": "no chat"}},
        {"message": message("x", chat={"id": "y", "type": "private"})},
        {"message": message("x", entities=[{"type": "mention"}])},
        {"message": message("x", **{"from": {"id": None}})},
        {"message": message("x", photo=[{}])},
        {"message": "what"},
        {"callback_query": {"id": "1"}},
        {"callback_query": 7},
    ]
    async with scene.on():
        await scene.hears_nothing_of(*broken)
    assert sum("passed over" in each.message for each in caplog.records) == len(broken) - 1


@pytest.mark.req("CHAN-07", "OPS-02")
async def test_telegram_hears_that_a_batch_arrived_once_all_of_it_is_on_the_disk(scene: Scene) -> None:
    for number in range(3):
        await scene.server.says(f"m{number}")
    scene.desk.faults.extend([DiskFullError("full")])
    error = await failure(scene.channel(), scene.desk)
    assert isinstance(error, DiskFullError)
    assert (scene.server.acknowledged, scene.desk.taken, scene.memory.kept) == ([], [], {})
    async with scene.on():
        assert [each.text for each in await scene.desk.got(3)] == ["m0", "m1", "m2"]
        await scene.server.until(lambda: len(scene.server.acknowledged) == 3)
    assert json.loads(scene.memory.kept["offset"])["next"] == 90_004
    async with scene.on():
        assert (await scene.hears("m3")).text == "m3"
        assert scene.server.asked("getUpdates")[-1]["offset"] in ("90004", "90005")
        assert "0" not in [given.get("offset", "0") for given in scene.server.asked("getUpdates")[-1:]]


@pytest.mark.req("CHAN-07")
@pytest.mark.parametrize("other", [{"bot": "1"}, {"at": 0.0}, "not JSON", "[]"], ids=str)
async def test_how_far_another_bot_was_read_or_long_ago_says_nothing(scene: Scene, other: Any) -> None:
    kept = other
    if isinstance(other, dict):
        kept = json.dumps({"bot": "7000000001", "next": 99_999_999, "at": scene.now} | other)
    scene.memory.kept["offset"] = kept
    async with scene.on():
        assert (await scene.hears("m")).text == "m"


async def test_an_old_number_is_given_up_while_it_runs_too(scene: Scene) -> None:
    async with scene.on():
        await scene.hears("m")
        scene.now += 100_000
        await scene.server.until(lambda: "offset" in scene.server.asked("getUpdates")[-1])
        async with scene.server._news:
            scene.server._news.notify_all()
        assert (await scene.hears("n")).text == "n"
        await scene.hears("o")
    assert len({each.message_id for each in scene.desk.taken}) == 3


@pytest.mark.req("CHAN-05", "CHAN-07")
async def test_an_album_is_one_message_wherever_its_parts_lie(scene: Scene) -> None:
    before = await scene.server.says("before", user=BOB)
    first = await scene.server.album("look @bubbles_bot", "", "")
    await scene.server.says("after", user=BOB)
    async with scene.on():
        texts = {(each.message_id, each.text, len(each.attachments)) for each in await scene.desk.got(3)}
        assert {(str(before), "before", 0), (str(first), "look <@7000000001>", 3)} < texts
        again = await scene.server.album("", "two", chat=GROUP)
        await asyncio.sleep(0.01)
        assert (await scene.desk.got(4))[3].message_id == str(again)
        assert len(scene.desk.taken[3].attachments) == 2


@pytest.mark.req("CHAN-07")
async def test_a_chat_that_takes_its_time_holds_up_no_other_and_keeps_its_order(scene: Scene) -> None:
    go = asyncio.Event()

    class Slow(Desk):
        async def take(self, message: Incoming) -> None:
            if message.text == "slow":
                await go.wait()
            await super().take(message)

    scene.desk = Slow()
    for text, user in (("slow", ANN), ("behind it", ANN), ("quick", BOB)):
        await scene.server.says(text, user=user)
    async with scene.on():
        assert [each.text for each in await scene.desk.got(1)] == ["quick"]
        assert scene.server.acknowledged == []
        go.set()
        assert [each.text for each in await scene.desk.got(3)] == ["quick", "slow", "behind it"]
        await scene.server.until(lambda: len(scene.server.acknowledged) == 3)


@pytest.mark.req("CHAN-07", "OPS-02")
async def test_an_album_whose_parts_come_late_is_still_one_and_a_kill_loses_no_part(scene: Scene) -> None:
    first = await scene.server.album("one", "late 0", "late 1", "late 2")
    late = scene.server.updates[1:]
    del scene.server.updates[1:]

    def one_more(_: Any) -> None:
        assert scene.desk.taken == []
        scene.server.updates.append(late.pop(0))

    # The first request finds one part, and each look after it one more.
    scene.server.faults["getUpdates"].extend([lambda _: None, one_more, one_more, one_more])
    scene.desk.faults.append(DiskFullError("full"))
    assert isinstance(await failure(scene.channel(), scene.desk), DiskFullError)
    assert (late, scene.server.acknowledged) == ([], [])
    async with scene.on():
        [album] = await scene.desk.got(1)
        assert (album.message_id, len(album.attachments)) == (str(first), 4)
        assert album.text == "one\nlate 0\nlate 1\nlate 2"
        await scene.server.until(lambda: len(scene.server.acknowledged) == 4)


@pytest.mark.req("CHAN-07")
async def test_an_album_at_the_end_of_a_full_batch_is_not_torn_apart(scene: Scene) -> None:
    for number in range(AT_ONCE - 2):
        await scene.server.says(f"m{number}")
    await scene.server.album("a", "b", "c", "d")
    async with scene.on():
        taken = await scene.desk.got(AT_ONCE - 1)
        assert [each.text for each in taken] == [*(f"m{n}" for n in range(AT_ONCE - 2)), "a\nb\nc\nd"]
        await scene.server.until(lambda: len(scene.server.acknowledged) == AT_ONCE + 2)


# -- buttons --


@pytest.mark.req("APPR-01")
async def test_a_press_is_the_command_it_stands_for_and_hostile_data_is_nothing(scene: Scene) -> None:
    async with scene.on() as channel:
        ident = await channel.send(piece("Run?", card="bcd2"))
        card = {"message_id": int(ident or 0), "date": 1, "chat": scene.server.private(ANN)}
        assert scene.server.sent[0].buttons == ["approve:bcd2", "deny:bcd2"]
        hostile = [
            "approve:BCD2",
            "approve:bcd2\n",
            "approve:b",
            "approve:bcdfghjkm",
            "/approve bcd2",
            "run:bcd2",
            "",
            "deny:",
        ]
        presses = [await scene.server.presses(data, message=card) for data in hostile]
        presses += [await scene.server.presses("approve:bcd2", message=card, user=BOB)]
        presses += [await scene.server.presses("deny:bcd2", message=card)]
        yes, no = await scene.desk.got(2)
        assert (yes.text, yes.sender, yes.chat_id, yes.press) == ("/approve bcd2", "1002", "1001", True)
        assert (no.text, no.sender, no.message_id, no.reply_to) == ("/deny bcd2", "1001", presses[-1], ident)
        await scene.server.until(lambda: scene.server.answered == presses)
        await channel.edit(ident or "", piece("Done."))
        assert scene.server.sent[0].buttons == []
        await channel.send(piece("No card", card="bad id"))
        assert scene.server.sent[-1].buttons == []


async def test_a_press_that_cannot_be_answered_counts_all_the_same(scene: Scene) -> None:
    scene.server.faults["answerCallbackQuery"].append(refuses(400, "Bad Request: query is too old"))
    async with scene.on():
        await scene.server.presses("approve:bcdf")
        assert (await scene.desk.got(1))[0].text == "/approve bcdf"


# -- the connection --


@pytest.mark.req("CHAN-07")
@pytest.mark.parametrize(
    ("token", "words"),
    [
        (None, "is not set"),
        ("hello", "not a token"),
        ("1:../../x", "not a token"),
        (f"{TOKEN}x", "not known to Telegram"),
    ],
)
async def test_a_wrong_token_is_fatal_and_named(scene: Scene, token: str | None, words: str) -> None:
    error = await failure(scene.channel(token=token), scene.desk)
    assert isinstance(error, FatalChannelError)
    assert str(error).startswith("channels.telegram.token")
    assert words in str(error)
    assert TOKEN not in str(error)


@pytest.mark.req("CHAN-07")
async def test_a_token_that_is_taken_back_while_it_runs_is_fatal(scene: Scene) -> None:
    channel = scene.channel()
    async with running(channel, scene.desk) as task:
        scene.server.faults["getUpdates"].append(refuses(401, "Unauthorized"))
        await scene.server.says("wakes it")
        with pytest.raises(FatalChannelError, match=r"channels\.telegram\.token"):
            await task


@pytest.mark.parametrize("status", [401, 404, 502])
async def test_a_page_of_something_on_the_way_is_not_telegram_refusing_the_token(scene: Scene, status: int) -> None:
    scene.server.faults["getMe"].append(page(status))
    error = await failure(scene.channel(), scene.desk)
    assert isinstance(error, ChannelError)
    assert not isinstance(error, FatalChannelError)
    assert str(status) in str(error)


@pytest.mark.req("CHAN-07")
async def test_a_second_program_with_the_token_is_told_of(scene: Scene) -> None:
    other = Scene(scene.server)
    first = scene.channel()
    async with running(first, scene.desk) as task:
        await scene.server.until(lambda: scene.server.asked("getUpdates"))
        async with other.on():
            with pytest.raises(ChannelError, match="another program asks") as caught:
                await task
            assert not isinstance(caught.value, FatalChannelError)


async def test_a_webhook_is_taken_away_and_said_to_be(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.server.webhook = "https://elsewhere.example/"
    async with scene.on():
        assert (await scene.hears("hi")).text == "hi"
    assert scene.server.webhook == ""
    assert "webhook" in caplog.text


async def test_a_server_that_says_to_wait_is_asked_later(scene: Scene) -> None:
    scene.server.faults["getUpdates"].extend([slow_down(0), refuses(429, "Too Many Requests", retry_after=0)])
    async with scene.on():
        assert (await scene.hears("hi")).text == "hi"


async def test_a_server_that_never_waits_is_not_asked_without_end(scene: Scene) -> None:
    def nothing(_: Any) -> Any:
        from aiohttp import web

        return web.json_response({"ok": True, "result": []})

    scene.server.faults["getUpdates"].extend([nothing] * 10_000)
    async with scene.on():
        await asyncio.sleep(0.1)
        assert len(scene.server.asked("getUpdates")) < 12


@pytest.mark.req("CHAN-07")
async def test_a_request_for_updates_that_hangs_ends(scene: Scene) -> None:
    async def hang(_: Any) -> Any:
        await asyncio.sleep(5)

    scene.server.faults["getUpdates"].append(hang)
    channel = TelegramChannel(
        TelegramSettings(token=TOKEN, base_url=scene.server.url),  # type: ignore[arg-type]
        scene.memory,
        pace=Pace(poll_s=0, late_s=0.1),
    )
    error = await failure(channel, scene.desk)
    assert isinstance(error, ChannelError)
    assert "was lost" in str(error)


@pytest.mark.req("CHAN-01")
@pytest.mark.parametrize("login", [(), ("me", "hush-hush")], ids=["open", "with a password"])
@pytest.mark.parametrize("kind", [http_proxy, socks_proxy], ids=["http", "socks5"])
async def test_everything_goes_through_the_proxy(scene: Scene, kind: Any, login: tuple[str, ...]) -> None:
    async with kind(*login) as proxy:
        async with scene.on(proxy=proxy.url) as channel:
            heard = await scene.hears(document=scene.server.file(b"x"))
            assert await fetched(heard) == b"x"
            await channel.send(piece("hi"))
        assert set(proxy.reached) == {f"127.0.0.1:{scene.server.port}"}
        assert len(proxy.reached) >= 3
        wrong = proxy.url.replace("hush-hush", "wrong-one")
        if login:
            error = await failure(scene.channel(proxy=wrong), scene.desk)
            assert isinstance(error, NotSentError)
            assert "wrong-one" not in str(error)


@pytest.mark.req("CHAN-01")
async def test_an_encrypted_server_is_reached_by_a_tunnel(scene: Scene) -> None:
    async with http_proxy() as proxy:
        base = scene.server.url.replace("http:", "https:")
        error = await failure(scene.channel(proxy=proxy.url, base_url=base), scene.desk)
        assert isinstance(error, NotSentError)
        assert proxy.reached == [f"127.0.0.1:{scene.server.port}"]
        assert scene.server.requests == []


async def test_a_proxy_that_is_none_is_named(scene: Scene) -> None:
    error = await failure(scene.channel(proxy="http://127.0.0.1:99999999"), scene.desk)
    assert isinstance(error, FatalChannelError)
    assert "channels.telegram.proxy" in str(error)


def test_no_library_is_imported_before_the_channel_is_run() -> None:
    heavy = ("telegram", "httpx", "aiohttp", "markdown_it")
    code = "import sys, bubbles.channels.telegram.channel; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(heavy).isdisjoint(done.stdout.split())


@pytest.mark.req("SEC-03")
async def test_the_token_is_in_no_line_of_the_log_and_in_no_error(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore", "telegram", "telegram.Bot", "telegram.ext", "asyncio"):
        logging.getLogger(name).setLevel(logging.NOTSET)
    errors: list[BaseException] = []
    async with scene.on() as channel:
        heard = await scene.hears(document=scene.server.file(b"x"))
        await fetched(heard)
        scene.server.faults["file"].append(page(500))
        scene.server.faults["sendMessage"].extend([page(502), page(200), page(404), cut, slow_down(1)])
        scene.server.faults["sendMessage"].append(refuses(400, f"no {scene.server.url}/bot{TOKEN}/sendMessage"))
        for _ in range(6):
            with pytest.raises(ChannelError) as caught:
                await channel.send(piece("x"))
            errors.append(caught.value)
        with pytest.raises(ChannelError) as caught:
            await fetched(heard)
        errors.append(caught.value)
        await channel.send(piece("x"))
        assert TOKEN not in repr(channel)
    scene.server.faults["getMe"].extend([page(502), refuses(401, f"Unauthorized {TOKEN}"), page(200)])
    errors += [await failure(scene.channel(), scene.desk) for _ in range(3)]
    await scene.server.stop()
    errors.append(await failure(scene.channel(), scene.desk))
    told = "".join("".join(traceback.format_exception(error)) + repr(error) for error in errors)
    assert TOKEN not in told
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(scene.memory.kept)
