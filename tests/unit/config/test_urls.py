"""What comes into an address is encoded for its place, and a password is in no message, whatever a library says."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from calve.sink_core.config.connections import DatabaseConnection
from calve.sink_core.config.references import redact, redact_text, resolve
from calve.sink_core.config.urls import encoded
from calve.sink_core.errors import CalveError

ODD = "p@s w/r:d?#%1"
ENCODED = "p%40s%20w%2Fr%3Ad%3F%23%251"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PW": ODD,
        "USER_X": "a@b",
        "PAIR": "ann:s3cret",
        "URL": f"pg://ann:{ODD}@db/x",
        "DIR": "a b",
    }.items():
        monkeypatch.setenv(f"CALVE_TEST_{name}", value)


def of(text: str) -> str:
    return resolve({"url": text.replace("$", "${ENV:CALVE_TEST_").replace("~", "}")})["url"]


@pytest.mark.parametrize(
    ("written", "resolved"),
    [
        ("postgresql://ann:$PW~@db:5432/shop", f"postgresql://ann:{ENCODED}@db:5432/shop"),
        ("postgresql://$USER_X~:$PW~@db/shop", f"postgresql://a%40b:{ENCODED}@db/shop"),
        ("https://$PAIR~@host/x", "https://ann:s3cret@host/x"),
        ("sc://host:15002/;token=$PW~", f"sc://host:15002/;token={ENCODED}"),
        ("jdbc:postgresql://db/shop?password=$PW~&x=1", f"jdbc:postgresql://db/shop?password={ENCODED}&x=1"),
        ("file:///$DIR~/lake", "file:///a b/lake"),
        ("$PW~", ODD),
    ],
)
def test_a_reference_is_encoded_for_its_place(written: str, resolved: str) -> None:
    assert of(written) == resolved


@pytest.mark.parametrize(
    ("raw", "fit"),
    [
        ("postgresql://ann:1@1 2@127.0.0.1/shop", "postgresql://ann:1%401%202@127.0.0.1/shop"),
        ("postgresql://ann:a%40b%@db/shop?x=a@b", "postgresql://ann:a%40b%25@db/shop?x=a@b"),
        ("postgresql://ann:w?y@db/shop", "postgresql://ann:w%3Fy@db/shop"),
        ("postgresql://ann:@?#y@db/shop?x=1", "postgresql://ann:%40%3F%23y@db/shop?x=1"),
        ("postgresql://db:5432/shop", "postgresql://db:5432/shop"),
        ("sqlite:////data/a@b.db", "sqlite:////data/a@b.db"),
    ],
)
def test_an_address_that_was_written_as_it_is(raw: str, fit: str) -> None:
    assert (encoded(raw), encoded(fit)) == (fit, fit)


def test_a_database_is_named_by_its_parts_or_by_its_address() -> None:
    parts = {"host": "db", "port": 5433, "user": "a@b", "password": "x${ENV:CALVE_TEST_PW}", "database": "shop"}
    made = DatabaseConnection.model_validate({**parts, "options": {"sslmode": "require"}}).properties
    assert resolve(made) == {"url": f"postgresql://a%40b:x{ENCODED}@db:5433/shop?sslmode=require"}
    assert "x$" not in str(redact(made))
    for wrong in ({"host": "db"}, {"url": "x://y", "host": "db"}, {"host": "d", "database": "s", "password": "p"}, {}):
        with pytest.raises(ValidationError):
            DatabaseConnection.model_validate(wrong)


def test_no_message_holds_what_was_resolved_to_a_secret() -> None:
    resolve({"sasl.password": "${ENV:CALVE_TEST_PW}", "url": "pg://${ENV:CALVE_TEST_PAIR}@db/shop", "host": "db"})
    for secret in (ODD, ENCODED, "s3cret"):
        error = CalveError(f"no host {secret}")
        assert (error.message, error.args[0]) == ("no host ***", "no host ***")
        assert redact_text(f"no host {secret}") == "no host ***"
    assert CalveError("db is down").message == "db is down"


def test_an_address_of_which_all_is_a_secret_is_not_shown() -> None:
    assert redact({"url": f"pg://ann:{ODD}@db/x"}) == {"url": "pg://ann:***@db/x"}
    encoded(of("$URL~"))
    assert ODD not in CalveError(f"could not open {ODD}").message
