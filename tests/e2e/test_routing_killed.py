"""Twenty topics, five entries with rules, bad records and a kill -9: every record in exactly one accounted place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from orchestration.broker import Broker
from sink_core.verify.verify import verify
from tests import support
from tests.pipelines import TIMEOUT_S, Flow

TOPICS = 20
RECORDS = 60_000
BAD_EVERY = 50
KINDS = ("view", "buy", "share", "none")
REGIONS = ("eu", "us", "asia")
COLUMNS = {"columns": {"id": "long", "kind": "string", "at": "struct<region: string>"}}


@pytest.fixture
def flow(tmp_path: Path, broker: Broker) -> Flow:
    prefix = support.unique("t")
    names = [f"{prefix}.{'even' if n % 2 == 0 else 'odd'}_{n}" for n in range(TOPICS)]
    tables: list[dict[str, Any]] = [
        {"name": "by_topic.{entity}", "auto_create": COLUMNS},
        {"name": "kinds.{value}", "name_from": {"field": "kind", "allow": "view|buy|share"}, "auto_create": COLUMNS},
        {"name": "shop.eu", "where": {"field": "at.region", "matches": "eu"}, "auto_create": COLUMNS},
        {"name": "shop.first", "topics": names[:2], "auto_create": COLUMNS},
        {"name": "shop.all", "auto_create": COLUMNS},
    ]
    source = {"topics": [], "topics_regex": rf"{prefix}\.(?P<entity>\w+)"}
    extra = {"source": source, "tables": tables, "batch": {"max_records": 40_000}}
    flow = Flow.create(tmp_path, broker.bootstrap, *names, extra=extra)
    for made in flow.admin.create_topics([NewTopic(name, 1) for name in names]).values():
        made.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": flow.bootstrap, "enable.idempotence": True, "linger.ms": 50})
    for n in range(RECORDS):
        while len(producer) > 50_000:
            producer.poll(0.1)
        producer.produce(names[n % TOPICS], value(n))
    assert producer.flush(TIMEOUT_S) == 0
    return flow


def is_bad(n: int) -> bool:
    return n % BAD_EVERY == BAD_EVERY - 1


def value(n: int) -> bytes:
    if is_bad(n):
        return b"{broken" if n // BAD_EVERY % 2 else b'{"id": "no number"}'
    return json.dumps({"id": n, "kind": KINDS[n % 7 % 4], "at": {"region": REGIONS[n % 3]}}).encode()


def run(flow: Flow, **environment: str) -> int:
    command = [str(Path(sys.executable).with_name("calve")), "run", str(flow.pipeline.path)]
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, timeout=300, check=False
    ).returncode


def test_a_killed_run_of_many_tables_loses_and_doubles_nothing(flow: Flow) -> None:
    assert run(flow, CALVE_FAILPOINT="publish.after-commit=kill@2") == -9
    assert run(flow) == 0
    good = [n for n in range(RECORDS) if not is_bad(n)]
    assert flow.ids("shop.all") == good
    assert flow.ids("shop.eu") == [n for n in good if REGIONS[n % 3] == "eu"]
    assert flow.ids("shop.first") == [n for n in good if n % TOPICS < 2]
    for kind in ("view", "buy", "share"):
        assert flow.ids(f"kinds.{kind}") == [n for n in good if KINDS[n % 7 % 4] == kind]
    for n, topic in enumerate(flow.topics):
        assert flow.ids(f"by_topic.{topic.rpartition('.')[2]}") == [i for i in good if i % TOPICS == n]
    letters = flow.rows(flow.pipeline.dead_letter_table)
    assert len(letters) == RECORDS - len(good)
    stages = Counter(letter["stage"] for letter in letters)
    assert set(stages) <= {"decode", "fit"}
    with flow.session() as session:
        assert not verify(session, deep=True).violations
