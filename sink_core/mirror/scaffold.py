"""The text of a new mirror's pipeline file, with its comments."""

from __future__ import annotations

from collections.abc import Sequence

from calve.sink_core.config.common import BATCH_LINES
from calve.sink_core.config.mirror import MirrorConfig
from calve.sink_core.config.problems import checked


def mirror_text(name: str, source: str, target: str, topics: Sequence[str]) -> str:
    """Clusters are names of `connections.yaml`. Raises ConfigError for a name or topic that can't be one."""
    text = f"""\
# Calve: Kafka topics of {source}, copied to {target}, every record exactly once and in its order.
#   calve check FILE    connects to both clusters and says what is missing
#   calve run FILE      copies what the topics hold
# docs/reference.md lists every key.

name: {name}  # part of every id in Kafka: keep it once the mirror has run
kind: mirror

source:
  kafka: {source}  # from connections.yaml
  topics: [{", ".join(topics)}]
  # topics_regex: "shop\\\\..+"  # and those whose whole name matches; exclude: [...] leaves some out
  start: earliest  # for the first run: earliest, latest, {{timestamp: "2026-01-31T00:00:00Z"}}, {{group: NAME}}

target:
  kafka: {target}  # has the control topic and the positions too
  names: "{{cluster}}.{{topic}}"  # or "{{topic}}"
  # replication_factor: 3
  # config: {{retention.ms: 604800000}}  # wins over the source topic's

# When Dagster starts a run, and how much of its work becomes visible at a time.
# trigger: {{every: 1m, or_records: 1000000}}
# transaction: {{max_bytes: 64MiB, max_duration: 10s}}
{BATCH_LINES}
# run: {{linger: 5m}}  # stay for more
"""
    return checked(text, MirrorConfig)
