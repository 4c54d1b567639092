"""`${ENV:NAME}`: secrets and host-specific values stay in the environment until a connection is opened.

`resolve` is the only reader of the environment; its result goes to the library that opens the connection and nowhere
else. It has each value kept secret (`hidden.py`), but for those of keys and places that tell where something is, who
asks, or a number. `redact` is for everything that is shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import unquote

from calve.sink_core.codes import Code
from calve.sink_core.config.urls import REFERENCE, for_place, is_address
from calve.sink_core.errors import ConfigError
from calve.sink_core.hidden import HIDDEN, keep_secret, without_secrets

FORM = "${ENV:NAME}"

_TEMPLATE = re.compile(r"\{\{\s*env\b")
_OF_DAGSTER = re.compile(r"\{\{\s*env\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_HIDDEN_WORDS = (
    r"passw(?:or)?d|passphrase|secret|token|credential|jaas|key[._-]pem|private[._-]key|account[._-]key|access[._-]key"
    r"|api[._-]?key|connection[._-]string|signature|authorization|user[._-]info|oauthbearer[._-]config"
)
_HIDDEN_KEY = re.compile(_HIDDEN_WORDS, re.IGNORECASE)
# Each looks at a character a few times, whatever the text: a name begins where no other does, and what has no "@" is
# passed over as a whole, without a second group.
_HIDDEN_PARAMETER = re.compile(
    rf"(?<![\w.-])(?=[\w.-]*+=)([\w.-]*?(?:{_HIDDEN_WORDS})[\w.-]*+=)([^&;,\s]++)", re.IGNORECASE
)
# The ends of such names, whatever the variable.
_ALSO_HIDDEN = re.compile(r"(?:^|[._-])(?:sig|sas|pwd|pass|pat|cookie)$", re.IGNORECASE)
_PUBLIC_KEY = re.compile(
    r"(?:^|[._-])(?:servers|hosts?|ports?|user(?:name|_name)?|database|schema|catalog|warehouse|region|endpoint"
    r"|address|paths?|location|files?|folder|dir|bucket|prefix|name|id|master|remote|warm)$",
    re.IGNORECASE,
)
_URL_KEY = re.compile(r"(?:^|[._-])ur[il]$", re.IGNORECASE)
_PUBLIC_VALUE = re.compile(r"true|false|[+-]?\d{1,7}(?:\.\d+)?\w?", re.IGNORECASE)
_LEAST_OF_ANY = 4
_PEM = re.compile(r"\s*-----BEGIN ")
_TOKEN = re.compile(r"(?<=\bhttp://)[^:/@\s]+(?=@)|(?<=\bhttps://)[^:/@\s]+(?=@)")
# As SQLAlchemy reads it: a password ends at "@" and may hold "/"; what else stands before a later "@" goes as well.
_PASSWORD = re.compile(r"(://[^:/@\s]*+:)(?:([^@\s]*+(?:@[^@/?#\s]*+(?=@))*+)(?=@)|[^@\s]*+)")
# Where all of the text is an address, it may hold anything: what stands before the last "@" goes.
_WHOLE = re.compile(r"(\A[\w+.-]+://[^:/@\s]*:)([^\n]*)(?=@)")
_USER_INFO = re.compile(r"(?<=://)(?:[^:/@\s]*+(?::[^@\s]*+)?@(?:[^/?#\s]*@)?|([^:/@\s]*+:[^@\s]*+))")


def of_dagster(value: Any) -> Any:
    """What a YAML file holds, with Dagster's `{{ env.NAME }}` as a reference: resolved as late, and never null."""
    if isinstance(value, dict):
        inner = cast(dict[object, object], value)
        return {key: of_dagster(item) for key, item in inner.items()}
    if isinstance(value, list):
        return [of_dagster(item) for item in cast(list[object], value)]
    return _OF_DAGSTER.sub(r"${ENV:\1}", value) if isinstance(value, str) else value


def malformed(text: str) -> str:
    """What is wrong with the references in `text`, or an empty text."""
    if _TEMPLATE.search(text):
        return f"the only template is {{{{ env.NAME }}}}; write it so, or {FORM}"
    if "${" in REFERENCE.sub("", text):
        return f"'${{' starts a reference, and the only form is {FORM} (letters, digits, underscore)"
    return ""


def resolve(properties: Mapping[str, object]) -> dict[str, Any]:
    """`properties` with every `${ENV:NAME}` replaced, in nested mappings and lists too; in an address
    by what is encoded for its place (`urls.for_place`).

    Raises ConfigError naming key and variable if one is unset, empty or ends in white space, and naming the key of a
    null value. Call it in the process that opens the connection; on Spark that is each executor.
    """
    return {key: _walk(key, value, _from_environment) for key, value in properties.items()}


def names_a_secret(name: str) -> bool:
    """Whether what has this name is not to be shown."""
    return (_HIDDEN_KEY.search(name) or _ALSO_HIDDEN.search(name)) is not None


def redact(properties: Mapping[str, object]) -> dict[str, Any]:
    """`properties` fit to be shown: references stay references, secrets written literally become `***`."""
    return {key: _walk(key, value, _shown) for key, value in properties.items()}


def redact_text(text: str) -> str:
    """`text` fit to be shown: without passwords in addresses and parameters, and without what was resolved to one."""
    return without_secrets(str(_shown("", text)))


def without_user_info(uri: str) -> str:
    """`uri` without user, password, query and fragment."""
    # Of a secret in the place of an address a part would be no longer known as such.
    return re.split(r"[?#]", _USER_INFO.sub(lambda found: found[1] or "", without_secrets(uri)), maxsplit=1)[0]


def _walk(key: str, value: object, leaf: Callable[[str, object], object]) -> object:
    if isinstance(value, Mapping):
        inner = cast(Mapping[str, object], value)
        return {name: _walk(f"{key}.{name}", item, leaf) for name, item in inner.items()}
    if isinstance(value, list | tuple):
        items = cast(list[object] | tuple[object, ...], value)
        return [_walk(key, item, leaf) for item in items]
    return leaf(key, value)


def _from_environment(key: str, value: object) -> object:
    if value is None:
        raise ConfigError(f"{key}: has no value (null)", hint="give it one, or remove the key", code=Code.NO_VALUE)
    if not isinstance(value, str):
        return value
    if fault := malformed(value):
        raise ConfigError(f"{key}: {fault}", hint=f"write {FORM}", code=Code.NO_VALUE)
    text = REFERENCE.sub(lambda match: for_place(value, match.start(), _variable(key, match[1])), value)
    within = [
        match[2] for pattern in (_WHOLE, _PASSWORD, _HIDDEN_PARAMETER) for match in pattern.finditer(text) if match[2]
    ]
    within += _TOKEN.findall(text)
    keep_secret(*within, *map(unquote, within), *([text] if names_a_secret(key) else ()))
    for match in REFERENCE.finditer(value):
        if not _is_public(key, match[1], value, os.environ[match[1]]):
            keep_secret(os.environ[match[1]])
    return text


def _is_public(key: str, variable: str, written: str, value: str) -> bool:
    """Whether the value of a variable may be shown: of a secret's name it may not, wherever it stands."""
    if names_a_secret(variable) or names_a_secret(key):
        return False
    if len(value) < _LEAST_OF_ANY or _PUBLIC_VALUE.fullmatch(value):
        return True
    if _URL_KEY.search(key):
        # A secret in the place of an address is none.
        return is_address(written) or is_address(value)
    return is_address(written) or _PUBLIC_KEY.search(key) is not None


def _variable(key: str, name: str) -> str:
    value = os.environ.get(name)
    if not value:
        state = "not set" if value is None else "set but empty"
        raise ConfigError(
            f"{key}: environment variable {name} is {state}",
            hint=f"set {name} where this process starts; Spark executors need it too",
            code=Code.UNSET_VARIABLE,
        )
    # A file in PEM ends in a line break.
    if value[-1].isspace() and not _PEM.match(value):
        raise ConfigError(
            f"{key}: environment variable {name} ends in white space",
            hint=f"set {name} without its last line break or blank: printf %s, or $(cat FILE), leaves it out",
            code=Code.ENDS_BLANK,
        )
    return value


def _shown(key: str, value: object) -> object:
    if value is None or isinstance(value, bool):
        return value
    if names_a_secret(key):
        references = REFERENCE.finditer(value) if isinstance(value, str) else ()
        return " ".join(match[0] for match in references) or HIDDEN
    if isinstance(value, str):
        for pattern in (_WHOLE, _PASSWORD, _HIDDEN_PARAMETER):
            value = pattern.sub(_keep_reference, value)
    return value


def _keep_reference(match: re.Match[str]) -> str:
    return match[0] if match[2] is None or REFERENCE.fullmatch(match[2]) else f"{match[1]}{HIDDEN}"
