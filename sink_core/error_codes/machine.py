"""Codes of what a machine needs: Spark, Java, the local servers."""

from calve.sink_core.error_codes.code import ErrorCode

SPARK_START = ErrorCode(
    "CLV-6101",
    "Spark doesn't start",
    "Wrong `master` or `conf`, or no Java 17.",
    "Read the line shown.",
)
SPARK_CONNECT = ErrorCode(
    "CLV-6102",
    "The Spark Connect server doesn't answer",
    "It is down, or wants another token.",
    "Check `remote` under `spark` in connections.yaml, and that the server runs.",
)
SPARK_LOST = ErrorCode(
    "CLV-6103",
    "Spark lost a task, or rows of one",
    (
        "A task vanished, its process died as often as Spark tries it, or the driver ended; or an executor was lost, "
        "and a topic that was compacted meanwhile was read again. What was not published before is read again."
    ),
    "Look at Spark's log, run again. Where memory is scarce lower `batch.max_bytes`, or `tasks` under `spark`.",
)
EXECUTORS = ErrorCode(
    "CLV-6104",
    "Spark's executors lack something",
    "They have no Calve, no library or no variable.",
    "Install and set it there.",
)
CLASS_ARCHIVE = ErrorCode(
    "CLV-6105",
    "The class archive could not be made",
    (
        "`calve spark prepare` was run by someone who may not write to the Python environment (`share/calve`), or "
        "with a Java that can't archive classes."
    ),
    "Run it as the environment's owner, with OpenJDK 17 or newer; or leave it: Spark just starts slower.",
)
JAVA = ErrorCode(
    "CLV-6106",
    "There is no Java 17",
    "Kafka and Spark need it.",
    "Install it, or set `JAVA_HOME`.",
)
MAVEN = ErrorCode(
    "CLV-6107",
    "Jars could not be fetched",
    "No way to Maven Central, or something on it answers with something else.",
    "Set `HTTPS_PROXY`, or copy the folder named in the hint from a machine that has it.",
)
JARS_DIFFER = ErrorCode(
    "CLV-6108",
    "What was fetched is not what Calve was made with",
    "A file from Maven Central or PyPI, or from a mirror or proxy in its place, has another SHA-256 than Calve knows.",
    "Nothing of it was used. Find out what on the way answers with other files before you go on.",
)
PORT_TAKEN = ErrorCode(
    "CLV-6201",
    "A port is taken",
    "Another process listens on the port of the broker.",
    "End it, or choose another port.",
)
RUNS_OTHERWISE = ErrorCode(
    "CLV-6202",
    "The server runs already, in another way than asked for",
    (
        "The broker of that folder runs on another port; or the warm Spark of these connections was started with "
        "other settings, or by another version of Calve."
    ),
    "Leave them out, or stop it first.",
)
BROKER_STORAGE = ErrorCode(
    "CLV-6203",
    "The broker's storage could not be formatted",
    "A server property of the broker is wrong.",
    "Correct it.",
)
NOT_STARTED = ErrorCode(
    "CLV-6204",
    "The local server failed",
    "The embedded broker, or the warm Spark, ended while starting, or does not answer.",
    "Read the lines shown, and `broker.log` or `spark.log`.",
)
DRILL = ErrorCode(
    "CLV-6205",
    "The drill can't begin",
    "`calve drill` was refused what a pipeline needs.",
    (
        "The rest of the message is that of the check that failed; for permissions see *A drill* in "
        "[operations.md](operations.md#a-drill)."
    ),
)
RUN_DIED = ErrorCode(
    "CLV-6301",
    "A run of Dagster gave no sign of life",
    (
        "Its process is gone, or stood still for so long: its machine or code server was restarted, memory was scarce, "
        "or the process was stopped. What it has published stays, what it has not is read again."
    ),
    "Nothing: the next run goes on. If it happens again, look at the memory and the log of the code server.",
)
