"""Every finding there is, a row each. Data only: `resolve/resolve.py` has the function for each choice."""

from __future__ import annotations

from calve.sink_core.finding import Choice, FindingKind

_REFILL = Choice(
    "refill",
    "reads what the table lost from Kafka again, as `calve replay FILE --table NAME --refill`",
    "not the ledger",
)
_RECOMMIT = Choice(
    "recommit",
    "appends the lost batches' files again, once, on top of what is there now, and sets the tag; refused, with "
    "the names, if a file is gone",
)
_ACCEPT = Choice(
    "accept",
    "goes on without the rows that were lost: they are given up, and `calve verify` says how many batches that were",
    "not the ledger",
)
_ACCEPT_ANOTHER = Choice(
    "accept",
    "goes on with the table as it is now, created as the pipeline file says if there is none, from what was not "
    "committed to the old one; the old rows are given up",
    "not the ledger",
)
_REWRITE = Choice(
    "rebuild",
    "writes the ledger's rows anew from the files that the control topic names, or says which are gone",
    "ledger",
)
_RESTORE = Choice("restore", "puts back the positions of the last publish: nothing is lost or read twice")
_REBUILD = Choice(
    "rebuild",
    "makes the control topic anew from ledger and tables. What was published and is in no table is read again; "
    "nothing is lost or read twice. Refused, with the batch, if a table lacks one that the ledger has, or is gone"
    " itself: the files are then known to nobody. Refused as well, unless `source.start` is `earliest`, if a "
    "partition's first batch is lost, or it has no rows and the group is gone: where it began is written nowhere "
    "any more. A pause that was in effect has to be given again",
)

RENAMED_PIPELINE = FindingKind(
    code="CLV-9101",
    name="renamed-pipeline",
    part="binding",
    title="The control topic belongs to a pipeline of another name or deployment",
    seen_by="`PIPELINE_BOUND` differs from what this host has",
    meaning="The topic was copied from another, or the pipeline was renamed. Going on, two pipelines would "
    "publish into one log.",
    remedy="If the pipeline itself was renamed, set `takes_over` to the name that it had at its first run (see "
    "[Renaming](operations.md#renaming)). Else delete the copy if nothing else needs it.",
    hint="set takes_over, with the name that the pipeline had at its first run; or delete the topic if it is a copy",
)
OTHER_KIND = FindingKind(
    code="CLV-9106",
    name="other-kind",
    part="binding",
    title="The control topic belongs to a pipeline of another kind",
    seen_by="Each event names the kind of pipeline that wrote it",
    meaning="Two pipelines of one deployment have the same name, such as the source that writes a topic and the sink "
    "that reads it. Control topic, positions and transactional ids go by the name: one would take over the other's.",
    remedy="Give the one that has not run yet another `name`.",
    hint="two pipelines of a deployment can't have one name: give this one another `name`",
)
OTHER_CATALOG = FindingKind(
    code="CLV-9102",
    name="other-catalog",
    part="binding",
    title="The catalog's name, type, address or warehouse differ from those at first use",
    seen_by="`PIPELINE_BOUND` differs from what this host has",
    meaning="A changed connection, or another way to write the same place (a different host name counts as "
    "different). Until the first publish a pipeline is bound to no catalog: a mistyped one is corrected, "
    "and that is all. Going on, tables that are not this pipeline's would be taken for its own.",
    remedy="Write them as they were. Pause before you move a catalog.",
    choices=(
        Choice(
            "move",
            "binds the pipeline to the new catalog, if the tables were moved there with their metadata: it looks "
            "whether each table is there as the control topic knows it, and refuses otherwise",
        ),
    ),
)
OTHER_CLUSTER = FindingKind(
    code="CLV-9103",
    name="other-cluster",
    part="binding",
    title="`bootstrap.servers` leads to another cluster than the one this pipeline was bound to",
    seen_by="`PIPELINE_BOUND` or the tagged snapshot names another cluster than this host has",
    meaning="A changed connection, or a cluster that was formatted anew. Offsets of another cluster are other records.",
    remedy="Correct the connection. A pipeline that is to read from a new cluster takes a new name, with "
    "[Moving](operations.md#moving) if you know the offsets there.",
    hint="correct bootstrap.servers; to read from another cluster take a new name, and calve positions import if "
    "you know the offsets there",
)
OTHER_SOURCE = FindingKind(
    code="CLV-9104",
    name="other-source",
    part="binding",
    title="`source.kafka` leads to another cluster than the one this mirror was bound to",
    seen_by="`PIPELINE_BOUND` names another source cluster than this host has",
    meaning="A changed connection, or a cluster that was formatted anew. Offsets of another cluster are other records.",
    remedy="Correct the connection. A mirror of another cluster takes a new name.",
    hint="correct the connection of source.kafka; to copy from another cluster take a new name",
)
OTHER_SYSTEM = FindingKind(
    code="CLV-9105",
    name="other-system",
    part="binding",
    title="The source reads another system than the one it was bound to",
    seen_by="`PIPELINE_BOUND` names another fingerprint than the source has on this host",
    meaning="Changed options, or a system that was made anew. Source offsets of another system mean other rows.",
    remedy="Correct `source.options`. A source of another system takes a new name.",
    hint="correct source.options; to read another system take a new name",
)
CONTROL_TOPIC_RECREATED = FindingKind(
    code="CLV-9201",
    name="control-topic-recreated",
    part="control topic",
    title="The control topic is not the one this pipeline was bound to, or knows of no publish although there are"
    " positions",
    seen_by="the topic's UUID differs from the one bound or the one in the tagged snapshot; or the group has "
    "positions of a publish and the log knows of none",
    meaning="It was deleted and created again, perhaps by a run that found it missing. Going on, batches that "
    "were published and not committed would be missing, without a trace.",
    remedy="Find out who deleted it.",
    choices=(_REBUILD,),
)
CONTROL_TOPIC_TRUNCATED = FindingKind(
    code="CLV-9202",
    name="control-topic-truncated",
    part="control topic",
    title="Events are missing at the start or the end of the control topic",
    seen_by="the log begins above 0 and no checkpoint stands for what is missing; or it ends below what a table "
    "has; or the last event committed to a table is neither there nor among those that a checkpoint "
    "says were trimmed (a table that lies wholly below the log start can't be asked)",
    meaning="`DeleteRecords` by others than `calve maintain FILE trim`, a retention that was set and taken back, "
    "a broker restored from an older state. Going on, batches whose events are gone would be missing from"
    " the tables.",
    remedy="Check the topic's settings.",
    choices=(_REBUILD,),
)
FOREIGN_EVENTS = FindingKind(
    code="CLV-9203",
    name="foreign-events",
    part="control topic",
    title="Somebody else has written to the control topic",
    seen_by="a message on the control topic that is no event of Calve, or an event of another pipeline id than "
    "the one bound. Every reader of the log stops on it; what others wrote is never committed",
    meaning="The message names the control offset, and what is there. Another program takes the topic for its "
    "own, a mirroring tool copies another pipeline's control topic into this one, or an old process "
    "outlived a `rebuild`. Going on, what others wrote would count as published.",
    remedy="Take the permission to write there away from whoever it was. If the pipeline has never run, delete "
    "the topic. `rebuild` deletes the message with all others.",
    choices=(_REBUILD,),
)
TOPIC_RECREATED = FindingKind(
    code="CLV-9301",
    name="topic-recreated",
    part="source topics",
    title="A source topic has another UUID: the same offsets hold other records now",
    seen_by="a source topic's UUID differs from that at the last publish. Looked at before the positions, which "
    "the broker deletes with the topic",
    meaning="It was deleted and created again. The broker deleted its positions as well. Going on, records of the"
    " new topic below the old positions would be passed over.",
    remedy="The rows of the old one stay in the table; what it had that was not read is gone, and nobody can count it.",
    choices=(
        Choice(
            "restart",
            "reads the new topic from its beginning; what retention has deleted of it by then counts as lost",
        ),
    ),
)
RECORDS_LOST = FindingKind(
    code="CLV-9302",
    name="records-lost-to-retention",
    part="source topics",
    title="A position lies below the log start: the records between were deleted before they were read",
    seen_by="a position below the log start",
    meaning="The pipeline stood still, or was slower than the topic's retention. Going on, nothing would tell "
    "that they are missing.",
    remedy="Raise the retention first, so that no more follow.",
    choices=(
        Choice("skip", "goes on at the log start. The records between are gone, and stand as lost in the ledger"),
    ),
)
REMOTE_TOPIC_RECREATED = FindingKind(
    code="CLV-9303",
    name="remote-topic-recreated",
    part="remote topics",
    title="A remote topic has another UUID: what was copied is gone",
    seen_by="a remote topic's UUID differs from that at the last generation",
    meaning="It was deleted and created again on the target. Its broker deleted the mirror's positions with it. Going "
    "on, the new topic would lack everything that was copied before.",
    remedy="Find out who deleted it.",
    choices=(
        Choice("restart", "copies the source topic again from its log start, into the new remote topic"),
        Choice("accept", "goes on behind what was copied to the old one; the new one lacks it"),
    ),
)
FOREIGN_RECORDS = FindingKind(
    code="CLV-9304",
    name="foreign-records",
    part="remote topics",
    title="Somebody else writes to a remote topic",
    seen_by="the records of one transaction do not follow each other without a gap; `calve verify --deep` finds others",
    meaning="Readers of the remote topic see records that are not the source's. The transaction was aborted, nothing "
    "of it counts.",
    remedy="Take the permission to write there away from whoever it is.",
    hint="find who writes to the topic and stop them, then calve resume FILE",
)
POSITIONS_MISSING = FindingKind(
    code="CLV-9401",
    name="positions-missing",
    part="positions",
    title="The group lacks positions that were published",
    seen_by="the group's positions differ from the last `DATA_COMPLETE`, or a topic that was put back has none. "
    "Missing ones only after a fence",
    meaning="They expired (see Keep-alive under [What Calve needs from "
    "Kafka](operations.md#what-calve-needs-from-kafka)), or the group or its offsets were deleted. Going "
    "on, records would be read twice or passed over.",
    remedy="The control topic has them.",
    choices=(_RESTORE,),
)
POSITIONS_CHANGED = FindingKind(
    code="CLV-9402",
    name="positions-changed",
    part="positions",
    title="The group's positions are not those of the last publish",
    seen_by="the group's positions differ from the last `DATA_COMPLETE`, or carry the ids of several batches. "
    "Positions, log and positions again, so that a publish in between is not mistaken for it",
    meaning="Somebody reset them, or a consumer uses the group. Going on, records would be read twice or passed over.",
    remedy="Stop that consumer first.",
    choices=(
        _RESTORE,
        Choice(
            "accept",
            "where all were moved forward, goes on from where they are; what lies between is never read, and "
            "stands as lost in the ledger",
        ),
    ),
)
POSITIONS_BEYOND_END = FindingKind(
    code="CLV-9403",
    name="positions-beyond-end",
    part="positions",
    title="A position lies above the partition's end",
    seen_by="a position above the LSO: the topic lost its end",
    meaning="The partition lost its end: an unclean leader election, or a cluster restored from an older state. "
    "Records that are written up to the position would be skipped; hence the stop.",
    remedy="If the topic can be put back as it was, do so. If not, delete it and create it again: it is then "
    "`topic-recreated`. `restore` is refused as long as the positions are those of the last publish.",
    choices=(_RESTORE,),
)
SOURCE_OFFSET_MOVED = FindingKind(
    code="CLV-9404",
    name="source-offset-moved",
    part="positions",
    title="A source offset is not the one that was stored last",
    seen_by="the offsets topic has another offset of a source partition than the control log, after the fence",
    meaning="Somebody wrote to the offsets topic, or it was made anew. Going on, rows would be read twice or passed "
    "over.",
    remedy="Find out who writes to the offsets topic. Then store the right offset by `calve positions set`. If a "
    "connector of Kafka Connect is to go on for this pipeline in turn, set `connect`.",
    hint="stop whoever writes to the offsets topic; then calve pause FILE --wait, and calve positions set FILE",
)
_ANEW = (
    "`calve positions reset FILE` and a run read all rows again, as a new source does; consumers by key then have what "
    "the database has, but for rows that were deleted in between."
)
SLOT_GONE = FindingKind(
    code="CLV-9407",
    name="replication-slot-gone",
    part="positions",
    title="The replication slot is gone, or PostgreSQL has invalidated it",
    seen_by="the database has no slot of this name although an offset of it is stored, or says that it is lost",
    meaning="Somebody dropped it, the database was restored without it, another server took over that did not have it, "
    "or it held more than `max_slot_wal_keep_size`. What was written behind the stored offset can't be read any more.",
    remedy=_ANEW + " Drop an invalidated slot first.",
    hint="calve positions reset FILE, then a run reads all rows again; drop an invalidated slot first",
)
PUBLICATION_ANEW = FindingKind(
    code="CLV-9410",
    name="publication-made-anew",
    part="positions",
    title="A publication was made anew, and the log has changes of before",
    seen_by="PostgreSQL can't decode the log from the slot's place on: the publication was not there by then",
    meaning="Somebody dropped the publication and created it again. Which tables the changes before that are of, and "
    "which of them were published, nobody can tell any more.",
    remedy=_ANEW,
    hint="calve pause FILE --wait, calve positions reset FILE, calve resume FILE: the next run reads all rows again",
)
SLOT_AHEAD = FindingKind(
    code="CLV-9408",
    name="replication-slot-ahead",
    part="positions",
    title="The replication slot is ahead of what is in Kafka",
    seen_by="the slot was told to forget up to a place behind the stored offset, after the fence",
    meaning="Somebody else reads by this slot or advanced it; or offsets were set back, or Kafka was restored from an "
    "older state. What lies between the two can't be read any more.",
    remedy="Give the other reader a slot of its own. " + _ANEW,
    hint="find out who else uses the slot; calve positions reset FILE, then a run reads all rows again",
)
LOG_TIMELINE = FindingKind(
    code="CLV-9409",
    name="other-timeline",
    part="positions",
    title="Another server has taken over, and its log may be another from some place on",
    seen_by="the server's timeline is not the one that is stored with the offset",
    meaning="A standby was promoted, or the database restored to a point in time. If the new timeline began before the "
    "stored offset, the same places mean other changes there.",
    remedy="If all that was in Kafka is in the database too, store the same offset with the new timeline by `calve "
    "positions set`. Else " + _ANEW,
    hint="calve positions set FILE, with the new timeline, if nothing was lost; else calve positions reset FILE",
)
FILE_CHANGED = FindingKind(
    code="CLV-9405",
    name="file-changed",
    part="positions",
    title="A file that a source has read is not what it was",
    seen_by="it has fewer bytes than were read of it, or other bytes at the begin or the end of these (4 KiB each); a "
    "file of Parquet has another size; a last line that was taken to be whole goes on. Looked at where size, time or "
    "ETag differ from what was stored",
    meaning="It was cut off, or another file has its name. Its source offset means rows of the old one: going on, rows "
    "would be passed over, or read twice. Nothing of it was read.",
    remedy="Put the file back as it was. What is new takes a name of its own, and is read from its beginning; or its "
    "source offset is set to where it is to be gone on, by `calve positions set`, or taken away, by `calve positions "
    "reset`.",
    hint="put the file back as it was, give what is new a name of its own, or set its offset by calve positions set",
)
DATABASE_RESTORED = FindingKind(
    code="CLV-9406",
    name="database-restored",
    part="positions",
    title="A database has had fewer transactions than were read from it",
    seen_by="PostgreSQL's lowest transaction in progress is below the one that is stored, or 2^31 above it",
    meaning="It was restored from a backup, another server took over that is behind, or it is another database. Going "
    "on, rows of transactions whose ids were given a second time would be passed over.",
    remedy="Let a server that is only behind catch up. After a restore read the tables by a pipeline of another name, "
    "which begins with all rows.",
    hint="let the server catch up if it is a standby; after a restore read the tables by a pipeline of another name",
)
TABLE_ROLLED_BACK = FindingKind(
    code="CLV-9501",
    name="table-rolled-back",
    part="tables",
    title="The snapshot that this pipeline committed last is not in the history of `main` any more",
    seen_by="the tagged snapshot is not an ancestor of the head. If snapshots between them were expired, it still"
    " counts as one when the head names all files it added",
    meaning="Somebody rolled the table back, or replaced the branch; or expired snapshots between the tag and the"
    " head of a table whose files were rewritten too. Without the stop the rows of the snapshots cut off "
    "would be missing for good.",
    remedy="If the roll back was a mistake, the head can also be put back to the tag; what others wrote since "
    "goes with it.",
    sql="CALL lake.system.set_current_snapshot(table => 'air.flights', ref => 'calve-flights');",
    choices=(_ACCEPT, _REFILL, _RECOMMIT),
)
TABLE_RESTORED = FindingKind(
    code="CLV-9502",
    name="table-restored",
    part="tables",
    title="The table has less than a coordinator once reported, or no snapshot of ours at all",
    seen_by="less is stored than a `COMMIT_TO_TABLE` told, or than a trim saw in the table",
    meaning="The catalog came back from a backup, or points to older metadata. Going on, what it lacks would be "
    "missing for good.",
    remedy="Have the catalog point to the table's newest metadata file again.",
    choices=(_RECOMMIT, _REFILL, _ACCEPT),
)
TAG_REMOVED = FindingKind(
    code="CLV-9503",
    name="tag-removed",
    part="tables",
    title="There are snapshots of this pipeline, and the tag is gone or stands on somebody else's snapshot",
    seen_by="there are snapshots of ours, and no tag",
    meaning="The tag was dropped or moved. Going on, nothing would tell what the table has.",
    remedy="`recommit` appends what the table lacks, which may be nothing. The tag can also be set back to the "
    "snapshot that the message names.",
    sql="ALTER TABLE lake.air.flights CREATE OR REPLACE TAG `calve-flights` AS OF VERSION 4358109269898191244;",
    choices=(_RECOMMIT, _REFILL, _ACCEPT),
)
TABLE_RECREATED = FindingKind(
    code="CLV-9504",
    name="table-recreated",
    part="tables",
    title="The table has another UUID than the one files were written for",
    seen_by="events or reports name another table UUID",
    meaning="It was dropped and created again, or another table was renamed to it. Going on, the rows of the old "
    "one would be missing for good.",
    remedy="To have the old rows back, rename or drop the new table and register the old one's last metadata file"
    " under the name; its UUID is in there.",
    sql="CALL lake.system.register_table(table => 'air.flights', metadata_file => "
    "'s3://…/metadata/00042-….metadata.json');",
    choices=(_REFILL, _ACCEPT_ANOTHER, _REWRITE),
)
TABLE_DROPPED = FindingKind(
    code="CLV-9505",
    name="table-dropped",
    part="tables",
    title="Events speak of the table, and the catalog has none of that name",
    seen_by="there is no such table",
    meaning="It was dropped or renamed. Going on, the rows that were published would be missing for good.",
    remedy="If it was only renamed, rename it back. If it was dropped, its last metadata file can be registered, "
    "as for `table-recreated`.",
    choices=(_REFILL, _ACCEPT_ANOTHER, _REWRITE),
)
TABLE_FED_TWICE = FindingKind(
    code="CLV-9506",
    name="table-fed-twice",
    part="tables",
    title="Another pipeline has put records of these topics into this table, from offsets that this one reads too",
    seen_by="a snapshot of the table is another pipeline's, whose ledger has rows put into this table from a "
    "range of a topic, by its UUID, that ends above where this pipeline began; or has the same name, or "
    "no ledger. Before the first publish the start positions stand in for the beginning",
    meaning="The table has these records twice, or would. Two files with different names for the same work; the "
    "old file of a pipeline that was moved; two deployments of one name with one catalog, which would "
    "share tag and ledger as well. Pipelines that feed a table from different topics, or from where the "
    "other one ended, are welcome. Without a ledger of the other one in the catalog nobody knows what it "
    "read; that stops the pipeline too. Found before the first batch, and at each commit.",
    remedy="Run only one of them. A renamed pipeline says `takes_over` (see [Renaming](operations.md#renaming)); "
    "one that is to go on where the other ended begins with its positions (see "
    "[Moving](operations.md#moving)), which can still be imported if it stopped before its first batch. "
    "What is adopted can be taken back by unsetting the property.",
    sql="ALTER TABLE lake.air.flights UNSET TBLPROPERTIES ('calve.flights.adopted');",
    choices=(
        Choice(
            "adopt",
            "says that both may feed the table with the same records, for instance because the other one's rows "
            "were deleted since: nothing is changed but the table's property `calve.<pipeline>.adopted`, which "
            "names the other one and keeps this finding away for this pipeline. What both read is then there "
            "twice, and `calve verify --deep` says so",
        ),
    ),
)

FINDINGS = {kind.name: kind for kind in list(globals().values()) if isinstance(kind, FindingKind)}
"""By name."""
