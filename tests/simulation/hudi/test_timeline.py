"""The modelled timeline answers as Hudi's own client does on a table's files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calve.sink_core.hudi.files.place import Place
from calve.sink_core.hudi.files.schema import IS_DELETED, to_avro
from calve.sink_core.hudi.files.staged import HudiFile, Staged, file_name, put_in_place
from calve.sink_core.hudi.files.timeline import Instant, extra_of, read_properties, read_timeline
from calve.sink_core.hudi.java.client import Completion, HudiClient, NewHudiTable
from calve.sink_core.hudi.java.jvm import HudiRefused, Jvm, client_jvm
from calve.sink_core.hudi.java.spark import SparkClient, Upsert
from calve.sink_core.records.columns.type_text import schema_of
from tests import hudi_tables
from tests.simulation.hudi.timeline import ModelClient, ModelTimeline, properties
from tests.simulation.stage import Stage

T1, T2 = "20260101000000000", "20260101000001000"
FILES = {T1: "11111111-1111-4111-8111-111111111111-0", T2: "22222222-2222-4222-8222-222222222222-0"}


class Table(Protocol):
    def complete(self, instant: str, check: Callable[[], None] = ..., opened: Collection[str] = ()) -> None: ...
    def roll_back(self, instant: str) -> None: ...
    def restore(self, instant: str) -> None: ...
    def states(self) -> dict[str, set[str]]:
        """Of each instant, what files it has."""
        ...

    def completions(self) -> int: ...
    def upsert(self, check: Callable[[], None] = ...) -> None: ...
    def said(self) -> list[str | None]:
        """What the completed instants say under `KEY`, in their order."""
        ...


KEY, SAID = "calve.test", {"calve.test": "said"}


def nothing() -> None:
    pass


class Model:
    def __init__(self) -> None:
        self.timeline = ModelTimeline()
        self.client = ModelClient(Stage(1), lambda: self.timeline, {})

    def complete(self, instant: str, check: Callable[[], None] = nothing, opened: Collection[str] = ()) -> None:
        file = HudiFile(FILES[instant], "x", "x", "", 1, 1)
        done = Completion(instant, (file,), "", {}, (), opened)
        self.client.complete(Path("/table"), properties(self.timeline), done, check)

    def upsert(self, check: Callable[[], None] = nothing) -> None:
        changes = Upsert([Path("/staged/calve-b1/f.parquet")], "", SAID, ())
        self.client.upsert(Path("/table"), properties(self.timeline, "id"), changes, check)

    def said(self) -> list[str | None]:
        return [self.timeline.said[each.path].get(KEY) for each in self.timeline.read().commits]

    def roll_back(self, instant: str) -> None:
        self.timeline.roll_back_pending(instant)

    def restore(self, instant: str) -> None:
        self.timeline.restore(instant)

    def states(self) -> dict[str, set[str]]:
        return states_of(self.timeline.read().instants)

    def completions(self) -> int:
        return len(self.timeline.read().commits)


class Real:
    def __init__(self, directory: Path, client: HudiClient, *key: str) -> None:
        self.place = Place(directory / "t", directory / ".calve" / "t")
        self.schema = to_avro(schema_of({"id": "long"}), "d.t", marked=bool(key))
        self.client = client
        self.client.create(NewHudiTable("d.t", "uuid", self.schema, "copy_on_write", (), key), self.place.folder)

    def upsert(self, check: Callable[[], None] = nothing) -> None:
        assert isinstance(self.client, SparkClient)
        path = self.place.folder.with_name("changes.parquet")
        pq.write_table(pa.table({IS_DELETED: [False], "id": [1]}), path)
        changes = Upsert([path], self.schema, SAID, ())
        self.client.upsert(self.place.folder, read_properties(self.place) or {}, changes, check)

    def said(self) -> list[str | None]:
        return [extra_of(each).get(KEY) for each in read_timeline(self.place).commits]

    def complete(self, instant: str, check: Callable[[], None] = nothing, opened: Collection[str] = ()) -> None:
        name = file_name(FILES[instant], instant)
        staged = self.place.staged / "x" / name
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.touch()
        file = HudiFile(FILES[instant], name, "x", "", 1, 1)
        put_in_place(self.place, Staged(instant, (file,)))
        done = Completion(instant, (file,), self.schema, {}, (), opened)
        self.client.complete(self.place.folder, read_properties(self.place) or {}, done, check)

    def roll_back(self, instant: str) -> None:
        for each in read_timeline(self.place).at(instant):
            each.path.unlink()

    def restore(self, instant: str) -> None:
        hudi_tables.restore(self.place.folder, instant, statistics=False)

    def states(self) -> dict[str, set[str]]:
        return states_of(e for e in read_timeline(self.place).instants if e.action == "commit")

    def completions(self) -> int:
        return len(read_timeline(self.place).commits)


def states_of(instants: Iterable[Instant]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in instants:
        found.setdefault(each.requested, set()).add(each.state)
    return found


@pytest.fixture(scope="module")
def jvm() -> Generator[Jvm]:
    made = client_jvm()
    yield made
    made.close()


@pytest.fixture(params=["model", "real"])
def table(request: pytest.FixtureRequest, tmp_path: Path, jvm: Jvm) -> Table:
    return Model() if request.param == "model" else Real(tmp_path, HudiClient(jvm, {}))


ALL = {"requested", "inflight", "completed"}


def test_an_instant_is_opened_and_completed(table: Table) -> None:
    table.complete(T1)
    table.complete(T2)
    assert table.states() == {T1: ALL, T2: ALL}


def test_what_the_check_raises_leaves_the_instant_pending_and_the_next_try_goes_on(table: Table) -> None:
    def refuse() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        table.complete(T1, refuse)
    assert table.states() == {T1: {"requested", "inflight"}}
    table.complete(T1, opened={"requested", "inflight"})
    assert table.states() == {T1: ALL}


def test_whoever_opens_what_is_open_is_refused(table: Table) -> None:
    def others() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        table.complete(T1, others)
    with pytest.raises(HudiRefused):
        table.complete(T1)


def test_nothing_keeps_an_instant_from_being_completed_twice(table: Table) -> None:
    """What Calve has the lock, and the last check, for."""
    table.complete(T1)
    table.complete(T1, opened={"requested", "inflight"})
    assert table.completions() == 2


def test_what_was_rolled_back_meanwhile_is_not_completed_and_can_be_opened_again(table: Table) -> None:
    with pytest.raises(HudiRefused):
        table.complete(T1, lambda: table.roll_back(T1))
    assert table.states().get(T1, set()) & {"completed"} == set()
    table.complete(T1, opened=table.states().get(T1, set()))
    assert table.states()[T1] == ALL


def test_a_restore_takes_later_instants_from_the_timeline(table: Table) -> None:
    table.complete(T1)
    table.complete(T2)
    table.restore(T1)
    assert table.states() == {T1: ALL}
    table.complete(T2)
    assert table.states() == {T1: ALL, T2: ALL}


@pytest.fixture(params=["model", pytest.param("real", marks=pytest.mark.faults)])
def changed(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Table]:
    """A table whose rows changes are brought into."""
    if request.param == "model":
        yield Model()
        return
    spark = SparkClient({}, {})
    yield Real(tmp_path, spark, "id")
    spark.jvm.close()


def test_changes_have_an_instant_of_their_own_and_say_what_they_are_told(changed: Table) -> None:
    changed.upsert()
    changed.upsert()
    assert list(changed.states().values()) == [ALL, ALL]
    assert changed.said() == ["said", "said"]


def test_what_the_check_of_changes_raises_leaves_their_instant_and_the_next_try_has_another(changed: Table) -> None:
    def refuse() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        changed.upsert(refuse)
    changed.upsert()
    assert sorted(changed.states().values(), key=len) == [{"requested", "inflight"}, ALL]
    assert changed.said() == ["said"]
