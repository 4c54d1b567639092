"""How errors end: exit codes, hints, JSON, and no traceback."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from calve.orchestration.cli.boundary import DEBUG, command
from calve.orchestration.cli.options import AsJson
from calve.sink_core import errors
from calve.sink_core.codes import Code
from tests.codes import says
from tests.launch import CALVE

FINDING = errors.FindingError("table-rolled-back", "air.flights", stored="1", found="2", hint="calve resolve")


def app_that_raises(error: BaseException) -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)

    def fail(as_json: AsJson = False) -> None:
        raise error

    command(app, "fail")(fail)
    return app


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FINDING, 1),
        (errors.TableUnusable("t"), 1),
        (errors.ConfigError("t"), 2),
        (errors.Unreachable("t"), 3),
        (errors.UnknownOutcome("t"), 3),
    ],
)
def test_each_error_has_its_exit_code(error: errors.CalveError, code: int) -> None:
    assert CliRunner().invoke(app_that_raises(error)).exit_code == code


def test_message_and_hint_go_to_stderr() -> None:
    result = CliRunner().invoke(app_that_raises(errors.ConfigError("key: [wrong] value", hint="set another")))
    assert result.stderr == "key: [wrong] value [CLV-0002]\n  → set another\n"
    assert result.stdout == ""


def test_with_json_the_error_is_the_document() -> None:
    result = CliRunner().invoke(app_that_raises(FINDING), ["--json"])
    assert json.loads(result.stdout) == {
        "error": "FindingError",
        "code": "CLV-0003",
        "message": "table-rolled-back: air.flights: stored 1, found 2",
        "hint": "calve resolve",
        "finding": "table-rolled-back",
        "subject": "air.flights",
        "stored": "1",
        "found": "2",
    }
    assert result.stderr == ""


def test_ctrl_c_ends_quietly() -> None:
    result = CliRunner().invoke(app_that_raises(KeyboardInterrupt()))
    assert result.exit_code == 130
    assert len(result.output.splitlines()) == 1
    assert "KeyboardInterrupt" not in result.output


def test_what_nobody_expected_is_a_line_and_its_traceback_a_file_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    error = RuntimeError("no way to postgresql://ann:hush@host/db\nsecond line")
    result = CliRunner().invoke(app_that_raises(error))
    [file] = tmp_path.glob("calve-fail-*.txt")
    assert (result.exit_code, result.stdout) == (1, "")
    says(result.stderr, Code.UNEXPECTED, "RuntimeError: no way to postgresql://ann:***@host/db", file, "calve --debug")
    assert len(result.stderr.splitlines()) == 2
    assert "second line" not in result.stderr
    kept = file.read_text()
    assert "in fail\n" in kept
    assert "second line" in kept
    assert "hush" not in kept
    assert file.stat().st_mode & 0o077 == 0
    assert json.loads(CliRunner().invoke(app_that_raises(error), ["--json"]).stdout)["error"] == "TerminalError"
    monkeypatch.setenv(DEBUG, "1")
    assert CliRunner().invoke(app_that_raises(error)).exception is error


def test_what_py4j_logs_of_ctrl_c_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    CliRunner().invoke(app_that_raises(KeyboardInterrupt()))
    for said in ("KeyboardInterrupt while sending command.", "something else"):
        logging.error(said)
    assert caplog.messages == ["something else"]


def test_help_does_not_wait_for_what_it_does_not_need() -> None:
    code = "import sys, calve.orchestration.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pyspark", "pyiceberg", "pyarrow", "confluent_kafka"} & set(loaded)


def test_a_reader_that_goes_away_ends_a_command_quietly() -> None:
    """As `head` does that has seen enough."""
    done = subprocess.run(["bash", "-c", f"{CALVE} explain | true"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")
