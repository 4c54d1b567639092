"""What the example's alerts say, and what is no webhook."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calve import Alert
from examples.flights.alerts import URL_VARIABLE, post, text
from tests.codes import names

ALERT = Alert(
    pipeline="flights",
    stage="ingest",
    error="BadRecord",
    message="no number",
    remedy="calve inspect",
    run_id="0123456789",
    job_name="flights_ingest_job",
    at="2026-11-21T12:00:00+00:00",
    folded=2,
)


def test_a_person_reads_what_failed_what_to_do_and_how_often() -> None:
    assert text(ALERT).startswith("flights ingest: BadRecord\nno number\n→ calve inspect\n")
    names(text(ALERT), "01234567", ALERT.job_name, ALERT.at, 2)
    assert "→" not in text(replace(ALERT, remedy=""))
    assert "more" not in text(replace(ALERT, folded=0))


@pytest.mark.parametrize("url", ["ftp://host/secret", "host/secret", "http://host/se cret", "http://host:secret/"])
def test_what_is_no_url_is_refused_and_not_repeated(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, url)
    with pytest.raises(ValueError, match=URL_VARIABLE) as failure:
        post(ALERT)
    assert "cret" not in str(failure.value)
    assert failure.value.__cause__ is None


def test_without_the_variable_the_alert_goes_to_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    post(ALERT)
    assert "flights ingest: BadRecord" in caplog.text
