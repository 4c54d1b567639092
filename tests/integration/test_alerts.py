"""Failed runs on a real Dagster instance, the sensor's ticks as Dagster makes them, and a webhook that is there."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.definitions.sensor_definition import SensorExecutionData

from calve.orchestration.dagster.alerts import TRIES, Alert, NotPosted, alert_sensor
from calve.orchestration.dagster.common.names import PIPELINE_TAG, STAGE_TAG
from calve.orchestration.dagster.common.runs import error_tags
from calve.sink_core.errors import BadRecord, CalveError, Unreachable
from examples.flights import alerts as example

BAD = BadRecord("flights[3]@17: no <!channel> & no number", hint="calve inspect flights 3 17")
GONE = Unreachable("no answer from broker:9092", hint="start it")


def run(instance: DagsterInstance, error: CalveError, *, stage: str = "ingest") -> str:
    """A failed run of a job tagged as a pipeline's are; its id. The error tags it as its ops do."""

    @dg.op
    def work(context: dg.OpExecutionContext) -> None:
        context.instance.add_run_tags(context.run_id, error_tags(error))
        raise error

    @dg.job(name=f"flights_{stage}_job", tags={PIPELINE_TAG: "flights", STAGE_TAG: stage})
    def job() -> None:
        work()

    return job.execute_in_process(instance=instance, raise_on_error=False).run_id


@dataclass
class Sensor:
    """The alert sensor with the cursor that the daemon keeps for it; what it posted."""

    instance: DagsterInstance
    refusing: bool = False
    refuses: str = ""
    cursor: str | None = None
    posted: list[Alert] = field(default_factory=list[Alert])

    def __post_init__(self) -> None:
        self.sensor = alert_sensor(self._post)
        self.tick()  # the first only takes note of where the log ends

    def _post(self, alert: Alert) -> None:
        if self.refusing or alert.run_id == self.refuses:
            raise OSError("503")
        self.posted.append(alert)

    def tick(self) -> SensorExecutionData:
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor)
        data = self.sensor.evaluate_tick(context)
        # As the daemon does, also for reactions that failed.
        self.cursor = data.cursor
        return data

    def look(self) -> list[Alert]:
        """Tick until there is nothing left; the alerts posted meanwhile."""
        before = len(self.posted)
        while self.tick().dagster_run_reactions:
            pass
        return self.posted[before:]


@pytest.fixture
def sensor(instance: DagsterInstance) -> Sensor:
    return Sensor(instance)


def test_a_post_that_raises_fails_the_tick_and_the_run_is_taken_up_again(
    instance: DagsterInstance, sensor: Sensor
) -> None:
    runs = [run(instance, BAD), run(instance, BAD, stage="commit"), run(instance, GONE)]
    for posted, refused in enumerate(runs[:2]):
        sensor.refusing = True
        for _ in range(2):
            before = sensor.cursor
            with pytest.raises(NotPosted, match=refused) as failure:
                sensor.look()
            assert isinstance(failure.value.__cause__, OSError)
            assert sensor.cursor == before
        assert len(sensor.posted) == posted
        sensor.refusing = False
        sensor.tick()
    assert sensor.look() == []
    assert [alert.run_id for alert in sensor.posted] == runs[:2], "each once"


def test_an_alert_that_can_not_be_posted_keeps_back_no_other(instance: DagsterInstance, sensor: Sensor) -> None:
    runs = [run(instance, BAD), run(instance, BAD, stage="commit"), run(instance, BAD, stage="checks")]
    sensor.refuses = runs[0]
    for _ in range(TRIES - 1):
        with pytest.raises(NotPosted, match=runs[0]):
            sensor.look()
    sensor.look()
    assert [(alert.run_id, alert.unposted) for alert in sensor.posted] == [(runs[1], 1), (runs[2], 0)]


# The example


@dataclass
class Webhook:
    url: str
    answer: int = 200
    taken: list[dict[str, object]] = field(default_factory=list[dict[str, object]])


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if hook.answer == 200:
                hook.taken.append({"content type": self.headers["Content-Type"], "path": self.path, **body})
            self.send_response(hook.answer)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the class above
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook = Webhook(f"http://127.0.0.1:{server.server_port}/services/secret")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield hook
        server.shutdown()
        thread.join()


def test_the_example_sends_a_failed_run_to_the_webhook(
    instance: DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(example.URL_VARIABLE, f"{webhook.url}\n")
    first = example.alerts.evaluate_tick(dg.build_sensor_context(instance=instance))
    run_id = run(instance, BAD)
    example.alerts.evaluate_tick(dg.build_sensor_context(instance=instance, cursor=first.cursor))
    [taken] = webhook.taken
    assert (taken["content type"], taken["path"]) == ("application/json", "/services/secret")
    assert (taken["pipeline"], taken["error"], taken["run_id"]) == ("flights", "BadRecord", run_id)
    ended = instance.get_run_stats(run_id).end_time
    assert ended is not None
    assert taken["at"] == datetime.fromtimestamp(ended, UTC).isoformat(timespec="seconds")
    text = str(taken["text"])
    assert text.startswith("flights ingest: BadRecord\n")
    assert "flights[3]@17: no &lt;!channel&gt; &amp; no number" in text, "or it would call everybody"
    assert BAD.hint in text


def test_a_webhook_that_refuses_is_an_error_without_its_address(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook.answer = 503
    monkeypatch.setenv(example.URL_VARIABLE, webhook.url)
    with pytest.raises(OSError, match="503") as failure:
        example.post(Alert("flights", "ingest", "BadRecord", "bad", "", "0123456789", "job", "2026-11-21", 0))
    assert "secret" not in str(failure.value)
