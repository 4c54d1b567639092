"""A schema registry with Confluent's API: the writer schemas of records in Confluent's wire format, by id.

A schema that the registry doesn't have is a fault of the record. A registry that doesn't answer is not: that is
Unreachable, whatever record was asked for, and one that refuses us or isn't one at all is a ConfigError.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypeVar

import httpx2
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

from sink_core.config.effective import RegistrySettings
from sink_core.config.references import redact, resolve, without_user_info
from sink_core.decode.avro_schema import WriterSchema, writer_schema
from sink_core.errors import ConfigError, Unreachable

TIMEOUT_S = 10
"""For each request; the client's own default is to wait for ever."""
MAX_RETRIES = 2
"""Of a request that was not answered, or with 408, 429 or 5xx."""
HEADER_BYTES = 5
"""Confluent's wire format: a zero, then the schema's id in four bytes, the highest first."""

_MAGIC = 0
# Confluent's codes: subject, version and schema not found. A 404 without one of them is not a registry's.
_NOT_FOUND = (40401, 40402, 40403)
_MEANS_LATER = (408, 429)
_SHOWN_CHARACTERS = 300
_AVRO = "AVRO"

T = TypeVar("T")


class Registry:
    """Opened on first use, in the process that asks. What was found, or not, is remembered for the object's life."""

    header_bytes = HEADER_BYTES

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._client: SchemaRegistryClient | None = None
        self._by_header: dict[bytes, WriterSchema | str] = {}

    def writer_of(self, value: bytes) -> WriterSchema:
        """The schema of a value in wire format.

        Raises ValueError saying what is wrong with the value or its schema, Unreachable, and ConfigError.
        """
        found = self._by_header.get(value[:HEADER_BYTES])
        if found is None:
            found = self._by_header[value[:HEADER_BYTES]] = self._look_up(schema_id(value))
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def newest(self, values: Iterable[bytes]) -> WriterSchema:
        """The record's schema among those of the values that was registered last: ids only grow.

        Raises ConfigError if no value has one, Unreachable.
        """
        reason = "there is no record"
        for header in sorted({value[:HEADER_BYTES] for value in values}, reverse=True):
            try:
                found = self.writer_of(header)
            except ValueError as error:
                reason = str(error)
                continue
            if found.record is not None:
                return found
            reason = f"{found.name} is not of a record"
        raise ConfigError(
            f"no record of the sample has an Avro schema that can be read: {reason}",
            hint="name the columns under auto_create.columns, or begin when the topic has records",
        )

    def types(self) -> list[str]:
        """The kinds of schemas the registry knows: the lightest question. Raises Unreachable and ConfigError."""
        return self._ask("asking what it knows", lambda client: client.get_schema_types())

    def _look_up(self, number: int) -> WriterSchema | str:
        """The schema, or what is wrong with it."""
        name = f"schema id {number}"
        try:
            schema = self._ask(f"fetching {name}", lambda client: client.get_schema(number))
        except LookupError:
            return f"{name} is unknown to registry {self._settings.name}"
        kind = schema.schema_type or _AVRO
        if kind != _AVRO:
            return f"{name} is {kind}, not Avro"
        try:
            return writer_schema(name, schema.schema_str or "", self._referenced(schema.references or (), {}))
        except (ValueError, LookupError) as error:
            return f"{name}: {error.args[0]}"

    def _referenced(self, references: Iterable[SchemaReference], found: dict[tuple[str, int], str]) -> list[str]:
        """The texts of the schemas referred to, each after those it uses itself. Raises LookupError."""
        for reference in references:
            subject, version = str(reference.subject), int(reference.version or 0)
            if (subject, version) in found:
                continue
            schema = self._version(subject, version)
            self._referenced(schema.references or (), found)
            found.setdefault((subject, version), schema.schema_str or "")
        return list(found.values())

    def _version(self, subject: str, version: int) -> Schema:
        name = f"subject {subject} version {version}"
        try:
            return self._ask(f"fetching {name}", lambda client: client.get_version(subject, version)).schema
        except LookupError:
            raise LookupError(f"it refers to {name}, which registry {self._settings.name} doesn't have") from None

    def _ask(self, doing: str, question: Callable[[SchemaRegistryClient], T]) -> T:
        """The answer. Raises LookupError if there is no such thing, Unreachable and ConfigError."""
        with _as_ours(self._settings, doing):
            if self._client is None:
                self._client = _open(self._settings)
            return question(self._client)


def schema_id(value: bytes) -> int:
    """The id in a value's header. Raises ValueError if it has none."""
    if len(value) < HEADER_BYTES or value[0] != _MAGIC:
        begins = f"it begins with {value[:HEADER_BYTES].hex(' ')}" if value else "it is empty"
        raise ValueError(f"not Confluent's wire format (a zero byte and four of a schema id): {begins}")
    return int.from_bytes(value[1:HEADER_BYTES], "big")


def _open(settings: RegistrySettings) -> SchemaRegistryClient:
    properties = {"timeout": TIMEOUT_S, "max.retries": MAX_RETRIES, **resolve(settings.properties)}
    try:
        return SchemaRegistryClient(properties)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(
            f"registry {settings.name}: {_said(error)}", hint=f"correct registry.{settings.name} in connections.yaml"
        ) from None


@contextmanager
def _as_ours(settings: RegistrySettings, doing: str) -> Generator[None]:
    """Raise the client's trouble as ours; LookupError for what the registry doesn't have."""
    where = f"registry {settings.name} at {without_user_info(str(settings.properties['url']))}: {doing}"
    check = f"check registry.{settings.name} in connections.yaml"
    try:
        yield
    except SchemaRegistryError as error:
        status = error.http_status_code
        if error.error_code in _NOT_FOUND:
            raise LookupError(doing) from None
        message = f"{where}: answered {status}: {_said(error)}"
        if status >= 500 or status in _MEANS_LATER:
            raise Unreachable(message, hint="see the registry's log, and run again once it is well") from None
        raise ConfigError(message, hint=f"{check}: url and credentials") from None
    except (httpx2.TransportError, OAuthTokenError) as error:
        raise Unreachable(
            f"{where}: no answer: {_said(error)}", hint=f"see whether it runs; {check}: url and ssl.ca.location"
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise ConfigError(f"{where}: not a registry's answer: {_said(error)}", hint=f"{check}: url") from None


def _said(error: Exception) -> str:
    """The error's kind and words, passwords hidden."""
    shown = str(redact({"said": str(error)})["said"])[:_SHOWN_CHARACTERS]
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__
