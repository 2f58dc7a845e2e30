"""Rule files on disk: which count, in which order, and what is said of those that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bubbles.config.load import load_settings
from bubbles.controller.policy.contract import Effect, Layer
from bubbles.controller.policy.rules import resolve_precedence
from bubbles.controller.policy.rules.parse import MAX_BYTES
from bubbles.controller.rulefiles import MAX_FILES, LoadedRules, RuleShelf, load_rulebook, rule_layers
from bubbles.errors import ConfigError

FORBID = 'prefix_rule(pattern=["rm"], decision="forbidden")\n'
ALLOW = 'prefix_rule(pattern=["rm"])\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "rules"
    made.mkdir()
    (made / "good.rules").write_text(FORBID)
    return made


def load(folder: Path) -> LoadedRules:
    return load_rulebook([(Layer.ASSISTANT, folder)])


def only_warning(loaded: LoadedRules) -> str:
    (warning,) = loaded.warnings
    return str(warning)


def effect(loaded: LoadedRules, *words: str) -> Effect | None:
    book = loaded.rulebook
    return resolve_precedence((*book.allows(words), *book.restrictions(words)))[0]


@pytest.mark.req("DEC-05")
def test_files_load_in_the_order_of_their_bytes_and_only_direct_children(folder: Path) -> None:
    for name in ("b.rules", "B.rules", "a.rules", "é.rules", ".hidden.rules"):
        (folder / name).write_text(f"prefix_rule(pattern={[name]!r})\n")
    for name in ("x.rules.bak", "rules", ".rules", "y.RULES", ".#a.rules"):
        (folder / name).write_text("not ( a rule file\n")
    (folder / "deeper").mkdir()
    (folder / "deeper" / "z.rules").write_text("not ( a rule file\n")
    loaded = load(folder)
    (layer,) = loaded.layers
    names = [Path(file).name for file in layer.files]
    assert names == [".hidden.rules", "B.rules", "a.rules", "b.rules", "good.rules", "é.rules"]
    assert [rule.pattern[0][0] for rule in loaded.rulebook.rules] == [*names[:4], "rm", names[5]]
    assert (layer.count, layer.warnings, layer.path) == (6, (), str(folder))
    assert loaded.loaded_at.tzinfo is not None


def test_a_rule_names_the_file_it_stands_in(folder: Path) -> None:
    (rule,) = load(folder).rulebook.rules
    assert (rule.file, rule.line, rule.layer) == (str(folder / "good.rules"), 1, Layer.ASSISTANT)


def test_a_link_to_a_file_is_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(ALLOW)
    (folder / "link.rules").symlink_to(tmp_path / "elsewhere")
    assert len(load(folder).rulebook.rules) == 2


def test_a_directory_that_does_not_exist_is_an_empty_layer(tmp_path: Path) -> None:
    loaded = load(tmp_path / "none")
    (layer,) = loaded.layers
    assert (layer.files, layer.count, layer.warnings) == ((), 0, ())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "it is a directory, not a file"),
        (os.mkfifo, "it is a pipe, not a file"),
        (lambda path: path.symlink_to("nowhere"), "the link to nowhere leads nowhere"),
        (lambda path: path.symlink_to(path), "it cannot be opened"),
        (lambda path: path.symlink_to("/dev/null"), "it is a device or socket, not a file"),
        (lambda path: path.write_bytes(b"#" * (MAX_BYTES + 1)), f"it is larger than {MAX_BYTES:,} bytes"),
        (lambda path: path.write_bytes(ALLOW.encode("utf-16")), "it is UTF-16 text"),
    ],
)
def test_what_is_no_readable_file_is_one_warning_and_the_rest_counts(folder: Path, make: object, said: str) -> None:
    bad = folder / "bad.rules"
    make(bad)  # type: ignore[operator]
    loaded = load(folder)
    warning = only_warning(loaded)
    assert warning.startswith(f"{bad}: None of its rules is in force, restrictions included: {said}")
    assert warning.endswith(".")
    assert effect(loaded, "rm") is Effect.FORBIDDEN


def test_bytes_that_are_not_utf8_cost_their_statement_only(folder: Path) -> None:
    (folder / "latin.rules").write_bytes(b'# caf\xe9\nprefix_rule(pattern=["caf\xe9"])\nprefix_rule(pattern=["ls"])\n')
    loaded = load(folder)
    assert [warning.line for warning in loaded.warnings] == [1, 2]
    assert effect(loaded, "ls") is Effect.ALLOW


def test_a_file_in_place_of_the_directory_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "rules").write_text(ALLOW)
    assert only_warning(load(tmp_path / "rules")) == (
        f"{tmp_path / 'rules'}: It is not a directory: put the rule files in one."
    )


def test_a_directory_that_cannot_be_read_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "rules").symlink_to("rules")  # root may read all but this
    assert "The directory cannot be read" in only_warning(load(tmp_path / "rules"))


def test_too_many_files_are_one_warning(folder: Path) -> None:
    for number in range(MAX_FILES):
        (folder / f"{number:04}.rules").write_text("")
    loaded = load(folder)
    assert f"those after {MAX_FILES - 1:04}.rules are not in force" in only_warning(loaded)
    assert len(loaded.layers[0].files) == MAX_FILES


def test_more_than_a_directory_may_hold_is_a_warning_for_each_further_file(folder: Path) -> None:
    for number in range(5):
        (folder / f"{number}.rules").write_bytes(b"#" * MAX_BYTES)
    assert "with it the directory would have more than" in str(load(folder).warnings[0])


# -- layers -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("DEC-05")
def test_the_layers_lie_where_the_settings_say(tmp_path: Path) -> None:
    settings = load_settings({"HOME": str(tmp_path)})
    assert rule_layers(settings) == (
        (Layer.GLOBAL, tmp_path / ".codex" / "rules"),
        (Layer.ASSISTANT, tmp_path / ".bubbles" / "rules"),
    )
    assert rule_layers(settings, "cli_a")[2] == (Layer.SESSION, tmp_path / ".bubbles" / "session_rules" / "cli_a")
    settings = load_settings({"HOME": str(tmp_path), "CODEX_HOME": "~/c", "BUBBLES_HOME": str(tmp_path / "b")})
    assert [str(path) for _, path in rule_layers(settings)] == [f"{tmp_path}/c/rules", f"{tmp_path}/b/rules"]


@pytest.mark.parametrize("key", ["", ".", "..", "../x", "a/b", "a\0b"])
def test_a_key_that_would_leave_the_directory_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match="not the key of a session"):
        rule_layers(load_settings({"HOME": str(tmp_path)}), key)


@pytest.mark.req("DEC-05", "DEC-07")
def test_a_session_overrides_the_assistant_and_that_the_world(tmp_path: Path) -> None:
    settings = load_settings({"HOME": str(tmp_path)})
    world, assistant, session = (path for _, path in rule_layers(settings, "s"))
    for path, text in ((world, FORBID), (assistant, ALLOW), (session, FORBID)):
        path.mkdir(parents=True)
        (path / "x.rules").write_text(text)
    shelf = RuleShelf(lambda key: rule_layers(settings, key))
    assert effect(shelf.rulebook("s"), "rm") is Effect.FORBIDDEN
    assert effect(shelf.rulebook("other"), "rm") is Effect.ALLOW
    assert effect(shelf.rulebook(), "rm") is Effect.ALLOW
    assert [layer.count for layer in shelf.rulebook("s").layers] == [1, 1, 1]


# -- the shelf --------------------------------------------------------------------------------------------------------


@pytest.mark.req("DEC-05")
def test_a_change_is_seen_and_what_has_not_changed_is_kept(folder: Path) -> None:
    shelf = RuleShelf(lambda _: [(Layer.ASSISTANT, folder)])
    first = shelf.rulebook()
    assert shelf.rulebook() is first
    (folder / "more.rules").write_text('prefix_rule(pattern=["ls"])\n')
    second = shelf.rulebook()
    assert effect(second, "ls") is Effect.ALLOW
    assert second.rulebook.rules[0] is first.rulebook.rules[0]
    (folder / "more.rules").write_text('prefix_rule(pattern=["ll"])\n')
    assert effect(shelf.rulebook(), "ls") is None
    (folder / "more.rules").rename(folder / "less.rule")
    assert len(shelf.rulebook().rulebook.rules) == 1
    (folder / "good.rules").unlink()
    assert shelf.rulebook().rulebook.rules == ()
