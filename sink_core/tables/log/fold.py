"""What a sink brings to its control topic: each type of event with its schema and its place in the fold."""

from __future__ import annotations

from calve.sink_core.control.fold import CORE, EventType, Fold
from calve.sink_core.tables.log import schemas
from calve.sink_core.tables.log.events import (
    READER_VERSION,
    CheckpointPart,
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    StartCommit,
    TableCheckpoint,
)
from calve.sink_core.tables.log.state import CommitState

SINK = Fold(
    CommitState,
    (
        *CORE,
        EventType(StartCommit, schemas.START_COMMIT, CommitState.start),
        EventType(DataWritten, schemas.DATA_WRITTEN, CommitState.take_files),
        EventType(DataComplete, schemas.DATA_COMPLETE, CommitState.complete_batch),
        EventType(CommitToTable, schemas.COMMIT_TO_TABLE, CommitState.take_report),
        EventType(CommitComplete, schemas.COMMIT_COMPLETE, CommitState.complete_round),
        EventType(TableCheckpoint, schemas.CHECKPOINT, CommitState.take_checkpoint),
        EventType(CheckpointPart, schemas.CHECKPOINT_PART, CommitState.take_part),
    ),
    kind="sink",
    reader_version=READER_VERSION,
)
