"""The text of pages: what people read, and what is made to be hard to read."""

from __future__ import annotations

import time

import pytest

from bubbles.tools.web.html import MAX_ELEMENTS, read_html
from tests.web_servers import watching

pytestmark = pytest.mark.req("TOOL-03")

WORDS = "There was a place where every sentence was long enough to be taken for a part of a text. "
ARTICLE = f"""<!DOCTYPE html><html lang=en><head><title>The  title
of it</title><style>p {{ color: red }}</style><script>var hidden = "<p>no</p>";</script></head><body>
<header><nav><ul><li><a href=/home>Home</a><li><a href="about.html">About us</a></ul></nav></header>
<main><article><h1>A heading</h1><p>{WORDS * 3}</p><h2>Below</h2>
<p>{WORDS * 2} <a href="../more?x=1&amp;y=2">more</a></p>
<ul><li>first thing of a list<li>second thing of it</ul><pre><code>def f():
    return 1
</code></pre><table><tr><th>Name</th><th>Size</th></tr><tr><td>one</td><td>1</td></tr></table></article></main>
<footer>Imprint <a href="javascript:x()">x</a> <a href="#top">top</a></footer></body></html>"""


def test_the_main_text_is_told_from_menus_and_scripts() -> None:
    reading = read_html(ARTICLE, "https://example.com/a/b", links=False)
    assert reading.title == "The title of it"
    assert reading.remark == ""
    assert WORDS.strip() in reading.text
    assert "# A heading" in reading.text
    assert "- first thing of a list" in reading.text
    assert "    return 1" in reading.text
    assert "| one | 1 |" in reading.text
    for left_out in ("About us", "Imprint", "hidden", "color"):
        assert left_out not in reading.text


def test_with_links_all_of_the_page_is_there_with_whole_addresses() -> None:
    text = read_html(ARTICLE, "https://example.com/a/b", links=True).text
    assert "- Home <https://example.com/home>\n- About us <https://example.com/a/about.html>" in text
    assert "more <https://example.com/more?x=1&y=2>" in text
    assert "Imprint x top" in text
    assert "def f():\n    return 1" in text
    assert "Name | Size" in text
    assert "hidden" not in text
    assert "\n\n\n" not in text


def test_a_page_without_a_main_text_is_shown_whole() -> None:
    rows = "".join(f"<div><a href=/n{number}>Item {number}</a></div>" for number in range(100))
    reading = read_html(f"<html><body>{rows}</body></html>", "https://example.com/", links=False)
    assert "Item 0" in reading.text
    assert "Item 99" in reading.text


@pytest.mark.parametrize(
    "html", ["", " ", "<html></html>", "<script>all()</script>", "<!-- -->", "\0", "<", "<?x", "</p>"]
)
def test_a_page_without_text_says_so(html: str) -> None:
    reading = read_html(html, "https://example.com/", links=False)
    assert reading.text.strip("\\<") == ""
    assert reading.text or "scripts" in reading.remark


@pytest.mark.parametrize(
    "html",
    [
        "<p>Grüße € 日本 \U0001f600",
        "<html><head><meta charset=latin-1></head><body><p>Grüße € 日本 \U0001f600",
        "<p>Gr&uuml;&szlig;e &euro; &#x65e5;&#26412; &#128512;",
    ],
)
def test_characters_stay_what_they_are_whatever_the_page_says_of_itself(html: str) -> None:
    assert read_html(html, "https://example.com/", links=True).text == "Grüße € 日本 \U0001f600"


def test_what_no_document_may_hold_is_dropped() -> None:
    html = (
        '<p\x01 class="a\x02&#3;b" id="&#xD800;">one&#1;\x0b\ud800&#xFFFF; <a"b c=d>two</a"b> <x:y z:w=1>three</x:y>'
        + WORDS
    )
    for links in (False, True):
        text = read_html(html, "https://example.com/", links=links).text
        assert "one" in text
        assert "two" in text
        assert "three" in text
        text.encode()


HOSTILE = {
    "nested blocks": "<div>" * 100_000 + "text",
    "nested marks": "<p>" + "<b>" * 100_000 + "text",
    "nested tables": "<table><tr><td>" * 20_000 + "text",
    "nested lists": "<ul><li>" * 50_000 + "text",
    "marks across each other": "<a><b><i>" * 30_000 + "text",
    "attributes": "<p " + " ".join(f"a{number}=1" for number in range(200_000)) + ">text",
    "one attribute": "<p class='" + "a" * 3_000_000 + "'>text",
    "one name": "<" + "a" * 3_000_000 + ">text",
    "cells of one row": "<table><tr>" + "<td>cell</td>" * 100_000 + "text",
    "paragraphs": "<p>a" * 100_000 + "<p>text",
    "line breaks": "a<br>" * 100_000 + "text",
    "comments": "text" + "<!--" * 300_000,
    "declarations": "text" + "<![CDATA[" * 100_000 + "<!DOCTYPE" * 100_000,
    "angles": "text " + "<" * 500_000,
    "blanks": "text" + " " * 3_000_000 + "x",
    "blanks as they are": "<pre>text" + " " * 1_000_000 + "x" + "\n" * 1_000_000 + "</pre>",
    "blanks and lines": "text" + " \n" * 1_000_000,
    "one word": "text" + "a" * 3_000_000,
    "entities": "text" + "&amp;" * 300_000,
    "half an entity": "text&" + "a" * 1_000_000,
    "entities of entities": '<!DOCTYPE x [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;">]><p>text &c;',
    "a file": '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><p>text &a;',
    "data for machines": "<script type='application/ld+json'>" + '{"a":[' * 50_000 + "</script><p>text",
    "a wide cell": "<p>text<table><tr><td colspan=999999999 rowspan=999999999>a</table>",
    # For each of these paragraphs jusText goes through all of them: 20 s of work.
    "short paragraphs": "<label>\n</label><dl id=comments>text</dl><dd class=x>x</dd>" * 6_400,
    "links": "<p>text" + "<a href=/x>link</a> " * 30_000,
    "a link in brackets": "<a href='http://[::1'>text</a>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_page_takes_seconds_at_most_and_opens_nothing(name: str) -> None:
    with watching() as opened:
        begun = time.thread_time()
        reading = read_html(f"<html><body>{HOSTILE[name]}", "https://example.com/", links=name.startswith("a link"))
        took = time.thread_time() - begun
    assert opened == []
    assert took < 5, f"{took:.1f} s"
    assert "text" in reading.text or name == "nested tables"
    assert "root:" not in reading.text


def test_deep_tags_that_are_never_closed_end_at_the_deadline_with_what_there_is() -> None:
    html = "<p>text" + "<div>" * 30_000 + "</span>" * 400_000
    begun = time.thread_time()
    reading = read_html(html, "https://example.com/", links=True, read_s=0.1)
    assert time.thread_time() - begun < 2
    assert reading.text == "text"
    assert "takes long" in reading.remark


def test_a_page_of_more_elements_than_a_text_has_is_shown_whole() -> None:
    reading = read_html("<p>word" * (MAX_ELEMENTS + 1), "https://example.com/", links=False)
    assert reading.text.count("word") == MAX_ELEMENTS + 1
    assert "all of it" in reading.remark
