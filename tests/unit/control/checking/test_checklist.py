"""One failure doesn't hide the next, what rests on it isn't asked, and the exit code says the worst."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from calve.sink_core.codes import Code
from calve.sink_core.control.checking.checklist import (
    Check,
    MissingPermission,
    Note,
    Outcome,
    Status,
    answers,
    exit_code,
)
from calve.sink_core.errors import CalveError, ConfigError, Unreachable
from calve.sink_core.kafka.failures import reported
from tests.codes import names


def raising(error: CalveError) -> Check:
    def ask() -> str:
        raise error

    return Check("a", ask)


def test_what_needs_a_failed_check_is_skipped_and_the_rest_is_asked() -> None:
    checks = [
        raising(ConfigError("wrong", hint="set it")),
        Check("b", lambda: "never", needs=("a",)),
        Check("c", lambda: "never", needs=("b",)),
        Check("d", lambda: Note("read this", "maybe")),
        Check("e", lambda: "fine", needs=("d",)),
    ]
    found = {outcome.check: outcome for outcome in answers(checks)}
    skipped = {name: found.pop(name) for name in "bc"}
    assert list(found.values()) == [
        Outcome("a", Status.FAILED, "wrong", "set it", code=Code.WRONG_INPUT),
        Outcome("d", Status.NOTE, "read this", "maybe"),
        Outcome("e", Status.OK, "fine"),
    ]
    assert {outcome.status for outcome in skipped.values()} == {Status.SKIPPED}
    names(skipped["b"].message, "a")
    names(skipped["c"].message, "b")


@pytest.mark.parametrize(
    ("errors", "code"),
    [([], 0), ([ConfigError("c")], 1), ([Unreachable("u")], 3), ([ConfigError("c"), Unreachable("u")], 3)],
)
def test_the_exit_code_says_the_worst(errors: list[CalveError], code: int) -> None:
    assert exit_code(answers(map(raising, errors))) == code


def test_a_missing_acl_is_told_from_other_failures() -> None:
    def refused() -> str:
        with reported("describing topic t"):
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    found = list(answers([Check("x", refused), raising(MissingPermission("READ")), raising(ConfigError("else"))]))
    assert [outcome.unauthorized for outcome in found] == [True, True, False]
