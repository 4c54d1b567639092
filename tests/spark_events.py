"""What Spark itself has noted of its jobs: its event log, as a history server reads it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def noted_in(folder: Path) -> dict[str, str]:
    """Variables of a process whose Spark is to note its events in `folder`."""
    (conf := folder / "conf").mkdir(parents=True, exist_ok=True)
    (events := folder / "events").mkdir(exist_ok=True)
    settings = {"enabled": "true", "dir": f"file://{events}", "rolling.enabled": "false", "compress": "false"}
    lines = (f"spark.eventLog.{key} {value}\n" for key, value in settings.items())
    (conf / "spark-defaults.conf").write_text("".join(lines))
    return {"SPARK_CONF_DIR": str(conf)}


def written_on_spark(folder: Path, printed: str, group: str) -> int:
    """Tasks that Spark has noted for batches of a pipeline, by the application that wrote them as `printed` says."""
    [application] = set(re.findall(r"written by spark (\S+) on local", printed))
    tasks = tasks_by_group(folder)
    return sum(number for (app, name), number in tasks.items() if app == application and name.startswith(f"{group} "))


def tasks_by_group(folder: Path) -> dict[tuple[str, str], int]:
    """By application and job group the tasks that succeeded."""
    tasks = Counter[tuple[str, str]]()
    for file in (folder / "events").iterdir():
        application, groups = "", dict[int, str]()
        for event in _events(file):
            match event["Event"]:
                case "SparkListenerApplicationStart":
                    application = event["App ID"]
                case "SparkListenerJobStart":
                    group = event["Properties"].get("spark.jobGroup.id", "")
                    groups |= dict.fromkeys(event["Stage IDs"], group)
                case "SparkListenerTaskEnd" if event["Task End Reason"]["Reason"] == "Success":
                    tasks[application, groups[event["Stage ID"]]] += 1
                case _:
                    pass
    return dict(tasks)


def _events(file: Path) -> Iterator[dict[str, Any]]:
    with file.open() as lines:
        yield from map(json.loads, lines)
