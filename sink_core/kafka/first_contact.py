"""The first question to a cluster, answered soon: with what it is, or with who does not answer and why.

librdkafka waits for a broker that refuses connections as for one that is busy, and tells why only to those who ask for
its errors. They are asked for once an answer is late.
"""

from __future__ import annotations

import re
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from calve.sink_core.codes import Code
from calve.sink_core.config.references import redact
from calve.sink_core.errors import Unreachable
from calve.sink_core.kafka import clients
from calve.sink_core.kafka.clients import Settings
from calve.sink_core.kafka.compat import ALL_BROKERS_DOWN, TIMED_OUT, TRANSPORT, DescribeClusterResult
from calve.sink_core.kafka.failures import answered, classify, reported
from calve.sink_core.timing import Deadline

ANSWER_S = 4.5
"""What a cluster has for its first answer."""

PATIENT_S = 30.0
"""What a cluster has whose brokers neither answer nor refuse, where nobody waits at a terminal: they may be busy."""

LATE_S = 1.0
"""From then on it is asked why there is none."""

_ASIDE = re.compile(r"/bootstrap(?=:)| \(after .*?\)")
_HINTS = {
    "Connection refused": "is a broker running there? `bootstrap.servers` under `kafka` says where to look",
    "Failed to resolve": "correct the name of the host in `bootstrap.servers` under `kafka`",
    "No route to host": "nothing leads there from here: check `bootstrap.servers` under `kafka` and the network",
}


def cluster(
    admin: AdminClient, settings: Settings, *, answer_s: float = ANSWER_S, silent_s: float = 0.0
) -> DescribeClusterResult:
    """The cluster, with the id that it was formatted with. `settings` are those that `admin` was made with.

    Raises Unreachable naming each address and its error, after `answer_s` at most, or after `silent_s` if that is
    longer and no connection has failed; and what `classify` makes of others.
    """
    servers = str(redact(settings).get("bootstrap.servers", ""))
    doing = f"connecting to Kafka at {servers}"
    silent_s = max(answer_s, silent_s)
    until, silent_until = Deadline.after(answer_s), Deadline.after(silent_s)
    with reported(doing):
        found = admin.describe_cluster(request_timeout=silent_s)
    with suppress(TimeoutError):
        found.exception(min(LATE_S, answer_s / 2))
        return answered(found, doing, silent_s)
    said = _said(settings, found, until, silent_until)
    if found.done() and found.exception() is None:
        return found.result()
    if not said:
        raise classify(KafkaError(TIMED_OUT, f"no answer for {silent_s:g} s"), doing)
    hint = next((hint for sign, hint in _HINTS.items() if any(sign in each for each in said)), None)
    raise Unreachable(
        f"{doing}: {'; '.join(said)}", hint=hint or classify(KafkaError(TRANSPORT), "").hint, code=Code.NO_BROKER
    )


def _said(settings: Settings, found: Future[Any], until: Deadline, silent_until: Deadline) -> list[str]:
    """What connections to the brokers fail with, in words, each once; until an answer comes or the time is up, which is
    later while none has failed."""
    said = dict[str, None]()

    def note(error: KafkaError) -> None:
        if error.code() != ALL_BROKERS_DOWN:
            said[_ASIDE.sub("", error.str())] = None

    asking = clients.admin({**settings, "error_cb": note})
    while not (until if said else silent_until).passed and not (found.done() and found.exception() is None):
        asking.poll(0.05)
    return list(said)
