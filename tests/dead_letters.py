"""A pipeline with dead letters of two kinds: some that fit once a column is mended, and one that never does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyiceberg.types import StringType

from calve.orchestration.local.broker import Broker
from calve.sink_core.offsets import OffsetRange
from calve.sink_core.sink.dead_letters.jobs import DeadLetterJobs, DeadLetterReport
from calve.sink_core.sink.dead_letters.listing import Letters, letters
from calve.sink_core.sink.verify.proof import verify
from tests import support
from tests.pipelines import COLUMNS, Died, Flow

GOOD = [*range(10), *range(20, 25)]
ALL = [*range(15), *range(20, 25)]


def misfit(number: int) -> bytes:
    """Fits once `more` is a string and no long."""
    return json.dumps({"id": number, "text": f"n{number}", "more": "words"}).encode()


def filled(flow: Flow) -> Flow:
    """Ids 0 to 9 and 20 to 24 in the tables; 10 to 14 and one that never fits among the dead letters."""
    flow.produce(range(10))
    support.produce(flow.bootstrap, flow.topic, [*map(misfit, range(10, 13)), b"never"], partition=0)
    flow.run()
    support.produce(flow.bootstrap, flow.topic, map(misfit, range(13, 15)), partition=1)
    flow.produce(range(20, 25), partition=1)
    flow.run()
    return flow


def spoilt(directory: Path, broker: Broker, topic: str) -> Flow:
    """As `filled`, a pipeline with one table."""
    columns = {"columns": {**COLUMNS, "more": "long"}}
    return filled(Flow.create(directory, broker.bootstrap, topic, auto_create=columns))


def mend(flow: Flow, *tables: str) -> None:
    """What was a long becomes a string."""
    for table in tables or flow.tables:
        with flow.load_table(table).update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("more")
        with flow.load_table(table).update_schema() as update:
            update.add_column("more", StringType())


def replay(flow: Flow, *ranges: OffsetRange) -> DeadLetterReport:
    with flow.session() as session:
        session.bind()
        return DeadLetterJobs(session).replay(ranges)


def left(flow: Flow) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in flow.rows(flow.pipeline.dead_letter_table))


def listed(flow: Flow, **options: Any) -> Letters:
    with flow.session() as session:
        return letters(session, **{"limit": 20, **options})


def assert_proven(flow: Flow, *not_checked: str) -> None:
    with flow.session() as session:
        report = verify(session, deep=True)
    assert report.violations == ()
    assert sorted(each.subject for each in report.not_checked) == sorted(not_checked), report.not_checked
    assert set(report.uncommitted.values()) == {0}


def die() -> None:
    raise Died
