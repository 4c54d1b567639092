"""Codes of errors that have no closer one: a class each."""

from calve.sink_core.error_codes.code import ErrorCode

STOPPED = ErrorCode(
    "CLV-0001",
    "Calve stopped",
    "Trying again does not help.",
    "Do what the message says; running again changes nothing.",
)
WRONG_INPUT = ErrorCode(
    "CLV-0002",
    "A file, a flag or a setting is wrong",
    "What the message names can't be used as it is.",
    "Correct it, and run again.",
)
FINDING = ErrorCode(
    "CLV-0003",
    "A stored state contradicts the world",
    "A finding stops the pipeline; the message names it and both values.",
    "`calve explain NAME` with the finding's name says what it means, and which answers it has.",
)
EXCLUDED_STATE = ErrorCode(
    "CLV-0004",
    "A state that the protocol excludes",
    "Somebody has changed what Calve has written, versions of Calve don't fit together, or Calve has a fault.",
    "The message names both values. Run again; if it stays, report it.",
)
FOREIGN_MESSAGE = ErrorCode(
    "CLV-0005",
    "The control topic holds a message that is not an event of Calve",
    "Somebody else writes to the control topic.",
    "See the finding `foreign-events`.",
)
TABLE_UNUSABLE = ErrorCode(
    "CLV-0006",
    "A table cannot take the batch as it is",
    "What the message names about the table stands in the way; what was published waits in the control topic.",
    "Correct the table as the message says, and run again.",
)
BAD_RECORD = ErrorCode(
    "CLV-0007",
    "A record can't be stored, and the pipeline is told to stop on that",
    "A bad record under `on_bad_record: stop`; nothing was published.",
    "Correct the table, or set `on_bad_record: dead_letter`.",
)
RETRIABLE = ErrorCode(
    "CLV-0008",
    "The same call may go through later",
    "Something changed meanwhile, or was not ready.",
    "Run again; nothing can be lost or doubled by that.",
)
UNREACHABLE = ErrorCode(
    "CLV-0009",
    "A part did not answer",
    "Kafka, a catalog, a registry, storage or Spark could not be reached.",
    "See whether it runs and the address is right, and run again.",
)
FENCED = ErrorCode(
    "CLV-0010",
    "A newer run took over",
    "Another run of this pipeline took over, again and again.",
    "Let it finish.",
)
CONFLICT = ErrorCode(
    "CLV-0011",
    "The table moved between check and commit",
    "Somebody else committed to the table meanwhile.",
    "Run again: the next commit looks at the table anew.",
)
UNKNOWN_OUTCOME = ErrorCode(
    "CLV-0012",
    "The effect may or may not have happened",
    "A part stopped answering in the middle of a call.",
    "Run again: the next one looks first, and nothing can happen twice.",
)
UNEXPECTED = ErrorCode(
    "CLV-0013",
    "An error that Calve has no word for",
    "An error of a library that Calve has no word for, or a fault of Calve's own.",
    (
        "Run again; if it stays, report it with the file that the message names. `calve --debug COMMAND` shows the "
        "traceback in place of it."
    ),
)
FAULT = ErrorCode(
    "CLV-0014",
    "A fault, most likely in Calve or a client",
    (
        "Offsets that don't increase, an event that was delivered twice or out of order, a change behind the rows "
        "that all changes are held against, a lag without a size: nothing was published or committed."
    ),
    "Run again; if it stays, report it with the versions of Calve, the brokers and librdkafka.",
)
