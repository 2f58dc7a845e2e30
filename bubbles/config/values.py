"""What settings are made of: the kinds of values that a person may write."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, SecretStr, ValidationInfo
from pydantic.alias_generators import to_camel

MIN_TOKEN = 32
PERSON_HOME = "person_home"
"""Key of the validation context under which ``load`` passes what ``~`` means."""


def with_home(path: str, person_home: str) -> str:
    """``~`` by the home that these settings know, which need not be the process's."""
    return person_home + path[1:] if path == "~" or path.startswith("~/") else path


def _expanded(path: object, info: ValidationInfo) -> object:
    return with_home(path, info.context[PERSON_HOME]) if isinstance(path, str) and info.context else path


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("it must be an absolute path")
    return path


AbsolutePath = Annotated[Path, BeforeValidator(_expanded), AfterValidator(_absolute)]


def _empty_is_unset(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


def _sendable(secret: SecretStr) -> SecretStr:
    """Without the line end that a key read from a file has. What cannot be a header would be in a client's error."""
    text = secret.get_secret_value().strip()
    if not (text.isascii() and text.isprintable()):
        raise ValueError("it must be one line of ASCII characters, since it is sent as a header")
    return SecretStr(text)


HeaderValue = Annotated[SecretStr, AfterValidator(_sendable)]
HeaderName = Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")]
"""RFC 9110, 5.6.2."""
Key = Annotated[HeaderValue | None, BeforeValidator(_empty_is_unset)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Of an environment variable."""
ServerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,29}$")]
"""Of an MCP server: it is a part of its tools' names."""
PositiveBytes = Annotated[ByteSize, Field(gt=0)]
"""A number of bytes, or text such as ``"512MiB"``."""
Text = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        loc_by_alias=False,
        frozen=True,
        hide_input_in_errors=True,  # what pydantic itself prints of a wrong value may be a key
    )


def _long_enough(secret: SecretStr | None) -> SecretStr | None:
    if secret is not None and len(secret.get_secret_value()) < MIN_TOKEN:
        raise ValueError(f"it must have at least {MIN_TOKEN} characters: 'openssl rand -hex 32' makes one")
    return secret


Token = Annotated[Key, AfterValidator(_long_enough)]
"""A secret of our own, which nobody must be able to guess."""
