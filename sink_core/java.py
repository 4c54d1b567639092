"""Which Java runs Kafka and Spark here, and the settings it is given."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError

MINIMUM = 17
_HINT = f"install Java {MINIMUM} or newer (Debian/Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


def find_java() -> Path:
    """`$JAVA_HOME/bin/java`, else `java` on the PATH. Raises ConfigError if there is none or it is older than 17."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(Path(home, "bin", "java") if home else "java")
    if found is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise ConfigError(f"no Java {where}; Kafka and Spark need {MINIMUM} or newer", hint=_HINT, code=Code.JAVA)
    version = _major(found)
    if version < MINIMUM:
        raise ConfigError(
            f"{found} is Java {version}; Kafka and Spark need {MINIMUM} or newer", hint=_HINT, code=Code.JAVA
        )
    return Path(found)


def write_properties(path: Path, values: Mapping[str, str]) -> Path:
    """Write a Java properties file only its owner can read: passwords are in it."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.writelines(f"{line}\n" for line in _property_lines(values))
    return path


def _property_lines(values: Mapping[str, str]) -> list[str]:
    """Properties as Java and Spark read them, who differ about what is not ASCII: that is escaped."""
    return [f"{name}={_escaped(value)}" for name, value in values.items()]


def _escaped(value: str) -> str:
    # java.util.Properties: a backslash escapes, a line break ends the value, a leading blank is dropped, and what is
    # not ASCII is written as \uXXXX, in UTF-16.
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    text = re.sub(r"[^\x00-\x7f]", lambda match: _utf16(match[0]), text)
    return f"\\{text}" if text.startswith((" ", "\t")) else text


def _utf16(character: str) -> str:
    return "".join(f"\\u{unit}" for unit in re.findall("....", character.encode("utf-16-be").hex()))


def _major(java: str) -> int:
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 (own arguments)
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0
