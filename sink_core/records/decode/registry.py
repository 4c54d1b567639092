"""A schema registry with Confluent's API: the schemas of records in Confluent's wire format, by id.

A schema that the registry doesn't have is a fault of the record. A registry that doesn't answer is not: that is
Unreachable, whatever record was asked for, and one that refuses us or isn't one at all is a ConfigError.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import httpx2
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

from calve.sink_core.codes import Code
from calve.sink_core.config.error_text import describe
from calve.sink_core.config.reading import RegistrySettings
from calve.sink_core.config.references import resolve, without_user_info
from calve.sink_core.errors import ConfigError, Unreachable
from calve.sink_core.records.columns.budget import MOST_CHARACTERS, MOST_LEVELS, MOST_REFERENCES
from calve.sink_core.records.decode.framing import Framing, Named

TIMEOUT_S = 10
"""For each request; the client's own default is to wait for ever."""
MOST_UNKNOWN = 500
"""Ids without a schema that the registry is asked for, a request each. Who sends more knows no schema."""
MAX_RETRIES = 2
"""Of a request that was not answered, or with 408, 429 or 5xx."""
HEADER_BYTES = 5
"""Confluent's wire format: a zero, then the schema's id in four bytes, the highest first."""

_MAGIC = 0
# Confluent's codes: subject, version and schema not found. A 404 without one of them is not a registry's.
_NOT_FOUND = (40401, 40402, 40403)
_MEANS_LATER = (408, 429)
_AVRO = "AVRO"
_SHOWN = {"AVRO": "Avro", "JSON": "JSON Schema", "PROTOBUF": "Protobuf"}

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
"""What the registry calls a schema's language."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as it was registered. `references` are what it refers to by name, each after those it uses itself."""

    name: str
    text: str = field(repr=False)
    references: tuple[tuple[str, str], ...] = field(default=(), repr=False)


S = TypeVar("S", bound=Named)


class ById(Generic[S]):
    """The registry's schemas of one kind by the header of values, made ready by `read`, which raises ValueError for a
    text that is none. What was found, or not, is remembered for the object's life. After `MOST_UNKNOWN` ids that have
    none, no other id is asked for: whoever sends ids at random would have a request for each.
    """

    header_bytes = HEADER_BYTES

    def __init__(self, registry: Registry, kind: Kind, read: Callable[[Registered], S]) -> None:
        self._registry, self._read = registry, read
        self._kind: Kind = kind
        self._by_header: dict[bytes, S | str] = {}
        self._unknown = 0

    def writer_of(self, value: bytes) -> S:
        """The schema of a value in wire format.

        Raises ValueError saying what is wrong with the value or its schema, Unreachable, and ConfigError.
        """
        found = self._by_header.get(value[:HEADER_BYTES])
        if found is None:
            number = schema_id(value)
            if self._unknown >= MOST_UNKNOWN:
                raise ValueError(f"schema id {number} was not asked for: {self._unknown} ids before it have no schema")
            found = self._by_header[value[:HEADER_BYTES]] = self._look_up(number)
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def _look_up(self, number: int) -> S | str:
        """The schema, or what is wrong with it."""
        try:
            registered = self._registry.schema(number, self._kind)
        except LookupError as error:
            self._unknown += 1
            return str(error.args[0])
        try:
            return self._read(registered)
        except ValueError as error:
            return f"{registered.name}: {error}"


def newest(schemas: Framing[S], values: Iterable[bytes]) -> S:
    """The schema among those of the values that was registered last, ids only grow, and whose values can be rows.

    Raises ConfigError if no value has one, Unreachable.
    """
    reason, tried = "there is no record", set[bytes]()
    for value in sorted(values, key=lambda value: value[:HEADER_BYTES], reverse=True):
        if value[:HEADER_BYTES] in tried:
            continue
        tried.add(value[:HEADER_BYTES])
        try:
            found = schemas.writer_of(value)
        except ValueError as error:
            reason = str(error)
            continue
        if found.unfit is None:
            return found
        reason = found.unfit
    raise ConfigError(
        f"no record of the sample has a schema that can be read: {reason}",
        hint="name the columns under auto_create.columns, or begin when the topic has records",
        code=Code.NO_SAMPLE,
    )


class Registry:
    """Opened on first use, in the process that asks."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._client: SchemaRegistryClient | None = None

    def types(self) -> list[str]:
        """The kinds of schemas the registry knows: the lightest question. Raises Unreachable and ConfigError."""
        return self._ask("asking what it knows", lambda client: client.get_schema_types())

    def kind(self, number: int) -> str | None:
        """What the schema of that id is written in; None if there is none. Raises Unreachable and ConfigError."""
        try:
            schema = self._ask(f"fetching schema id {number}", lambda client: client.get_schema(number))
        except LookupError:
            return None
        return schema.schema_type or _AVRO

    def schema(self, number: int, kind: Kind) -> Registered:
        """The schema of that id with all it refers to.

        Raises LookupError saying which one isn't there, isn't of the kind or is too large, Unreachable and ConfigError.
        """
        name = f"schema id {number}"
        try:
            schema = self._ask(f"fetching {name}", lambda client: client.get_schema(number))
        except LookupError:
            raise LookupError(f"{name} is unknown to registry {self._settings.name}") from None
        found = schema.schema_type or _AVRO
        if found != kind:
            raise LookupError(f"{name} is {_SHOWN.get(found, found)}, not {_SHOWN[kind]}")
        text, references = schema.schema_str or "", dict[tuple[str, int], tuple[str, str]]()
        try:
            self._refer(schema.references or (), references, MOST_CHARACTERS - len(text))
        except LookupError as error:
            raise LookupError(f"{name}: {error.args[0]}") from None
        return Registered(name, text, tuple(references.values()))

    def register(self, subject: str, text: str) -> int:
        """The id of an Avro schema, registered under `subject` if it is not yet. Raises Unreachable and ConfigError."""
        schema = Schema(text, _AVRO)
        return self._ask(f"registering {subject}", lambda client: client.register_schema(subject, schema))

    def _refer(
        self,
        references: Iterable[SchemaReference],
        found: dict[tuple[str, int], tuple[str, str]],
        room: int,
        within: tuple[tuple[str, int], ...] = (),
    ) -> int:
        """Add names and texts of the schemas referred to, each after those it uses itself, and those that are `within`
        each other by now. Returns what is left of the `room` for characters. Raises LookupError.
        """
        if room < 0:
            raise LookupError(f"more than {MOST_CHARACTERS:,} characters, with the schemas it refers to")
        if len(within) > MOST_LEVELS:
            raise LookupError(f"more than {MOST_LEVELS} schemas that refer to each other")
        for reference in references:
            at = str(reference.subject), int(reference.version or 0)
            if at in found or at in within:
                continue
            if len(found) + len(within) >= MOST_REFERENCES:
                raise LookupError(f"it refers to more than {MOST_REFERENCES} schemas")
            schema = self._version(*at)
            text = schema.schema_str or ""
            room = self._refer(schema.references or (), found, room - len(text), (*within, at))
            found.setdefault(at, (str(reference.name), text))
        return room

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
            f"registry {settings.name}: {describe(error)}",
            hint=f"correct registry.{settings.name} in connections.yaml",
            code=Code.REGISTRY_SETTING,
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
        message = f"{where}: answered {status}: {describe(error)}"
        if status >= 500 or status in _MEANS_LATER:
            raise Unreachable(
                message, hint="see the registry's log, and run again once it is well", code=Code.REGISTRY_DOWN
            ) from None
        raise ConfigError(message, hint=f"{check}: url and credentials", code=Code.REGISTRY_REFUSES) from None
    except (httpx2.TransportError, OAuthTokenError) as error:
        raise Unreachable(
            f"{where}: no answer: {describe(error)}",
            hint=f"see whether it runs; {check}: url and ssl.ca.location",
            code=Code.REGISTRY_DOWN,
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise ConfigError(
            f"{where}: not a registry's answer: {describe(error)}", hint=f"{check}: url", code=Code.REGISTRY_REFUSES
        ) from None
