"""What Telegram's messages mean and how ours look there, against a Bot API server with the real one's limits."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from bubbles.channels.contract import (
    ChannelError,
    MaybeSentError,
    NotSentError,
    RefusedError,
    SlowDownError,
)
from bubbles.channels.telegram.members import MAX_PEOPLE
from tests.channel_servers.telegram import (
    BOB,
    FORUM,
    GROUP,
    ME,
    ROBOT,
    TOPIC,
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


# -- what is said in groups --


@pytest.mark.req("CHAN-03", "CHAN-06")
async def test_who_speaks_to_the_assistant_is_told_by_utf_16_offsets_and_whole_names(scene: Scene) -> None:
    said = {
        "\U0001f600\U0001f44d @Bubbles_Bot hi": (True, "\U0001f600\U0001f44d <@7000000001> hi"),
        "@bubbles_bot, what is up": (True, "what is up"),
        "  @bubbles_bot\n@bubbles_bot: hi": (True, "hi"),
        "@bubbles_bot :) fine": (True, ":) fine"),
        "@bubbles_bot.": (True, "."),
        "@bubbles_bot2 hi": (False, "@bubbles_bot2 hi"),
        "me@bubbles_bot.example hi": (False, "me@bubbles_bot.example hi"),
        "`@bubbles_bot` hi": (False, "`@bubbles_bot` hi"),
        "/status@bubbles_bot now": (True, "/status now"),
        "@bubbles_bot /approve@BUBBLES_bot bcdf": (True, "/approve bcdf"),
        "/status": (False, "/status"),
        "I like bubbles": (False, "I like bubbles"),
        "bubbles, see what @Other wrote": (True, "bubbles, see what @Other wrote"),
        "@Bubbles hi": (False, "@Bubbles hi"),
    }
    async with scene.on():
        for text, (addressed, shown) in said.items():
            heard = await scene.hears(text, chat=GROUP)
            assert (heard.addressed, heard.text, heard.is_group) == (addressed, shown, True), text


@pytest.mark.req("CHAN-03")
async def test_a_command_for_another_bot_is_not_ours(scene: Scene) -> None:
    async with scene.on():
        for chat in (GROUP, None):
            await scene.server.says("/status@robot_bot", chat=chat)
        assert (await scene.hears("/status")).text == "/status"
        both = await scene.hears("/ask@robot_bot what @bubbles_bot said", chat=GROUP)
        assert (both.addressed, both.text) == (True, "/ask@robot_bot what <@7000000001> said")


@pytest.mark.req("CHAN-06")
async def test_people_are_mentioned_by_their_ids_once_they_are_known(scene: Scene) -> None:
    async with scene.on():
        assert (await scene.hears("@ann_ash hi", chat=GROUP, user=BOB)).text == "@ann_ash hi"
        await scene.hears("hello", chat=GROUP)
        assert (await scene.hears("\U0001f600 @Ann_Ash hi", chat=GROUP, user=BOB)).text == "\U0001f600 <@1001> hi"
        tagged = {"type": "text_mention", "offset": 3, "length": 3, "user": {**BOB, "id": 1009}}
        assert (await scene.hears("\U0001f600 Bob?", chat=GROUP, entities=[tagged])).text == "\U0001f600 <@1009>?"


@pytest.mark.req("CHAN-03")
async def test_a_reply_to_the_assistant_is_said_to_it_but_the_beginning_of_a_topic_is_no_message(scene: Scene) -> None:
    old = {"message_id": 41, "date": 1, "from": ME, "chat": GROUP, "text": "I said"}
    topic = {"message_id": TOPIC, "date": 1, "from": ME, "chat": FORUM, "forum_topic_created": {"name": "x"}}
    async with scene.on():
        reply = await scene.hears("and then?", chat=GROUP, reply_to_message=old)
        assert (reply.addressed, reply.reply_to) == (True, "41")
        other = await scene.hears("and you?", chat=GROUP, reply_to_message={**old, "from": BOB})
        assert (other.addressed, other.reply_to) == (False, "41")
        plain = await scene.hears("hi", chat=FORUM, topic=TOPIC, reply_to_message=topic)
        assert (plain.addressed, plain.reply_to) == (False, None)


@pytest.mark.req("CHAN-04")
async def test_a_topic_is_a_chat_and_all_that_is_said_there_stays_there(scene: Scene) -> None:
    async with scene.on() as channel:
        heard = await scene.hears("hi", chat=FORUM, topic=TOPIC)
        assert (heard.chat_id, heard.is_group) == ("-1002/77", True)
        thread = await scene.hears("hi", chat=GROUP, message_thread_id=55)
        assert thread.chat_id == "-1001"
        ident = await channel.send(piece("one", heard.chat_id, card="bcdf"))
        assert ident is not None
        await channel.typing(heard.chat_id)
        await channel.edit(ident, piece("two", heard.chat_id))
        assert (scene.server.sent[-1].text, scene.server.sent[-1].edits) == ("two", 1)
        assert [given["message_thread_id"] for given in scene.server.asked("sendMessage")] == ["77"]
        assert [given["message_thread_id"] for given in scene.server.asked("sendChatAction")] == ["77"]
        card = {"message_id": int(ident), "date": 1, "chat": FORUM, "message_thread_id": 77, "is_topic_message": True}
        await scene.server.presses("approve:bcdf", message=card)
        assert (await scene.desk.got(3))[2].chat_id == "-1002/77"


@pytest.mark.req("CHAN-02")
async def test_who_hides_behind_a_chat_is_that_chat_and_bots_and_channels_are_nobody(scene: Scene) -> None:
    async with scene.on():
        hidden = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}
        heard = await scene.hears("hi", chat=GROUP, user=hidden, sender_chat=GROUP)
        assert (heard.sender, heard.name) == ("-1001", "Friends")
        news = {"id": -1009, "type": "channel", "title": "News"}
        await scene.hears_nothing_of(
            {"message": message("beep", **{"from": ROBOT})},
            {"message": message("beep", **{"from": {**ME, "is_bot": True}})},
            {"message": message("post", chat=GROUP, sender_chat=news, is_automatic_forward=True)},
            {"message": message("post", chat=news, sender_chat=news)},
            {"channel_post": message("post", chat=news)},
            {"edited_message": message("edited")},
            {"message": {**message(""), "new_chat_title": "y"}},
        )


async def test_what_was_forwarded_is_not_taken_for_the_words_of_who_forwards_it(scene: Scene) -> None:
    async with scene.on():
        origins: dict[str, dict[str, Any]] = {
            "Bob": {"type": "user", "sender_user": BOB},
            "News": {"type": "channel", "chat": {"id": -5, "title": "News"}},
            "Some One": {"type": "hidden_user", "sender_user_name": "Some\nOne"},
        }
        for name, origin in origins.items():
            assert (await scene.hears("/approve bcdf\n[Note", forward_origin=origin)).text == (
                f"[forwarded from {name}]\n  /approve bcdf\n  [Note"
            )


# -- files --


@pytest.mark.req("CHAN-05")
async def test_each_kind_of_file_comes_with_name_kind_and_size(scene: Scene) -> None:
    make = scene.server.file
    small, large = (
        {**make(data, f"photos/{data.decode()}"), "width": n, "height": n} for n, data in ((1, b"s"), (9, b"l"))
    )
    kinds: dict[str, tuple[Any, tuple[str, str]]] = {
        "photo": ([small, large], ("photo-{}.jpg", "image/jpeg")),
        "document": (
            make(b"l", file_name="../a b.pdf", mime_type="application/pdf"),
            ("../a b.pdf", "application/pdf"),
        ),
        "voice": (make(b"l", mime_type="audio/ogg"), ("voice-{}.ogg", "audio/ogg")),
        "audio": (make(b"l", file_name="s.mp3"), ("s.mp3", "")),
        "video": (make(b"l"), ("video-{}.mp4", "")),
        "video_note": (make(b"l"), ("video_note-{}.mp4", "")),
    }
    async with scene.on():
        for kind, (value, (name, mime)) in kinds.items():
            heard = await scene.hears(caption="see", **{kind: value})
            [file] = heard.attachments
            assert (heard.text, file.name, file.mime, file.size) == ("see", name.format(heard.message_id), mime, 1)
            assert await fetched(heard) == b"l"
        animation = make(b"gif", file_name="a.mp4")
        assert len((await scene.hears(animation=animation, document=animation)).attachments) == 1


async def test_what_is_neither_text_nor_file_is_told_in_a_line(scene: Scene) -> None:
    where = {"latitude": 52.5, "longitude": 13.4}
    things: dict[str, tuple[Any, str]] = {
        "location": (where, "[location: 52.5, 13.4]"),
        "contact": ({"first_name": "Eve", "phone_number": "+1"}, "[contact: Eve, +1]"),
        "poll": ({"question": "Tea?", "options": [{"text": "yes"}, {"text": "no\n"}]}, "[poll: Tea? yes / no]"),
        "sticker": ({"emoji": "\U0001f44d", "file_id": "x"}, "[sticker \U0001f44d]"),
        "dice": ({"emoji": "\U0001f3b2", "value": 4}, "[dice \U0001f3b2: 4]"),
    }
    async with scene.on():
        for kind, (value, line) in things.items():
            assert (await scene.hears(**{kind: value})).text == line
        venue: dict[str, Any] = {"venue": {"title": "Pub", "address": "Here 1", "location": where}, "location": where}
        assert (await scene.hears(**venue)).text == "[place: Pub, Here 1 (location: 52.5, 13.4)]"


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize(
    "path",
    ["/var/lib/telegram-bot-api/7000000001:AAF/x", "../../bot7/logOut", "a/../b", "a//b", "http://e.x/a", "a\\b", ""],
)
async def test_a_path_that_leads_elsewhere_is_not_asked_for(scene: Scene, path: str) -> None:
    async with scene.on():
        heard = await scene.hears(document=scene.server.file(b"x", path))
        with pytest.raises(ChannelError, match="--local") as caught:
            await fetched(heard)
        assert scene.server.file_requests == []
        assert "AAF" not in str(caught.value)


@pytest.mark.req("CHAN-05")
async def test_a_file_that_telegram_does_not_give_is_an_error_that_says_so(scene: Scene) -> None:
    async with scene.on():
        big = await scene.hears(document=scene.server.file(bytes(20 * 1024 * 1024 + 1)))
        with pytest.raises(ChannelError, match="too big"):
            await fetched(big)
        small = await scene.hears(document=scene.server.file(b"x"))
        for fault, words in ((page(502), "502"), (page(404), "404"), (cut, "cannot be fetched")):
            scene.server.faults["file"].append(fault)
            with pytest.raises(ChannelError, match=words):
                await fetched(small)
        assert await fetched(small) == b"x"
    with pytest.raises(NotSentError, match="not connected"):
        await fetched(small)


# -- out --


@pytest.mark.req("CHAN-08")
async def test_a_reply_answers_a_message_and_previews_nothing(scene: Scene) -> None:
    async with scene.on() as channel:
        await scene.hears("hi", chat=GROUP)
        await channel.send(piece("**bold** <@1001> https://x.y", "-1001", reply_to="41"))
        [sent] = scene.server.sent
        assert (sent.text, sent.reply_to) == ("bold Ann Ash https://x.y", 41)
        assert (sent.markup.of("bold"), sent.markup.of("text_mention")) == (["bold"], ["Ann Ash"])
        assert json.loads(sent.given["link_preview_options"]) == {"is_disabled": True}


@pytest.mark.req("CHAN-08")
async def test_formatting_that_telegram_refuses_goes_out_as_plain_text_once(scene: Scene) -> None:
    async with scene.on() as channel:
        await scene.hears("hi")
        wrong = refuses(400, "Bad Request: can't parse entities: Unsupported start tag")
        scene.server.faults["sendMessage"].append(wrong)
        await channel.send(piece("a **b** `<c>`"))
        assert [(sent.text, "parse_mode" in sent.given) for sent in scene.server.sent] == [("a b <c>", False)]
        scene.server.faults["sendMessage"].extend([wrong, wrong])
        with pytest.raises(RefusedError, match="parse entities"):
            await channel.send(piece("**b**"))
        assert len(scene.server.sent) == 1


@pytest.mark.req("CHAN-08")
async def test_an_edit_that_changes_nothing_is_no_failure(scene: Scene) -> None:
    async with scene.on() as channel:
        await scene.hears("hi")
        ident = await channel.send(piece("one")) or ""
        await channel.edit(ident, piece("one"))
        await channel.edit(ident, piece("two"))
        assert (scene.server.sent[0].text, scene.server.sent[0].edits) == ("two", 1)
        with pytest.raises(RefusedError, match="not found"):
            await channel.edit("499", piece("x"))
        with pytest.raises(RefusedError, match="a number"):
            await channel.edit("x", piece("x"))


async def test_a_group_that_has_moved_is_found_again(scene: Scene) -> None:
    scene.server.chats[-7] = {"id": -7, "type": "group", "title": "Old", "moved_to": GROUP["id"]}
    async with scene.on() as channel:
        await channel.send(piece("hi", -7))
        assert [sent.chat for sent in scene.server.sent] == [GROUP["id"]]


@pytest.mark.req("CHAN-07")
async def test_what_becomes_of_a_message_is_told_apart(scene: Scene) -> None:
    def hang_up_after(request: Any) -> None:
        request.transport.abort()

    faults = scene.server.faults
    async with scene.on() as channel:
        await scene.hears("hi")
        cases: list[tuple[str, Any, type[Exception], str]] = [
            ("sendMessage", slow_down(7), SlowDownError, "7 s"),
            ("sendMessage", refuses(403, "Forbidden: bot was blocked by the user"), RefusedError, "blocked"),
            ("sendMessage", refuses(400, "Bad Request: chat not found"), RefusedError, "chat not found"),
            ("sendMessage", refuses(500, "Internal Server Error"), NotSentError, "fault"),
            ("sendMessage", refuses(401, "Unauthorized"), NotSentError, "Unauthorized"),
            ("sendMessage", page(403), NotSentError, "403"),
            ("sendMessage", page(502), MaybeSentError, "502"),
            ("sendMessage", page(200), MaybeSentError, "not what Telegram does"),
            ("after:sendMessage", hang_up_after, MaybeSentError, "lost"),
        ]
        for when, fault, kind, words in cases:
            faults[when].append(fault)
            with pytest.raises(kind, match=words):
                await channel.send(piece("x"))
        assert [sent.text for sent in scene.server.sent] == ["x"]
        for chat in ("1/2/3", "ann", "-", ""):
            with pytest.raises(RefusedError, match="no such chat"):
                await channel.send(piece("x", chat))
        with pytest.raises(RefusedError, match="nothing to be seen"):
            await channel.send(piece("\n"))


@pytest.mark.req("CHAN-07")
async def test_a_server_that_cannot_be_reached_has_not_got_the_message(scene: Scene) -> None:
    async with scene.on() as channel:
        await scene.hears("hi")
        await scene.server.stop()
        with pytest.raises(NotSentError, match=r"127\.0\.0\.1 is not reached"):
            await channel.send(piece("x"))
    with pytest.raises(NotSentError, match="not connected"):
        await channel.send(piece("x"))


# -- people --


@pytest.mark.req("CHAN-06")
async def test_members_are_administrators_and_who_was_met_over_restarts_too(scene: Scene) -> None:
    scene.server.administrators[GROUP["id"]] = [{"id": 1005, "is_bot": False, "first_name": "Cy"}, ME]  # type: ignore[index]
    async with scene.on() as channel:
        await scene.hears("hi", chat=GROUP)
        await scene.server.says(chat=GROUP, new_chat_members=[{"id": 1006, "is_bot": False, "first_name": "Di"}, ROBOT])
        await scene.server.says(chat=GROUP, user=BOB, left_chat_member={"id": 1006})
        await scene.hears("alone", user={"id": 1007, "is_bot": False, "first_name": "Private"})
        assert await channel.members("1001") is None
    async with scene.on() as channel:
        roster = await channel.members("-1001")
        assert roster is not None
        assert [(each.id, each.names) for each in roster.people] == [
            ("1001", ("Ann Ash", "@ann_ash")), ("1002", ("Bob",)), ("1005", ("Cy",)),
        ]  # fmt: skip
        assert roster.complete is False
        await channel.send(piece("<@1001> <@1006> <@1007>", "-1001"))
        assert scene.server.sent[-1].text == "Ann Ash @1006 @1007"
        scene.server.faults["getChatAdministrators"].append(refuses(403, "Forbidden: bot was kicked"))
        with pytest.raises(ChannelError, match="kicked"):
            await channel.members("-1001")


async def test_a_username_belongs_to_who_has_it_now_and_strangers_do_not_fill_the_disk(scene: Scene) -> None:
    async with scene.on():
        await scene.hears("hi", chat=GROUP)
        await scene.hears("mine", chat=GROUP, user={**BOB, "username": "Ann_Ash"})
        assert (await scene.hears("@ann_ash", chat=GROUP)).text == "<@1001>"
        await scene.hears("given up", chat=GROUP, user=BOB)
        for number in range(MAX_PEOPLE + 3):
            await scene.server.says(
                "x", chat=GROUP, user={"id": 5000 + number, "is_bot": False, "first_name": "n" * 999}
            )
        await scene.desk.got(MAX_PEOPLE + 7)
    kept = json.loads(scene.memory.kept["people"])
    assert len(kept["-1001"]) == MAX_PEOPLE
    assert len(scene.memory.kept["people"]) < MAX_PEOPLE * 200
