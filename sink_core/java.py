"""Which Java runs Kafka and Spark here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from calve.sink_core.error_codes.machine import JAVA
from calve.sink_core.errors import ConfigError

MINIMUM = 17
_HINT = f"install Java {MINIMUM} or newer (Debian/Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


def find_java() -> Path:
    """`$JAVA_HOME/bin/java`, else `java` on the PATH. Raises ConfigError if there is none or it is older than 17."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(Path(home, "bin", "java") if home else "java")
    if found is None:
        where = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise ConfigError(f"no Java {where}; Kafka and Spark need {MINIMUM} or newer", hint=_HINT, code=JAVA)
    version = _major(found)
    if version < MINIMUM:
        raise ConfigError(f"{found} is Java {version}; Kafka and Spark need {MINIMUM} or newer", hint=_HINT, code=JAVA)
    return Path(found)


def _major(java: str) -> int:
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 (own arguments)
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0
