"""Two clusters that demand TLS, a password and ACLs: what `calve check` prints is enough for a mirror, and needed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from calve.sink_core.codes import Code
from calve.sink_core.errors import EXIT_BAD_INPUT, EXIT_STOPPED
from tests import support
from tests.codes import says
from tests.guarded import PASSWORD, GuardedBroker, grant, let_in, login, taken_away
from tests.launch import Done, forked
from tests.support import TIMEOUT_S

SECRET = "CALVE_TEST_PASSWORD"


@dataclass(frozen=True)
class GuardedMirror:
    """A mirror between two such clusters, each of which knows its user by another name."""

    source: GuardedBroker
    target: GuardedBroker
    file: Path
    topic: str
    other: str
    """Read as well, by a pattern."""

    @classmethod
    def create(cls, source: GuardedBroker, target: GuardedBroker, directory: Path) -> GuardedMirror:
        users = [support.unique(side) for side in ("reader", "writer")]
        for broker, user in zip((source, target), users, strict=True):
            let_in(broker.bootstrap, user)
        topic, other = (support.unique(name) for name in ("mirrored", "shop"))
        for name in (topic, other):
            support.create_topic(source.bootstrap, name, 2)
        entries = [
            {"bootstrap.servers": broker.address, **login(broker, user)}
            for broker, user in zip((source, target), users, strict=True)
        ]
        connections = {
            "deployment": support.unique("guarded"),
            "kafka": dict(zip(("eu", "us"), entries, strict=True)),
            "spark": {"small": {"master": "local[2]"}},
        }
        (directory / "connections.yaml").write_text(json.dumps(connections))
        pipeline = {
            "name": "eu_to_us",
            "kind": "mirror",
            "source": {"kafka": "eu", "topics": [topic], "topics_regex": f"{other}.*"},
            "target": {"kafka": "us"},
            "groups": {"include": [f"{topic}-readers"]},
            "batch": support.SHORT_CUT,
            # Nothing of the control topic is younger than what a trim may delete.
            "maintenance": {"trim": {"older_than": 0}},
        }
        file = directory / "pipeline.yaml"
        file.write_text(json.dumps(pipeline))
        return cls(source, target, file, topic, other)

    def calve(self, command: str, *options: str) -> Done:
        name, *more = command.split()
        return forked(name, str(self.file), *more, *options, cwd=self.file.parent, **{SECRET: PASSWORD})

    def printed(self) -> list[str]:
        """The lines for `kafka-acls` that `calve check --acls` prints."""
        return [line for line in self.calve("check --acls").stdout.splitlines() if line.startswith("kafka-acls ")]

    def admin_for(self, line: str) -> AdminClient:
        """The administrator of the cluster that a line is for."""
        [broker] = [each for each in (self.source, self.target) if f"--bootstrap-server {each.address} " in line]
        return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def mirror(guarded_broker: GuardedBroker, other_guarded_broker: GuardedBroker, tmp_path: Path) -> GuardedMirror:
    return GuardedMirror.create(guarded_broker, other_guarded_broker, tmp_path)


def test_the_acls_that_are_printed_are_enough_and_each_is_needed(mirror: GuardedMirror) -> None:
    source, target = mirror.source.bootstrap, mirror.target.bootstrap
    lines = mirror.printed()
    assert {f"--bootstrap-server {each.address} " in line for line in lines for each in (mirror.source,)} == {
        True,
        False,
    }
    assert mirror.calve("check").returncode == EXIT_STOPPED
    refused = mirror.calve("run")
    assert refused.returncode == EXIT_BAD_INPUT
    says(refused.stderr, Code.NOT_GRANTED)
    for line in lines:
        grant(mirror.admin_for(line), line)

    for topic in (mirror.topic, mirror.other):
        support.produce(source, topic, [b"%d" % i for i in range(20)], keys=[b"k%d" % i for i in range(20)])
    readers = f"{mirror.topic}-readers"
    support.commit_offset(source, readers, mirror.topic, 7)
    for command in ("check", "run", "status", "verify --deep", "maintain trim", "maintain keep-alive", "run"):
        _ok(mirror, command)
    assert support.committed_offset(target, readers, f"eu.{mirror.topic}") == 7
    # What comes later: a partition, a setting of the topic, a topic of the pattern.
    admin = AdminClient({"bootstrap.servers": source})
    admin.create_partitions([NewPartitions(mirror.topic, 3)])[mirror.topic].result(TIMEOUT_S)
    later = support.create_topic(source, f"{mirror.other}-later")
    support.produce(source, mirror.topic, [b"late"], partition=2)
    support.produce(source, later, [b"later"])
    _ok(mirror, "run")
    for topic, partitions in ((mirror.topic, 3), (mirror.other, 2), (later, 1)):
        for partition in range(partitions):
            found, copied = (
                [(m.key(), m.value(), m.timestamp()) for m in support.messages(cluster, name, partition=partition)]
                for cluster, name in ((source, topic), (target, f"eu.{topic}"))
            )
            assert copied == found

    for line in lines:
        with taken_away(mirror.admin_for(line), line):
            checked = mirror.calve("check")
            assert checked.returncode in (EXIT_STOPPED, EXIT_BAD_INPUT), line
            assert line in checked.stdout, "printed again, to be granted"
    _ok(mirror, "check")

    # A group that is listed and can't be read holds up no record.
    [line] = [line for line in lines if f"--bootstrap-server {mirror.source.address} " in line and readers in line]
    listed = line.replace(f"--group {readers}", "--cluster kafka-cluster")
    support.produce(source, mirror.topic, [b"more"])
    with taken_away(admin, line):
        grant(admin, listed)
        done = mirror.calve("run", "--json")
    assert done.returncode == 0, done.stderr
    [blocker] = json.loads(done.stdout)["blockers"]
    assert blocker["where"] == f"group {readers}"
    # The client waits for the group's coordinator, of which it isn't told.
    says(blocker["why"], Code.NO_BROKER)
    assert support.consume(target, f"eu.{mirror.topic}")[-1] == b"more"


def _ok(mirror: GuardedMirror, command: str) -> None:
    name, *options = command.split()
    task = [options.pop(0)] if name == "maintain" else []
    done = mirror.calve(name, *task, *options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
