"""A table's SQL from records to rows: what it leaves out is counted, what it fails on can be tried again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calve.orchestration.local.broker import Broker
from calve.sink_core.codes import Code
from calve.sink_core.errors import ConfigError
from calve.sink_core.sink.checks.tables import TableChecks
from calve.sink_core.sink.dead_letters.jobs import DeadLetterJobs
from calve.sink_core.sink.verify.proof import verify
from tests.codes import raises
from tests.pipelines import Flow
from tests.support import Produce, TopicFactory

TEXT = "id, text || '/' || decode(_kafka.key) AS text"


def with_transform(flow: Flow, select: str) -> Flow:
    columns = {"id": "long", "text": "string", "n": "long"}
    transform = {"columns": {"id": "long", "text": "string"}, "select": select, "where": "id % 10 <> 1"}
    table = {"name": flow.table, "auto_create": {"columns": columns}, "transform": transform}
    return flow.but(extra={"tables": [table]})


def proven(flow: Flow) -> bool:
    with flow.session() as session:
        session.bind()
        return verify(session, deep=True).proven


def test_rows_are_made_by_sql_and_everything_adds_up(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    plain = Flow.create(tmp_path, broker.bootstrap, kafka_topic())
    flow = with_transform(plain, f"{TEXT}, text[2:]::LONG AS n")
    values: list[bytes | None] = [b'{"id": %d, "text": "n%d"}' % (i, i) for i in range(100)]
    values[25], values[40], values[50] = b'{"id": 25, "text": "none"}', None, b"{"
    produce(flow.topic, values, keys=[f"k{i}" for i in range(100)])
    flow.run()
    kept = [i for i in range(100) if i % 10 != 1 and i not in (25, 40, 50)]
    rows = sorted(flow.rows(), key=lambda row: row["id"])
    assert [(row["id"], row["text"], row["n"]) for row in rows] == [(i, f"n{i}/k{i}", i) for i in kept]
    assert [row["_kafka"]["offset"] for row in rows] == kept
    letters = sorted(flow.rows(flow.pipeline.dead_letter_table), key=lambda row: row["offset"])
    assert [(row["offset"], row["stage"]) for row in letters] == [(25, "transform"), (50, "decode")]
    assert "'one'" in letters[0]["error"]
    [ledger] = [row for row in flow.rows(flow.pipeline.ledger_table) if row["records"]]
    found = (ledger["records"], ledger["tombstones"], ledger["filtered"], ledger["dead_lettered"])
    assert found == (100, 1, 10, 2)
    assert dict(ledger["written"]) == {flow.table: len(kept)}
    assert proven(flow)
    # With better SQL the record fits; it knows its key and its offset still.
    better = with_transform(plain, f"{TEXT}, TRY_CAST(text[2:] AS LONG) AS n")
    with better.session() as session:
        session.bind()
        assert DeadLetterJobs(session).replay().moved == 1
    [row] = [row for row in better.rows() if row["id"] == 25]
    assert (row["text"], row["n"], row["_kafka"]["offset"]) == ("none/k25", None, 25)
    assert proven(better)


def test_each_table_leaves_out_what_its_own_where_says(
    tmp_path: Path, broker: Broker, kafka_topic: TopicFactory, produce: Produce
) -> None:
    """Ids 0 to 59: of 0 to 9 no table wants anything, 50 to 59 are bad for one that wants them."""

    def table(name: str, where: str, select: str = "id") -> dict[str, Any]:
        columns = {"id": "long", "text": "string"}
        transform = {"columns": columns, "select": select, "where": where}
        return {"name": name, "auto_create": {"columns": {"id": "long"}}, "transform": transform}

    def flow_of(select: str) -> Flow:
        tables = [table("db.even", "id >= 10 AND id % 2 = 0", select), table("db.large", "id >= 30")]
        return plain.but(extra={"tables": tables}, tables=("db.even", "db.large"))

    plain = Flow.create(tmp_path, broker.bootstrap, kafka_topic())
    flow = flow_of("text::LONG AS id")
    produce(flow.topic, [b'{"id": %d, "text": "%s"}' % (i, b"bad" if i >= 50 else b"%d" % i) for i in range(60)])
    [batch] = flow.run().batches
    assert batch.not_stored == {"dead letters": 5, "filtered": 20}
    assert batch.left_out == {"db.even": 15, "db.large": 10}
    odd = range(51, 60, 2)
    assert flow.ids("db.even") == list(range(10, 50, 2))
    assert flow.ids("db.large") == [*range(30, 50), *odd]
    assert len(flow.rows(flow.pipeline.dead_letter_table)) == 5
    [ledger] = [row for row in flow.rows(flow.pipeline.ledger_table) if row["records"]]
    # 11, 13 … 29 are wanted by no table either.
    assert (ledger["filtered"], ledger["unrouted"], ledger["dead_lettered"]) == (20, 0, 5)
    assert dict(ledger["written"]) == {"db.even": 20, "db.large": 25}
    assert dict(ledger["left_out"]) == {"db.even": 15, "db.large": 10}
    assert proven(flow)
    better = flow_of("id")
    with better.session() as session:
        session.bind()
        assert DeadLetterJobs(session).replay().moved == 5
    assert better.ids("db.even") == list(range(10, 60, 2))
    assert better.ids("db.large") == list(range(30, 60))
    assert proven(better)


def test_a_check_binds_the_sql_to_the_columns(tmp_path: Path) -> None:
    flow = Flow.create(tmp_path, "localhost:1", "t")

    def check(select: str) -> object:
        pipeline = with_transform(flow, select).pipeline
        with TableChecks(pipeline, dict) as checks:
            return checks.data_table(pipeline.tables[0])

    with raises(Code.UNUSABLE_SQL, "transform", of=ConfigError):
        check("id, there")
    with raises(Code.UNUSABLE_SQL, "transform", "n", "int64", of=ConfigError):
        check("id, 1.5::DOUBLE AS n")
    assert "4" in str(check("id, text")).split(), "columns that it would be created with"
