"""What others do to the world at any moment: users, other writers, brokers; and how users mend it."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from calve.sink_core.offsets import Position
from tests.simulation.oracle import BAD, GAP, GOOD, TOPIC
from tests.simulation.storage import DataFile, ListedManifest, Manifest, ManifestList
from tests.simulation.world import GROUP_IN_USE, World

Deed = Callable[[World, random.Random], None]


def produce(world: World, chance: random.Random) -> None:
    logs = world.cluster.topics[TOPIC].logs
    for _ in range(chance.choice((1, 2, 5))):
        world.produce(chance.randrange(len(logs)), chance.choice((GOOD, GOOD, GOOD, GOOD, BAD, GAP)))


def add_partition(world: World, _chance: random.Random) -> None:
    topic = world.cluster.topics[TOPIC]
    if len(topic.logs) < 3:
        topic.logs.append(type(topic.logs[0])())
        world.note("USER adds a partition")
        world.produce(len(topic.logs) - 1, GOOD)


def roll_back(world: World, chance: random.Random) -> None:
    """`main` to one of the last ancestors of the head."""
    name = _some_table(world, chance)
    if name is None:
        return
    metadata = world.catalog.tables[name]
    older = [s.snapshot_id for s in _ancestors(metadata)][1:4]
    if older:
        set_head(world, name, chance.choice(older))
        world.did("roll back", name)


def append_foreign(world: World, chance: random.Random) -> None:
    """Another writer's append of a file without rows, so that the head moves and nothing else."""
    name = _some_table(world, chance)
    if name is not None:
        _add_snapshot(world, name, "foreign", lambda _files: ())
        world.note(f"somebody appends to {name}")


def compact(world: World, chance: random.Random) -> None:
    """Some of the head's files into one."""
    name = _some_table(world, chance)
    if name is None or len(world.store.data_files(world.catalog.head(name))) < 2:
        return

    def rows(files: list[str]) -> tuple[object, ...]:
        taken = [files.pop(0) for _ in range(chance.randint(2, len(files)))]
        return tuple(row for path in taken for row in world.store.rows(path))

    _add_snapshot(world, name, "compacted", rows)
    world.note(f"somebody compacts {name}")


def expire(world: World, chance: random.Random) -> None:
    """Somebody else's expiry: any snapshot but those that refs name."""
    name = _some_table(world, chance)
    if name is None:
        return
    metadata = world.catalog.tables[name]
    staging = {ref: None for ref in metadata.refs if "-merge-" in ref}
    if staging and chance.random() < 0.5:
        # They have a greatest age of their own.
        _set_refs(world, name, staging)
        metadata = world.catalog.tables[name]
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    going = {s.snapshot_id for s in metadata.snapshots if s.snapshot_id not in kept and chance.random() < 0.5}
    if going:
        world.did("expire", name)
        for path in world.catalog.expire(name, going, new_root=chance.random() < 0.3):
            world.delete_file(path)


def roll_back_and_expire(world: World, chance: random.Random) -> None:
    """What was rolled back is expired as well, and the head moves on: nothing shows any more what it stood on."""
    before = len(world.oracle.deeds)
    again = chance.getrandbits(30)
    roll_back(world, random.Random(again))
    if len(world.oracle.deeds) > before:
        append_foreign(world, random.Random(again))
        expire(world, random.Random(again))


def untag_and_roll_back(world: World, chance: random.Random) -> None:
    again = chance.getrandbits(30)
    untag(world, random.Random(again))
    roll_back(world, random.Random(again))


def recreate(world: World, chance: random.Random) -> None:
    name = _some_table(world, chance)
    if name is not None:
        world.dropped[name] = world.catalog.tables.pop(name)
        world.catalog.create_table(name, world.dropped[name].schema(), properties=world.dropped[name].properties)
        world.did("recreate", name)


def drop(world: World, chance: random.Random) -> None:
    name = _some_table(world, chance)
    if name is not None:
        world.dropped[name] = world.catalog.tables.pop(name)
        world.did("drop", name)


def untag(world: World, chance: random.Random) -> None:
    name = _some_table(world, chance)
    tag = world.pipeline.tag
    if name is not None and tag in world.catalog.tables[name].refs:
        _set_refs(world, name, {tag: None})
        world.did("untag", name)


def save(world: World, chance: random.Random) -> None:
    """A backup of a catalog entry."""
    name = _some_table(world, chance)
    if name is not None:
        world.saved[name] = world.catalog.tables[name]


def restore(world: World, chance: random.Random) -> None:
    """The backup takes the entry's place, if its files are still there."""
    name = _some_table(world, chance)
    saved = world.saved.get(name or "")
    if name is None or saved is None or saved.table_uuid != world.catalog.tables[name].table_uuid:
        return
    if saved is not world.catalog.tables[name] and _readable(world, saved):
        world.did("restore", name)
        world.catalog.replace(name, saved)


def _readable(world: World, metadata: TableMetadata) -> bool:
    """Whether all its files are still there."""
    try:
        return world.store.reachable(metadata.snapshots) <= world.store.files.keys()
    except FileNotFoundError:
        return False


def reset_positions(world: World, chance: random.Random) -> None:
    offsets = world.cluster.groups.get(world.pipeline.group, {})
    source = sorted(at for at in offsets if at[0] == TOPIC)
    if source:
        at = chance.choice(source)
        world.did("reset positions", TOPIC)
        offsets[at] = (max(0, offsets[at][0] + chance.choice((-2, -1, 1))), "")


def forget_positions(world: World, _chance: random.Random) -> None:
    """The broker expires the offsets of a group without members."""
    group = world.pipeline.group
    if world.cluster.groups.get(group) and all(t.visible for t in world.cluster.transactions.values()):
        world.cluster.groups[group] = {}
        world.did("forget positions", TOPIC)


def retention(world: World, chance: random.Random) -> None:
    """Only of what has been published: what else it takes is lost, and nobody's fault."""
    topic = world.cluster.topics[TOPIC]
    for partition, log in enumerate(topic.logs):
        published = world.oracle.through.get((topic.topic_id, partition), 0)
        log.start = max(log.start, chance.randint(0, published))


def recreate_topic(world: World, chance: random.Random) -> None:
    config, partitions = world.cluster.topics[TOPIC].config, len(world.cluster.topics[TOPIC].logs)
    world.cluster.delete_topic(TOPIC)
    world.cluster.create_topic(TOPIC, partitions, config)
    world.did("recreate topic", TOPIC)
    produce(world, chance)


def truncate_control_topic(world: World, chance: random.Random) -> None:
    """Somebody deletes events, or sets a retention."""
    topic = world.cluster.topics.get(world.pipeline.control_topic)
    if topic is not None and topic.logs[0].start < topic.logs[0].end:
        below = chance.randint(topic.logs[0].start + 1, topic.logs[0].end)
        topic.logs[0].start = below
        world.oracle.log_lost(below)
        _did_to_control_topic(world, "truncate control topic")


def recreate_control_topic(world: World, _chance: random.Random) -> None:
    """Deleted; the next run makes a new one."""
    name = world.pipeline.control_topic
    if name in world.cluster.topics:
        world.cluster.delete_topic(name)
        world.oracle.log_lost(None)
        _did_to_control_topic(world, "recreate control topic")


def _did_to_control_topic(world: World, deed: str) -> None:
    pipeline = world.pipeline
    world.did(deed, pipeline.control_topic)
    world.oracle.deeds |= {(deed, subject) for subject in (pipeline.name, TOPIC, *pipeline.table_names)}


def add_table(world: World, _chance: random.Random) -> None:
    world.add_table()


MILD: dict[str, Deed] = {
    "produce": produce,
    "append": append_foreign,
    "compact": compact,
    "add partition": add_partition,
    "save": save,
    "retention": retention,
}
"""What a pipeline has to live with."""

HARSH: dict[str, Deed] = {
    "roll back": roll_back,
    "roll back and expire": roll_back_and_expire,
    "untag and roll back": untag_and_roll_back,
    "expire": expire,
    "recreate": recreate,
    "drop": drop,
    "untag": untag,
    "restore": restore,
    "reset positions": reset_positions,
    "forget positions": forget_positions,
    "recreate topic": recreate_topic,
}
"""What makes a pipeline stop, unless it does no harm."""

LOST_LOG: dict[str, Deed] = {
    "truncate control topic": truncate_control_topic,
    "recreate control topic": recreate_control_topic,
}
"""What takes events of the pipeline itself away."""

TO_TABLES = ("roll back", "untag and roll back", "recreate", "drop", "untag", "restore")
"""Harsh, and leaves the topics as they are."""

DEEDS = {**MILD, **HARSH, **LOST_LOG, "add table": add_table}


def mend(world: World, finding: str, subject: str) -> bool:
    """Undo what a finding is about, as a user can who knows what happened; False if that is beyond them."""
    if finding in ("table-rolled-back", "tag-removed", "table-restored") and subject in world.oracle.last_snapshots:
        snapshot_id = world.oracle.last_snapshots[subject]
        metadata = world.catalog.tables[subject]
        if metadata.snapshot_by_id(snapshot_id) is None:
            return False
        set_head(world, subject, snapshot_id)
        _set_refs(world, subject, {world.pipeline.tag: snapshot_id})
    elif finding in ("table-recreated", "table-dropped") and subject in world.dropped:
        if not _readable(world, world.dropped[subject]):
            return False
        world.catalog.tables[subject] = world.dropped.pop(subject)
    elif finding in ("positions-changed", "positions-missing", "positions-beyond-end"):
        return _put_positions_back(world)
    elif finding == GROUP_IN_USE:
        # As the message says: nothing needs them, for nothing else of the pipeline is left.
        world.cluster.groups[subject] = {}
    else:
        return False
    world.note(f"USER mends {finding} of {subject}")
    return True


def _put_positions_back(world: World) -> bool:
    """Those of the last publish, with a mark that makes every plan made before stale."""
    if world.oracle.placed is None:
        return False
    (positions, batch_id), mark = world.oracle.placed, world.new_id()
    offsets = world.cluster.groups.setdefault(world.pipeline.group, {})
    for at, offset in positions.items():
        offsets[at.topic, at.partition] = offset, Position(offset, batch_id).given_up(mark).metadata
    return True


def set_head(world: World, name: str, snapshot_id: int) -> None:
    _set_refs(world, name, {MAIN_BRANCH: snapshot_id})


def _set_refs(world: World, name: str, wanted: dict[str, int | None]) -> None:
    metadata = world.catalog.tables[name]
    refs = {key: ref for key, ref in metadata.refs.items() if wanted.get(key, 0) is not None}
    for key, snapshot_id in wanted.items():
        if snapshot_id is not None:
            kind = SnapshotRefType.BRANCH if key == MAIN_BRANCH else SnapshotRefType.TAG
            refs[key] = SnapshotRef(snapshot_id=snapshot_id, snapshot_ref_type=kind)
    head = refs[MAIN_BRANCH].snapshot_id if MAIN_BRANCH in refs else None
    world.catalog.replace(name, metadata.model_copy(update={"refs": refs, "current_snapshot_id": head}))


def _add_snapshot(world: World, name: str, what: str, new_rows: Callable[[list[str]], tuple[object, ...]]) -> None:
    """One more snapshot: the head's files without those that `new_rows` takes from the list, and one with its rows."""
    metadata, head = world.catalog.tables[name], world.catalog.head(name)
    number = world.chance.getrandbits(48)
    files = world.store.data_files(head)
    rows = new_rows(files)
    path = world.store.write(f"sim:///{name}/data/{what}-{number}.parquet", DataFile(rows))  # pyright: ignore[reportArgumentType]
    manifest = world.store.write(f"sim:///{name}/metadata/{what}-{number}-m0.avro", Manifest((*files, path)))
    sequence_number = metadata.next_sequence_number()
    listed = world.store.write(
        f"sim:///{name}/metadata/snap-{what}-{number}.avro",
        ManifestList((ListedManifest(world.store, manifest, number),), sequence_number),
    )
    snapshot = Snapshot(
        snapshot_id=number,
        parent_snapshot_id=head.snapshot_id if head else None,
        sequence_number=sequence_number,
        manifest_list=listed,
        summary=Summary(Operation.APPEND),
        schema_id=metadata.current_schema_id,
    )
    updates = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate.model_validate({"ref-name": MAIN_BRANCH, "type": "branch", "snapshot-id": number}),
    )
    world.catalog.swap(name, (), updates)


def _some_table(world: World, chance: random.Random) -> str | None:
    there = sorted(world.catalog.tables)
    return chance.choice(there) if there else None


def _ancestors(metadata: TableMetadata) -> list[Snapshot]:
    found: list[Snapshot] = []
    head = metadata.refs.get(MAIN_BRANCH)
    at = metadata.snapshot_by_id(head.snapshot_id) if head else None
    while at is not None:
        found.append(at)
        at = metadata.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id else None
    return list(islice(found, 5))
