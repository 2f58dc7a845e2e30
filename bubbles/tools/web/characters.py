"""Which characters the bytes of a page are."""

from __future__ import annotations

import codecs
import re

_IN_HEADER = re.compile(r"charset\s{0,4}=\s{0,4}[\"']?([\w.:-]{1,40})", re.IGNORECASE | re.ASCII)
_IN_HTML = re.compile(rb"<meta\s[^>]{0,500}?charset\s{0,4}=\s{0,4}[\"']?\s{0,4}([\w.:-]{1,40})", re.IGNORECASE)
_IN_XML = re.compile(rb"<\?xml\s[^>]{0,200}?encoding\s{0,4}=\s{0,4}[\"']([\w.:-]{1,40})")
_DECLARED_WITHIN = 2_048

# Labels as browsers take them (WHATWG Encoding). A table: Python would load a module by a name that a server chose.
CODECS = {
    label: codec
    for codec, labels in {
        "utf-8": "utf-8 utf8 unicode-1-1-utf-8",
        "utf-16-le": "utf-16 utf-16le ucs-2 unicode",
        "utf-16-be": "utf-16be",
        "cp1252": "windows-1252 cp1252 iso-8859-1 iso8859-1 iso_8859-1 latin1 latin-1 l1 us-ascii ascii",
        "cp1250": "windows-1250 cp1250 x-cp1250",
        "cp1251": "windows-1251 cp1251 x-cp1251",
        "cp1253": "windows-1253 cp1253",
        "cp1254": "windows-1254 cp1254 iso-8859-9 latin5",
        "cp1255": "windows-1255 cp1255",
        "cp1256": "windows-1256 cp1256",
        "cp1257": "windows-1257 cp1257",
        "cp1258": "windows-1258 cp1258",
        "cp874": "windows-874 iso-8859-11 tis-620",
        "cp866": "ibm866 cp866 866",
        "iso8859-2": "iso-8859-2 latin2",
        "iso8859-3": "iso-8859-3",
        "iso8859-4": "iso-8859-4",
        "iso8859-5": "iso-8859-5",
        "iso8859-6": "iso-8859-6",
        "iso8859-7": "iso-8859-7",
        "iso8859-8": "iso-8859-8 iso-8859-8-i",
        "iso8859-10": "iso-8859-10",
        "iso8859-13": "iso-8859-13",
        "iso8859-14": "iso-8859-14",
        "iso8859-15": "iso-8859-15 latin9",
        "iso8859-16": "iso-8859-16",
        "koi8-r": "koi8-r koi8",
        "koi8-u": "koi8-u",
        "mac-roman": "macintosh x-mac-roman",
        "gb18030": "gb18030 gbk gb2312 x-gbk",
        "big5hkscs": "big5 big5-hkscs x-x-big5",
        "euc-jp": "euc-jp x-euc-jp",
        "iso2022-jp": "iso-2022-jp",
        "cp932": "shift_jis shift-jis sjis x-sjis windows-31j",
        "cp949": "euc-kr ks_c_5601-1987 windows-949",
    }.items()
    for label in labels.split()
}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def of_header(content_type: str) -> str | None:
    """The codec that a Content-Type names."""
    found = _IN_HEADER.search(content_type[:500])
    return CODECS.get(found[1].lower()) if found else None


def decoded(data: bytes, charset: str | None) -> str:
    """By its mark, else by ``charset``, else by what stands at its beginning, else UTF-8. Strangers become U+FFFD."""
    for mark, codec in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(codec, "replace")
    return data.decode(charset or _declared(data[:_DECLARED_WITHIN]) or "utf-8", "replace")


def _declared(head: bytes) -> str | None:
    found = _IN_XML.match(head) or _IN_HTML.search(head)
    codec = CODECS.get(found[1].decode("ascii", "replace").lower()) if found else None
    return "utf-8" if codec is not None and codec.startswith("utf-16") else codec  # it could be read: so it is not
