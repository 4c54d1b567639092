"""Codes of sources: what their classes are, and what they give."""

from calve.sink_core.error_codes.code import ErrorCode

NO_SOURCE_CLASS = ErrorCode(
    "CLV-7101",
    "The class of a source can't be used",
    "`source.type` names a module or class that isn't there, or that does not take these options.",
    "Install its package where Calve runs, correct the name, or the options that the message names.",
)
NOT_FLAT = ErrorCode(
    "CLV-7102",
    "A source partition or offset is not flat",
    "Their fields are texts, numbers, true, false or null: as JSON, and as Kafka Connect has them.",
    "Correct the source: what has several parts takes several fields.",
)
SOURCE_BROKE_RULES = ErrorCode(
    "CLV-7103",
    "A source gave what it must not",
    (
        "It returned something of another type, planned a partition twice or from where it isn't, or sent to a topic "
        "that it has not named or that Calve owns. Nothing of it was stored."
    ),
    "Correct the source as the message says; docs/sources.md has the rules.",
)
SOURCE_FAILED = ErrorCode(
    "CLV-7104",
    "A source failed",
    "Its class raised an error that Calve knows nothing of. Nothing of the transaction was stored.",
    "See the error it raised.",
)
NOT_EXACTLY_ONCE = ErrorCode(
    "CLV-7105",
    "A source does not give every record exactly once",
    "`exactly_once: required` is set, and the source says why it can't promise that as it is set up.",
    "Set it up as the message says, or `exactly_once: requested`.",
)
BAD_ROW = ErrorCode(
    "CLV-7106",
    "A row can't be made a record",
    "It is bad, and there is no topic for dead letters. Nothing of its transaction was stored.",
    "Set `dead_letters: {topic: …}`, or correct the row.",
)
WHOLE_TOO_LONG = ErrorCode(
    "CLV-7107",
    "A transaction takes longer than a broker allows",
    "What a source reads at once, such as the snapshot of a table, is one transaction. Nothing of it was stored.",
    "Read what is there in parts: `snapshot: never`, and another pipeline with `tables`.",
)
