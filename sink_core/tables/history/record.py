"""What Calve writes into a snapshot's summary, and reads back. The `kafka.connect.*` names are the connector's."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from sys import intern

from calve.sink_core.codes import Code
from calve.sink_core.errors import ProtocolError

COMMIT_ID = "kafka.connect.commit-id"
VALID_THROUGH = "kafka.connect.valid-through-ts"

_OFFSETS = "kafka.connect.offsets."
# The control topic of a group has its name, so the key has it twice.
_OFFSETS_OF_CALVE = re.compile(r"kafka\.connect\.offsets\.(calve\.[a-z0-9_.-]+)\.control\.\1")
REMEMBERED = 16_384
"""Summaries of snapshots, by what they say."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class _Named:
    """The name of a property under the pipeline's."""

    what: str

    def __get__(self, keys: SummaryKeys, _type: object = None) -> str:
        return f"calve.{keys.pipeline}.{self.what}"


@dataclass(frozen=True, slots=True)
class SummaryKeys:
    """The property names of one pipeline. `adopted` is the table's, not a snapshot's: groups of pipelines that may feed
    it with the same records. `made_by` is for people: nothing reads it. `totals` are for formats that count none.
    """

    pipeline: str
    control_topic: str
    group: str

    @property
    def offsets(self) -> str:
        return f"kafka.connect.offsets.{self.control_topic}.{self.group}"

    batches = _Named("batches")
    counts = _Named("counts")
    replaced = _Named("replaced")
    given_up = _Named("given-up")
    adopted = _Named("adopted")
    last_event_id = _Named("last-event-id")
    control_topic_id = _Named("control-topic-id")
    cluster_id = _Named("cluster-id")
    made_by = _Named("made-by")
    totals = _Named("totals")

    @property
    def carried(self) -> tuple[str, ...]:
        """Those that a later snapshot of anybody may repeat: they say what the table has, not what came with it."""
        return (self.offsets, self.last_event_id, self.control_topic_id, self.cluster_id, self.given_up, VALID_THROUGH)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """What a snapshot of ours says. `stored_offset` is exclusive; `counts` are rows per batch, `replaced` the rows that
    range jobs among them took the place of.

    `given_up` are ranges `[from, to)` of control offsets: batches published there that the table does not hold are
    missing because somebody answered a finding so. Each later snapshot repeats it. [-1, 0) are batches of a control
    topic that was rebuilt since.
    """

    stored_offset: int
    commit_id: str
    valid_through_ms: int | None
    batches: tuple[str, ...]
    counts: Mapping[str, int]
    last_event_id: str
    control_topic_id: str
    cluster_id: str
    given_up: tuple[tuple[int, int], ...] = ()
    replaced: Mapping[str, int] = field(default_factory=dict[str, int])


def to_summary(keys: SummaryKeys, own: SnapshotRecord, *, made_by: str = "") -> dict[str, str]:
    """The properties of a snapshot. `made_by` names the run, such as Dagster's, if it has a name."""
    summary = {
        keys.offsets: json.dumps({"0": own.stored_offset}),
        COMMIT_ID: own.commit_id,
        keys.batches: ",".join(own.batches),
        keys.counts: json.dumps(dict(own.counts)),
        keys.last_event_id: own.last_event_id,
        keys.control_topic_id: own.control_topic_id,
        keys.cluster_id: own.cluster_id,
    }
    if made_by:
        summary[keys.made_by] = made_by
    if own.replaced:
        summary[keys.replaced] = json.dumps(dict(own.replaced))
    if own.given_up:
        summary[keys.given_up] = json.dumps(own.given_up)
    if own.valid_through_ms is not None:
        summary[VALID_THROUGH] = _iso(own.valid_through_ms)
    return summary


def from_summary(keys: SummaryKeys, summary: Mapping[str, str]) -> SnapshotRecord | None:
    """The reverse of `to_summary`; None for a snapshot that is not this pipeline's.

    Raises ProtocolError for values that this pipeline never writes. Remembers: each look at a table asks for all of its
    snapshots, and they are the same but for the last.
    """
    return _from_items(keys, tuple(summary.items()))


@lru_cache(REMEMBERED)
def _from_items(keys: SummaryKeys, items: tuple[tuple[str, str], ...]) -> SnapshotRecord | None:
    summary = dict(items)
    offsets, batches = summary.get(keys.offsets), summary.get(keys.batches)
    if offsets is None or batches is None:
        return None
    try:
        through = summary.get(VALID_THROUGH)
        return SnapshotRecord(
            stored_offset=int(json.loads(offsets)["0"]),
            commit_id=summary.get(COMMIT_ID, ""),
            valid_through_ms=_millis(through) if through is not None else None,
            batches=tuple(map(intern, batches.split(","))) if batches else (),
            counts={intern(batch_id): rows for batch_id, rows in json.loads(summary.get(keys.counts, "{}")).items()},
            last_event_id=summary.get(keys.last_event_id, ""),
            control_topic_id=summary.get(keys.control_topic_id, ""),
            cluster_id=summary.get(keys.cluster_id, ""),
            given_up=tuple((int(start), int(end)) for start, end in json.loads(summary.get(keys.given_up, "[]"))),
            replaced=json.loads(summary.get(keys.replaced, "{}")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(
            f"a snapshot says {keys.offsets}={offsets}, {keys.counts}={summary.get(keys.counts)}: "
            f"not what this pipeline writes ({error})",
            hint="somebody has edited the snapshot's properties",
            code=Code.EDITED_SNAPSHOT,
        ) from error


def name_of(group: str) -> str:
    """The name that a pipeline had at its first run."""
    return group.rpartition(".")[2]


def others_in(keys: SummaryKeys, summary: Mapping[str, str]) -> dict[str, str]:
    """The groups of other pipelines of Calve by what a snapshot says, each with the id of its cluster."""
    others: dict[str, str] = {}
    offsets = (key for key in summary if key.startswith(_OFFSETS) and key != keys.offsets)
    for group in (match[1] for match in map(_OFFSETS_OF_CALVE.fullmatch, offsets) if match):
        name = name_of(group)
        if f"calve.{name}.batches" in summary:
            others[group] = summary.get(f"calve.{name}.cluster-id", "")
    return others


def _iso(milliseconds: int) -> str:
    """As the connector writes it: ISO 8601 in UTC. A producer's timestamp beyond the year 9999 is cut to its end."""
    moment = _EPOCH + timedelta(milliseconds=min(milliseconds, _LAST_MS))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _millis(iso: str) -> int:
    return (datetime.fromisoformat(iso) - _EPOCH) // timedelta(milliseconds=1)
