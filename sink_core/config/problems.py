"""What Pydantic found, said so that the file can be corrected: file, line, key, what was given, the nearest key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from yaml import safe_load

from calve.sink_core.codes import Code
from calve.sink_core.config.model import Location
from calve.sink_core.config.references import redact
from calve.sink_core.config.yaml_file import Document
from calve.sink_core.errors import ConfigError

Schema = Mapping[str, Any]


def problem(document: Document, location: Location, message: str) -> str:
    """`file:line: dotted.key: message`."""
    key = ".".join(map(str, location))
    return f"{document.path}:{document.line(location)}: {key}: {message}" if key else f"{document.path}: {message}"


def checked(text: str, model: type[BaseModel]) -> str:
    """A pipeline file that was written for somebody. Raises ConfigError where what they gave makes it none."""
    try:
        model.model_validate(safe_load(text))
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors(include_url=False)]
        raise ConfigError(
            "\n".join(faults), hint="give another value on the command line", code=Code.SETTINGS
        ) from None
    return text


def problems(error: ValidationError, model: type[BaseModel], document: Document) -> list[str]:
    """One line per problem, in the file's order."""
    faults = [(_location(details), details) for details in error.errors(include_url=False) if not _spurious(details)]
    faults.sort(key=lambda fault: document.line(fault[0]))
    return [problem(document, at, _message(details, at, model)) for at, details in faults]


def nearest(given: str, known: Iterable[str]) -> str:
    """`did you mean x?`, or the list of what is known."""
    candidates = sorted(set(known) - {given})
    match = get_close_matches(given, candidates, n=1)
    if match:
        return f"did you mean {match[0]}?"
    return f"known here: {', '.join(candidates)}" if candidates else "nothing is known here"


def known_keys(model: type[BaseModel], location: Location) -> set[str]:
    """The keys a mapping at `location` may have, taken from the model's JSON Schema."""
    root = model.model_json_schema()
    places = list(_variants(root, root))
    for part in location:
        places = [inner for place in places for child in _children(place, part) for inner in _variants(root, child)]
    return {key for place in places for key in place.get("properties", {})}


def _location(details: ErrorDetails) -> Location:
    unknown = len(details["loc"]) - 1 if details["type"] == "extra_forbidden" else None
    # Pydantic's own marks of where it was; an unknown key may look like one.
    return tuple(p for at, p in enumerate(details["loc"]) if at == unknown or not (str(p)[:1] == "<" or p == "[key]"))


def _spurious(details: ErrorDetails) -> bool:
    # Pydantic counts only the valid items of a tuple, and says "too short" on top of each item's own problem.
    return details["type"] == "too_short" and bool(details["input"])


def _message(details: ErrorDetails, location: Location, model: type[BaseModel]) -> str:
    match details["type"]:
        case "extra_forbidden":
            return f"unknown; {nearest(str(location[-1]), known_keys(model, location[:-1]))}"
        case "missing":
            return "missing; this key is required"
        case "too_short":
            return "is empty; name at least one"
        case "tuple_type" | "list_type" if isinstance(details["input"], str | int | float):
            return f"takes a list: write [{details['input']}]"
        case "refused":
            return details["msg"]
        case "string_pattern_mismatch":
            return f"{_given(details, location)} doesn't match {details.get('ctx', {})['pattern']}"
        case _:
            text = details["msg"]
            return f"{text[0].lower()}{text[1:]}; given {_given(details, location)}"


def _given(details: ErrorDetails, location: Location) -> str:
    value = details["input"]
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "a list"
    return repr(redact({".".join(map(str, location)): value}).popitem()[1])


def _variants(root: Schema, schema: Schema) -> Iterator[Schema]:
    if "$ref" in schema:
        yield from _variants(root, root["$defs"][schema["$ref"].rpartition("/")[2]])
        return
    yield schema
    for word in ("anyOf", "oneOf", "allOf"):
        for variant in schema.get(word, ()):
            yield from _variants(root, variant)


def _children(place: Schema, part: int | str) -> Iterator[Schema]:
    if part in place.get("properties", {}):
        yield place["properties"][part]
    elif isinstance(part, int):
        yield place.get("items", {})
    else:
        yield from place.get("patternProperties", {}).values()
