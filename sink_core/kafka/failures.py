"""Kafka's and librdkafka's errors as Calve's: the one place that knows what an error code means for the user.

Codes: https://kafka.apache.org/protocol#protocol_error_codes and librdkafka's `rdkafka.h` (negative: local errors).
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

from calve.sink_core.codes import Code
from calve.sink_core.errors import CalveError, ConfigError, Fenced, RetriableError, Unreachable
from calve.sink_core.kafka.compat import TIMED_OUT

GRACE_S = 2.0
"""librdkafka answers within a request's own time-out; who waits a little longer gets its more exact error."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Meaning:
    error: type[CalveError]
    code: Code
    hint: str
    codes: frozenset[int]


def _codes(names: str) -> frozenset[int]:
    return frozenset(getattr(KafkaError, name) for name in names.split())


_MEANINGS = (
    _Meaning(
        Unreachable,
        Code.NO_BROKER,
        "check `bootstrap.servers` and that the brokers run; a refused log-in can look like this too: check "
        "`security.protocol`, `sasl.*` and `ssl.*`",
        _codes(
            "_TRANSPORT _ALL_BROKERS_DOWN _RESOLVE _TIMED_OUT _TIMED_OUT_QUEUE _MSG_TIMED_OUT _DESTROY_BROKER "
            "_UNKNOWN_BROKER _WAIT_COORD _WAIT_CACHE REQUEST_TIMED_OUT NETWORK_EXCEPTION REBOOTSTRAP_REQUIRED"
        ),
    ),
    _Meaning(
        Unreachable,
        Code.LOG_IN,
        "check `security.protocol`, `sasl.mechanism`, `sasl.username`, `sasl.password` and `ssl.ca.location`, and that "
        "`bootstrap.servers` names the listener they are for",
        _codes(
            "_AUTHENTICATION _SSL SASL_AUTHENTICATION_FAILED ILLEGAL_SASL_STATE UNSUPPORTED_SASL_MECHANISM "
            "SECURITY_DISABLED DELEGATION_TOKEN_EXPIRED DELEGATION_TOKEN_NOT_FOUND "
            "PRINCIPAL_DESERIALIZATION_FAILURE UNACCEPTABLE_CREDENTIAL"
        ),
    ),
    _Meaning(
        Unreachable,
        Code.BROKERS_BUSY,
        "the brokers answered but cannot serve this now (election, missing replicas, overload): run again, and look at "
        "the cluster if it stays",
        _codes(
            "BROKER_NOT_AVAILABLE LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION REPLICA_NOT_AVAILABLE "
            "PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS "
            "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR NOT_CONTROLLER NOT_ENOUGH_REPLICAS "
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND KAFKA_STORAGE_ERROR OFFSET_NOT_AVAILABLE FENCED_LEADER_EPOCH "
            "UNKNOWN_LEADER_EPOCH STALE_CTRL_EPOCH STALE_BROKER_EPOCH THROTTLING_QUOTA_EXCEEDED "
            "FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH _ISR_INSUFF TRANSACTION_COORDINATOR_FENCED "
            # How librdkafka says that a partition has no leader at the moment.
            "_NOENT"
        ),
    ),
    _Meaning(
        RetriableError,
        Code.RETRIABLE,
        "run again",
        _codes(
            "CONCURRENT_TRANSACTIONS UNSTABLE_OFFSET_COMMIT REBALANCE_IN_PROGRESS TRANSACTION_ABORTABLE "
            "OPERATION_NOT_ATTEMPTED UNKNOWN_PRODUCER_ID INVALID_PRODUCER_ID_MAPPING _RETRY _IN_PROGRESS "
            "_PREV_IN_PROGRESS _QUEUE_FULL _INTR _OUTDATED _PARTIAL"
        ),
    ),
    _Meaning(
        Fenced,
        Code.FENCED,
        "another run of this pipeline took over; let it finish, or run again",
        # Once a producer has been told that it is fenced, librdkafka answers whatever it is asked next with _FATAL.
        _codes("_FENCED _FATAL PRODUCER_FENCED INVALID_PRODUCER_EPOCH FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH"),
    ),
    _Meaning(
        ConfigError,
        Code.NO_SUCH_TOPIC,
        "check the spelling of the topic, that it exists on the cluster `bootstrap.servers` names, and that its ACLs "
        "allow DESCRIBE",
        _codes(
            "UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID TOPIC_EXCEPTION _UNKNOWN_TOPIC "
            "_UNKNOWN_PARTITION"
        ),
    ),
    _Meaning(
        ConfigError,
        Code.TOO_LARGE,
        "the answer holds a record, or a compressed batch of records, larger than this client accepts: set "
        "`receive.message.max.bytes` under `kafka` in connections.yaml to more than the topic's largest batch unpacked",
        _codes("_BAD_MSG _BAD_COMPRESSION"),
    ),
    _Meaning(
        ConfigError,
        Code.NOT_GRANTED,
        "grant the principal the missing ACL; `calve check FILE` prints the ones a pipeline needs",
        _codes(
            "TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED "
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED"
        ),
    ),
    _Meaning(
        RetriableError,
        Code.TOO_FEW_BROKERS,
        "wait until the brokers that are away are back; if there never were so many, set `replication_factor`",
        _codes("INVALID_REPLICATION_FACTOR"),
    ),
    _Meaning(
        RetriableError,
        Code.NO_ROOM,
        "free memory, open files, threads or disk of this host",
        _codes("_CRIT_SYS_RESOURCE _FS"),
    ),
    _Meaning(
        ConfigError,
        Code.KAFKA_SETTING,
        "correct the setting the message names, under `kafka` in connections.yaml or on the broker",
        _codes(
            "_INVALID_ARG _NOT_CONFIGURED _UNSUPPORTED_FEATURE _NOT_IMPLEMENTED "
            "INVALID_CONFIG UNSUPPORTED_VERSION UNSUPPORTED_FOR_MESSAGE_FORMAT UNSUPPORTED_COMPRESSION_TYPE "
            "INVALID_GROUP_ID INVALID_TRANSACTION_TIMEOUT INVALID_PARTITIONS "
            "POLICY_VIOLATION MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE OFFSET_METADATA_TOO_LARGE "
            "INVALID_COMMIT_OFFSET_SIZE _UNKNOWN_PROTOCOL"
        ),
    ),
)
_UNEXPECTED = "not an error Calve expects here: run again, and see the brokers' logs if it stays"


def classify(error: KafkaException | KafkaError, doing: str) -> CalveError:
    """The Calve error for `error`, met while `doing` something ("reading the end offsets of flights")."""
    cause = _kafka_error(error)
    if cause is None:
        return RetriableError(f"{doing}: {error}", hint=_UNEXPECTED, code=Code.UNKNOWN_KAFKA_ERROR)
    message = f"{doing}: {cause.name()}: {cause.str()}"
    for meaning in _MEANINGS:
        if cause.code() in meaning.codes:
            return meaning.error(message, hint=meaning.hint, code=meaning.code)
    if cause.retriable():
        return RetriableError(message, hint="run again")
    return RetriableError(message, hint=_UNEXPECTED, code=Code.UNKNOWN_KAFKA_ERROR)


@contextmanager
def reported(doing: str) -> Generator[None]:
    """Raise the Calve error for every Kafka error or time-out of the block."""
    try:
        yield
    except KafkaException as error:
        raise classify(error, doing) from error
    except TimeoutError as error:
        raise classify(KafkaError(TIMED_OUT), doing) from error


def answered(future: Future[T], doing: str, timeout_s: float) -> T:
    """What the brokers answer to an admin client's request, which has a time-out of `timeout_s` of its own.

    Raises the Calve error for what they answer instead, or for no answer.
    """
    with reported(doing):
        failed = future.exception(timeout_s + GRACE_S)
    if isinstance(failed, KafkaException):
        # Raising it would have it hold the frames, and they the future that holds it: their clients would stay.
        raise classify(failed, doing) from failed
    return future.result()


def said(error: CalveError, *codes: int) -> bool:
    """Whether one of these of Kafka's error codes is what `error` was made of."""
    cause = error.__cause__
    return isinstance(cause, KafkaException) and (found := _kafka_error(cause)) is not None and found.code() in codes


def _kafka_error(error: KafkaException | KafkaError) -> KafkaError | None:
    cause: object = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return cause if isinstance(cause, KafkaError) else None
