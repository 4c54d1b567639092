"""Failed runs on a real Dagster instance, the sensor's ticks as Dagster makes them, and a webhook that is there."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.definitions.sensor_definition import SensorExecutionData

from calve.orchestration.dagster.alerts import Alert, NotPosted, alert_sensor
from calve.orchestration.dagster.common.names import PIPELINE_TAG, STAGE_TAG
from calve.orchestration.dagster.common.runs import UNEXPLAINED, error_tags
from calve.sink_core.errors import BadRecord, CalveError, FindingError, Unreachable
from examples.flights import alerts as example

BAD = BadRecord("flights[3]@17: no number in 'delay'", hint="calve inspect flights 3 17")
GONE = Unreachable("no answer from broker:9092", hint="start it")


def run(
    instance: DagsterInstance, ends: Exception | None, *, stage: str = "ingest", pipeline: str | None = "flights"
) -> str:
    """A run of a job tagged as a pipeline's are; its id. Calve's errors tag it as its ops do."""

    @dg.op
    def work(context: dg.OpExecutionContext) -> None:
        if isinstance(ends, CalveError):
            context.instance.add_run_tags(context.run_id, error_tags(ends))
        if ends is not None:
            raise ends

    @dg.job(name=f"flights_{stage}_job", tags={PIPELINE_TAG: pipeline, STAGE_TAG: stage} if pipeline else {})
    def job() -> None:
        work()

    done = job.execute_in_process(instance=instance, raise_on_error=False)
    assert done.success == (ends is None)
    return done.run_id


@dataclass
class Sensor:
    """The alert sensor with the cursor that the daemon keeps for it; what it posted."""

    instance: DagsterInstance
    refusing: bool = False
    cursor: str | None = None
    posted: list[Alert] = field(default_factory=list[Alert])

    def __post_init__(self) -> None:
        self.sensor = alert_sensor(self._post)
        self.tick()  # the first only takes note of where the log ends

    def _post(self, alert: Alert) -> None:
        if self.refusing:
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


def test_an_alert_says_what_failed_where_and_what_to_do(instance: DagsterInstance, sensor: Sensor) -> None:
    run_id = run(instance, BAD)
    [alert] = sensor.look()
    assert (alert.pipeline, alert.stage, alert.error) == ("flights", "ingest", "BadRecord")
    assert (alert.message, alert.remedy) == (BAD.message, BAD.hint)
    assert (alert.run_id, alert.job_name, alert.folded) == (run_id, "flights_ingest_job", 0)
    at = datetime.fromisoformat(alert.at)
    assert at.utcoffset() == timedelta(0)
    ended = instance.get_run_stats(run_id).end_time
    assert ended is not None
    assert at == datetime.fromtimestamp(ended, UTC).replace(microsecond=0)


def test_what_only_a_person_can_end_is_posted_once_until_a_run_succeeds(
    instance: DagsterInstance, sensor: Sensor
) -> None:
    first = run(instance, BAD)
    run(instance, BadRecord("another message, the same error"))
    assert [alert.run_id for alert in sensor.look()] == [first]
    run(instance, BAD)
    assert sensor.look() == []
    run(instance, None, stage="checks")
    run(instance, BAD)
    assert sensor.look() == [], "a success of another stage ended the silence"
    run(instance, None)
    again = run(instance, BAD)
    assert [alert.run_id for alert in sensor.look()] == [again]


def test_another_error_another_stage_and_another_pipeline_are_posted_beside_it(
    instance: DagsterInstance, sensor: Sensor
) -> None:
    lost = FindingError("POSITIONS_LOST", "flights", stored="17", found="nothing", hint="calve resume")
    expected = [
        run(instance, BAD),
        run(instance, lost),
        run(instance, BAD, stage="commit"),
        run(instance, BAD, pipeline="trains"),
    ]
    posted = sensor.look()
    assert [alert.run_id for alert in posted] == expected
    assert [alert.error for alert in posted] == ["BadRecord", "POSITIONS_LOST", "BadRecord", "BadRecord"]


@pytest.mark.parametrize(("ends", "error"), [(GONE, "Unreachable"), (RuntimeError("no error of ours"), UNEXPLAINED)])
def test_what_may_pass_is_posted_at_the_third_run(
    instance: DagsterInstance, sensor: Sensor, ends: Exception, error: str
) -> None:
    runs = [run(instance, ends) for _ in range(5)]
    [alert] = sensor.look()
    assert (alert.run_id, alert.error, alert.folded) == (runs[2], error, 2)
    assert alert.remedy == (ends.hint if isinstance(ends, CalveError) else "")
    assert "no error of ours" not in alert.message


def test_runs_of_others_are_not_looked_at(instance: DagsterInstance, sensor: Sensor) -> None:
    for _ in range(3):
        run(instance, BAD, pipeline=None)
    assert sensor.look() == []


def test_a_post_that_raises_fails_the_tick_and_the_run_is_taken_up_again(
    instance: DagsterInstance, sensor: Sensor
) -> None:
    runs = [run(instance, BAD), run(instance, GONE), run(instance, BAD, stage="commit")]
    sensor.refusing = True
    for _ in range(2):
        before = sensor.cursor
        with pytest.raises(NotPosted, match=runs[0]) as failure:
            sensor.tick()
        assert isinstance(failure.value.__cause__, OSError)
        assert sensor.cursor == before
    sensor.refusing = False
    assert [alert.run_id for alert in sensor.look()] == [runs[0], runs[2]]


def test_what_was_posted_is_not_posted_again_when_the_next_post_raises(
    instance: DagsterInstance, sensor: Sensor
) -> None:
    runs = [run(instance, BAD), run(instance, BAD, stage="commit")]
    sensor.tick()
    sensor.refusing = True
    with pytest.raises(NotPosted, match=runs[1]):
        sensor.tick()
    sensor.refusing = False
    sensor.look()
    assert [alert.run_id for alert in sensor.posted] == runs


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


ALERT = Alert(
    pipeline="flights",
    stage="ingest",
    error="BadRecord",
    message="a <!channel> & more",
    remedy="calve inspect",
    run_id="0123456789",
    job_name="flights_ingest_job",
    at="2026-11-21T12:00:00+00:00",
    folded=2,
)


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
    text = str(taken["text"])
    assert text.startswith("flights ingest: BadRecord\n")
    assert BAD.message in text
    assert BAD.hint in text


def test_the_example_calls_nobody_by_what_a_message_holds(webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(example.URL_VARIABLE, webhook.url)
    example.post(ALERT)
    text = str(webhook.taken[0]["text"])
    assert "a &lt;!channel&gt; &amp; more" in text
    assert f" {ALERT.folded} " in text


def test_a_webhook_that_refuses_is_an_error_without_its_address(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook.answer = 503
    monkeypatch.setenv(example.URL_VARIABLE, webhook.url)
    with pytest.raises(OSError, match="503") as failure:
        example.post(ALERT)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("url", ["ftp://host/secret", "host/secret", "http://host/se cret", "http://host:secret/"])
def test_what_is_no_url_is_refused_and_not_repeated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(example.URL_VARIABLE, url)
    with pytest.raises(ValueError, match=example.URL_VARIABLE) as failure:
        example.post(ALERT)
    assert "cret" not in str(failure.value)
    assert failure.value.__cause__ is None


def test_without_the_variable_the_alert_goes_to_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(example.URL_VARIABLE, raising=False)
    example.post(ALERT)
    assert "flights ingest: BadRecord" in caplog.text
