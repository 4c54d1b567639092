"""What the embedded broker keeps in its directory besides topics: settings, the logging set-up and its identity."""

from __future__ import annotations

import base64
import re
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

_NODE = "1"
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %m (%c)%n
"""


def settings(
    directory: Path, host: str, port: int, controller_port: int, properties: Mapping[str, str]
) -> dict[str, str]:
    """Server properties of one node that is broker and controller; `properties` go last, their listeners are added."""
    protocols = [f"{name}:{name}" for name in _PROTOCOLS]
    listeners = [f"PLAINTEXT://{host}:{port}", f"CONTROLLER://{host}:{controller_port}"]
    added = [properties["listeners"]] if "listeners" in properties else []
    return {
        "process.roles": "broker,controller",
        "node.id": _NODE,
        "controller.quorum.voters": f"{_NODE}@{host}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ",".join([*protocols, "CONTROLLER:PLAINTEXT"]),
        "log.dirs": str(directory / "data"),
        "auto.create.topics.enable": "false",
        # Retention goes by the records' own time: events of last year would be deleted as they arrive.
        "log.retention.ms": "-1",
        "group.initial.rebalance.delay.ms": "0",
        # After a kill, the node may come back only when its earlier registration has timed out.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        **_single_copies(),
        **properties,
        "listeners": ",".join([*listeners, *added]),
    }


def _single_copies() -> dict[str, str]:
    return {
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def write_logging(directory: Path) -> Path:
    """Log4j's configuration: warnings and errors to standard output, which is `broker.log`."""
    path = directory / "log4j2.properties"
    path.write_text(_LOGGING)
    return path


def fresh_folder(path: Path) -> Path:
    """`path` as an empty folder."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def new_cluster_id() -> str:
    """A random cluster id as Kafka writes them: a UUID in URL-safe base64 without padding, no dash in front."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return text if not text.startswith("-") else new_cluster_id()


def cluster_id(directory: Path) -> str | None:
    """The id the storage was formatted with, or None before that."""
    meta = directory / "data" / "meta.properties"
    found = re.search(r"^cluster\.id=(.*)$", meta.read_text(), re.MULTILINE) if meta.is_file() else None
    return found[1].replace("\\", "") if found else None
