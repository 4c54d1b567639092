"""Codes of Kafka: reaching it, its topics, groups and the control topic."""

from calve.sink_core.error_codes.code import ErrorCode

NO_BROKER = ErrorCode(
    "CLV-2101",
    "No broker answers",
    (
        "No broker of `bootstrap.servers` can be reached: what connections fail with stands behind each address. "
        "A refused log-in can look like this where the broker says nothing of it."
    ),
    "Check `bootstrap.servers`, then `security.protocol`, `sasl.*` and `ssl.*`.",
)
LOG_IN = ErrorCode(
    "CLV-2102",
    "Kafka refuses the log-in or the certificate",
    "User, password or certificate are not accepted. A broker that has just started may not know its users yet.",
    "Check user, password and `ssl.ca.location`, and that `bootstrap.servers` names the listener they are for.",
)
BROKERS_BUSY = ErrorCode(
    "CLV-2103",
    "The brokers can't serve this now",
    "An election, missing replicas or overload.",
    "Run again, and look at the cluster if it stays.",
)
NO_SUCH_TOPIC = ErrorCode(
    "CLV-2104",
    "The topic isn't there",
    "It isn't on that cluster, or may not be described.",
    "Check spelling, cluster and ACLs.",
)
TOO_LARGE = ErrorCode(
    "CLV-2105",
    "A record is larger than the client accepts",
    "A record, or a zstd batch that unpacks to more. Nothing was published: the next run reads the record.",
    "Set `receive.message.max.bytes` under `kafka`; 256 MiB is Calve's default.",
)
NOT_GRANTED = ErrorCode(
    "CLV-2106",
    "An ACL is missing",
    "The principal may not do what a pipeline does.",
    "`calve check` prints the permissions needed.",
)
KAFKA_SETTING = ErrorCode(
    "CLV-2107",
    "A setting of Kafka is wrong",
    "The client or the broker refuses a setting.",
    "Correct the one that the message names, under `kafka` in connections.yaml or on the broker.",
)
UNKNOWN_KAFKA_ERROR = ErrorCode(
    "CLV-2108",
    "A Kafka error without a known cause",
    "Not an error that Calve expects here.",
    "Run again; look at the brokers' logs if it stays.",
)
NO_ROOM = ErrorCode(
    "CLV-2135",
    "The Kafka client lacks memory, files, threads or disk",
    "This host refuses the client what it asks for.",
    "Free it, or raise the limit (`ulimit -n`); run again.",
)
NO_ANSWER = ErrorCode(
    "CLV-2109",
    "The broker stopped answering",
    "The control topic gave no event for a minute, or took none.",
    "Run again.",
)
LONG_LOG = ErrorCode(
    "CLV-2136",
    "A control log takes long to read",
    "Each process reads it from its start. A sensor goes on where its last look was; nothing is wrong with the broker.",
    "Have `maintain trim` delete what nobody needs: it says what the rest is needed for. A table that is behind keeps "
    "events; so does `maintenance.trim.older_than`.",
)
NOT_ACKNOWLEDGED = ErrorCode(
    "CLV-2110",
    "Events were not acknowledged",
    "The broker stopped answering while publishing.",
    "Run again: the next publish looks first.",
)
OPEN_TRANSACTION = ErrorCode(
    "CLV-2111",
    "The last stable offset stays",
    "A publisher died in its transaction.",
    "Run again after a minute.",
)
SILENT_PARTITION = ErrorCode(
    "CLV-2112",
    "Nothing comes from a partition",
    "It has no leader, or a transaction hangs on a source topic.",
    "Look at the partition; `kafka-transactions.sh` finds hanging ones.",
)
CONTROL_TOPIC_SETTINGS = ErrorCode(
    "CLV-2113",
    "The control topic may forget events",
    "Its settings let the broker delete events that a table still lacks.",
    "Set them as the hint says.",
)
GROUP_IN_USE = ErrorCode(
    "CLV-2114",
    "Somebody uses the source group",
    "A consumer is in it, or its positions change faster than they can be read.",
    "Stop it, or give it another `group.id`.",
)
OFFSETS_RETENTION = ErrorCode(
    "CLV-2115",
    "Positions of idle partitions would be forgotten",
    "`offsets.retention.minutes` below a day.",
    "Raise it.",
)
FOREIGN_POSITIONS = ErrorCode(
    "CLV-2116",
    "Positions that no publish put there",
    (
        "Somebody used the group's name before the first run, or moved all positions of a pipeline whose control "
        "topic is gone and whose tables have nothing yet."
    ),
    "Delete the group's offsets if nothing needs them.",
)
EDITED_POSITIONS = ErrorCode(
    "CLV-2117",
    "Positions carry several batch ids",
    "The group's offsets were changed by hand.",
    "As for the finding `positions-changed`.",
)
BEYOND_END = ErrorCode(
    "CLV-2118",
    "A position lies beyond the end of the log",
    "As for the finding `positions-beyond-end`, seen while planning.",
    "See there.",
)
PARTITIONS_ADDED = ErrorCode(
    "CLV-2119",
    "Partitions were added while the offsets were read",
    "A partition has a start and no end, or the other way round.",
    "Run again.",
)
NEWER_VERSION = ErrorCode(
    "CLV-2120",
    "A newer Calve wrote to the pipeline",
    "The control topic holds an event that this version can't read.",
    "Upgrade this host.",
)
UNCARRIABLE = ErrorCode(
    "CLV-2121",
    "A record can't be copied as it is",
    (
        "The client can't send timestamp 0, which it takes for now, nor read a header whose name is not UTF-8. Nothing "
        "of its transaction was copied."
    ),
    "Correct the producer, or set `on_uncarriable: adjust`: the record is copied with timestamp 1, or without headers.",
)
ONE_CLUSTER = ErrorCode(
    "CLV-2131",
    "Source and target of a mirror are one cluster",
    "Both connections lead to the same Kafka, by whatever addresses.",
    "Correct the addresses of one of them.",
)
CYCLE = ErrorCode(
    "CLV-2132",
    "A mirror would copy back what another one copies",
    "A mirror the other way reads the remote topic and writes to the topic that is read here: each record would go "
    "round for ever.",
    "Name remote topics by cluster (`target.names`), leave the topic out, or pause the other mirror for good.",
)
TOO_FEW_BROKERS = ErrorCode(
    "CLV-2133",
    "A topic can't have as many replicas as it is to have",
    (
        "The cluster has fewer brokers than `replication_factor`, or its own default, asks for; or one of them is "
        "down, or restarts."
    ),
    "Wait until it is back: each later run tries. If there never were so many, lower `target.replication_factor`, or "
    "leave it out for the cluster's own.",
)
REFUSED = ErrorCode(
    "CLV-2122",
    "The target refuses a record",
    "Its topic takes no record like this one, or is gone. Nothing of its transaction was copied. The topic stands "
    "still in front of it, all others go on; only a mirror that has no other topic stops.",
    "Set what the message names, and run again: the mirror goes on with this record.",
)
NEVER_COPIED = ErrorCode(
    "CLV-2134",
    "`source.topics` of a mirror names a topic that is never copied",
    "It is a topic of Kafka's or Calve's own, its remote topic would be one that MirrorMaker 2's client looks into, or "
    "by its name it came from the target. Nothing was copied.",
    "Leave it out. If it only looks as if it came from the target, give that another name by `target.cluster`.",
)
