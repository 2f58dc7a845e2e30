"""Settings from file and environment, and what a person reads when one is wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bubbles.config.load import load_settings
from bubbles.config.schema import Settings
from bubbles.errors import ConfigError

pytestmark = pytest.mark.req("CFG-01")


def loaded(home: Path, config: object = None, **variables: str) -> Settings:
    if config is not None:
        (home / ".bubbles").mkdir(exist_ok=True)
        text = config if isinstance(config, str) else json.dumps(config)
        file = home / ".bubbles" / "config.json"
        file.touch(mode=0o600)
        file.write_text(text)
    return load_settings({"HOME": str(home), **variables})


def refused(home: Path, config: object = None, **variables: str) -> str:
    with pytest.raises(ConfigError) as caught:
        loaded(home, config, **variables)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.exit_code == 2
    return message


def sandbox(**fields: object) -> dict[str, object]:
    return {"tools": {"sandbox": fields}}


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    assert settings.data_dir == tmp_path / ".bubbles"
    assert settings.person_home == tmp_path
    assert settings.tools.sandbox.backend == "local"
    assert settings.tools.sandbox.network is None
    assert settings.tools.sandbox.docker.image == "bubbles-sandbox:latest"
    assert settings.warnings == ()


def test_loading_makes_nothing_on_disk(tmp_path: Path) -> None:
    loaded(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_bubbles_home_moves_the_data_directory(tmp_path: Path) -> None:
    assert loaded(tmp_path, BUBBLES_HOME="~/elsewhere").data_dir == tmp_path / "elsewhere"
    assert loaded(tmp_path, BUBBLES_HOME=str(tmp_path / "x" / ".." / "y")).data_dir == tmp_path / "y"
    assert loaded(tmp_path, BUBBLES_HOME="relative").data_dir == Path.cwd() / "relative"


@pytest.mark.parametrize("spelling", ["toolDirs", "tool_dirs"])
def test_names_may_be_camel_or_snake_case(tmp_path: Path, spelling: str) -> None:
    settings = loaded(tmp_path, sandbox(**{spelling: ["/opt/tools", "~/bin"]}))
    assert settings.tools.sandbox.tool_dirs == (Path("/opt/tools"), tmp_path / "bin")
    assert settings.warnings == ()


def test_limits_are_bytes_or_text_with_a_unit(tmp_path: Path) -> None:
    limits = loaded(tmp_path, sandbox(limits={"memoryBytes": "512MiB", "pids": 64, "cpus": 0.5})).tools.sandbox.limits
    assert (limits.memory_bytes, limits.pids, limits.cpus) == (512 * 2**20, 64, 0.5)


def test_a_variable_overrides_the_file(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        sandbox(backend="docker", network="full"),
        BUBBLES_TOOLS__SANDBOX__BACKEND="bubblewrap",
        BUBBLES_TOOLS__SANDBOX__LIMITS__PIDS="99",
        BUBBLES_TOOLS__SANDBOX__NETWORK="allowlist",
        BUBBLES_TOOLS__SANDBOX__ALLOW="a.example, b.example:8080",
        BUBBLES_TOOLS__SANDBOX__TOOL_DIRS='["/opt/a,b"]',
    )
    chosen = settings.tools.sandbox
    assert (chosen.backend, chosen.network, chosen.limits.pids) == ("bubblewrap", "allowlist", 99)
    assert chosen.allow == ("a.example", "b.example:8080")
    assert chosen.tool_dirs == (Path("/opt/a,b"),)


def test_an_empty_variable_is_an_unset_one(tmp_path: Path) -> None:
    assert loaded(tmp_path, sandbox(backend="docker"), BUBBLES_TOOLS__SANDBOX__BACKEND="").tools.sandbox.backend == (
        "docker"
    )


def test_an_unknown_name_is_a_warning_that_offers_the_nearest(tmp_path: Path) -> None:
    settings = loaded(tmp_path, sandbox(backand="docker") | {"agent": {}}, BUBBLES_TOOLS__SANDBOX__NETWRK="none")
    assert settings.tools.sandbox.backend == "local"
    text = "\n".join(settings.warnings)
    assert "tools.sandbox.backand" in text
    assert "did you mean backend?" in text
    assert "agent is not a setting of this version and has no effect; did you mean agents?" in text
    assert "BUBBLES_TOOLS__SANDBOX__NETWRK" in text
    assert len(settings.warnings) == 3


def test_a_name_written_twice_is_a_warning(tmp_path: Path) -> None:
    assert "written twice" in loaded(tmp_path, sandbox(toolDirs=["/a"], tool_dirs=["/b"])).warnings[0]


def test_an_allow_list_without_the_mode_is_a_warning(tmp_path: Path) -> None:
    assert "has no effect" in loaded(tmp_path, sandbox(allow=["a.example"])).warnings[0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"network": "internet"}, ["tools.sandbox.network", '"internet"', "'none', 'allowlist' or 'full'"]),
        ({"limits": {"pids": -1}}, ["tools.sandbox.limits.pids", "-1", "greater than 0"]),
        ({"limits": {"memoryBytes": "lots"}}, ["tools.sandbox.limits.memory_bytes", '"lots"']),
        ({"toolDirs": ["tools"]}, ["tools.sandbox.tool_dirs.0", '"tools"', "must be an absolute path"]),
        ({"docker": []}, ["tools.sandbox.docker", "[]", "a JSON object"]),
        ({"backend": ""}, ["tools.sandbox.backend", '""']),
        ({"limits": {"pids": 0, "cpus": 0}}, ["tools.sandbox.limits.pids", "1 more"]),
    ],
)
def test_a_wrong_value_names_source_field_and_mend(tmp_path: Path, fields: dict[str, object], said: list[str]) -> None:
    message = refused(tmp_path, sandbox(**fields))
    for part in [str(tmp_path / ".bubbles" / "config.json"), "correct it, or remove it", *said]:
        assert part in message


def test_a_wrong_variable_is_named_as_the_source(tmp_path: Path) -> None:
    message = refused(tmp_path, sandbox(network="none"), BUBBLES_TOOLS__SANDBOX__NETWORK="internet")
    assert message.startswith("BUBBLES_TOOLS__SANDBOX__NETWORK: tools.sandbox.network")
    assert "JSON list" in refused(tmp_path, BUBBLES_TOOLS__SANDBOX__ALLOW="[a")


def test_a_provider_by_login_has_no_key_to_set(tmp_path: Path) -> None:
    settings = loaded(tmp_path, {"providers": {"openai_codex": {"apiKey": "canary-of-a-key"}}})
    assert settings.providers.openai_codex.api_key is None
    (warning,) = settings.warnings
    assert "providers.openai_codex.apiKey is not a setting" in warning
    assert "canary" not in warning


def test_a_mapping_in_a_variable_is_json_and_its_keys_are_data(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        {"channels": {"identities": {"old": ["telegram:1"]}}},
        BUBBLES_CHANNELS__IDENTITIES='{"annaLena": ["telegram:7", "slack:U1"]}',
        BUBBLES_PROVIDERS__OPENAI__EXTRA_HEADERS='{"X-Title": "Bubbles"}',
        BUBBLES_PROVIDERS__OPENAI_CODEX__BASE_URL="http://localhost:1",
    )
    assert settings.channels.identities == {"annaLena": ("telegram:7", "slack:U1")}
    assert settings.providers.openai.extra_headers["X-Title"].get_secret_value() == "Bubbles"
    assert settings.providers.openai_codex.base_url == "http://localhost:1"
    assert settings.warnings == ()
    assert "JSON object" in refused(tmp_path, BUBBLES_CHANNELS__IDENTITIES="anna=telegram:7")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"tools": ', "line 1, column 11"),
        ("[]", "one JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 90 + "1" + "}" * 90, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "a number that is too long"),
        ('{"a": "' + "x" * (1 << 20) + '"}', "larger than 1,048,576 bytes"),
        ("", "line 1, column 1"),
    ],
)
def test_a_file_that_is_not_settings_is_refused_in_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    message = refused(tmp_path, text)
    assert said in message
    assert "config.json" in message


def test_a_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".bubbles").mkdir()
    (tmp_path / ".bubbles" / "config.json").write_bytes(b'{"tools": "\xff"}')
    assert "not UTF-8" in refused(tmp_path)


def test_a_file_saved_by_notepad_is_read(tmp_path: Path) -> None:
    assert loaded(tmp_path, "\ufeff" + json.dumps(sandbox(backend="docker"))).tools.sandbox.backend == "docker"


def test_a_directory_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".bubbles" / "config.json").mkdir(parents=True)
    assert "cannot be read: it is a directory" in refused(tmp_path)


def test_a_pipe_in_place_of_the_file_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    (tmp_path / ".bubbles").mkdir()
    os.mkfifo(tmp_path / ".bubbles" / "config.json")
    assert "cannot be read: it is a device or pipe" in refused(tmp_path)
    (tmp_path / ".bubbles" / "config.json").unlink()
    (tmp_path / ".bubbles" / "config.json").symlink_to("/dev/zero")
    assert "a device or pipe" in refused(tmp_path)


@pytest.mark.req("SEC-03")
@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604])
def test_b121_a_file_that_others_can_read_is_a_warning_with_the_mend(tmp_path: Path, mode: int) -> None:
    loaded(tmp_path, {})
    path = tmp_path / ".bubbles" / "config.json"
    path.chmod(mode)
    (warning,) = loaded(tmp_path).warnings
    assert f"mode {mode:04o}" in warning
    assert f"chmod 600 {path}" in warning


def test_a_name_written_twice_in_the_same_spelling_is_a_warning(tmp_path: Path) -> None:
    settings = loaded(tmp_path, '{"agents": {"concurrency": 3, "concurrency": 4}}')
    assert settings.agents.concurrency == 4
    assert "concurrency is written twice" in settings.warnings[0]


def test_b109_a_setting_of_another_version_does_not_stop_the_program(tmp_path: Path) -> None:
    settings = loaded(tmp_path, {"tools": {"retired": {"deep": [1]}}, "agents": {"concurrency": 2}})
    assert settings.agents.concurrency == 2
    assert "tools.retired is not a setting of this version" in settings.warnings[0]


@pytest.mark.req("SEC-03")
def test_the_environment_with_its_keys_is_not_in_what_settings_show(tmp_path: Path) -> None:
    settings = loaded(tmp_path, OPENAI_API_KEY="sk-canary-1234")
    assert settings.host_env["OPENAI_API_KEY"] == "sk-canary-1234"
    assert "canary" not in repr(settings) + str(settings) + settings.model_dump_json()
