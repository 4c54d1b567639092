"""What the models of both files share: the strict base class, pass-through values and the ways to refuse a setting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from calve.sink_core.config.references import malformed, redact

Location = tuple[int | str, ...]
"""Where a value stands in a file: keys and list indexes from the outside in."""


class Model(BaseModel):
    """A part of a file: unknown keys are refused, values don't change, attribute docstrings are the documentation."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Literal secrets stay out of logs and tracebacks."""
        return redact(self.model_dump(by_alias=True)).items()


def refusal(message: str) -> PydanticCustomError:
    """An error whose text is shown to the user as it is, whatever braces it contains."""
    return PydanticCustomError("refused", "{message}", {"message": message})


def refuse_at(model: str, problems: Iterable[tuple[Location, str, object]]) -> None:
    """Raise one ValidationError that places each (location, message, given value) below the model being validated."""
    lines = [InitErrorDetails(type=refusal(text), loc=at, input=given) for at, text, given in problems]
    if lines:
        raise ValidationError.from_exception_data(model, lines)


@dataclass(frozen=True, slots=True)
class Matching:
    """For a text: what doesn't match is refused by saying in words what is meant; the JSON Schema gets the pattern."""

    pattern: str
    meaning: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(schema), "pattern": self.pattern}

    def _check(self, given: str) -> str:
        if not re.fullmatch(self.pattern, given):
            raise refusal(f"{given!r} isn't {self.meaning}")
        return given


def _checked(value: object) -> object:
    if value is None:
        raise refusal("has no value; give one, or remove the key")
    if isinstance(value, str) and (fault := malformed(value)):
        raise refusal(fault)
    if isinstance(value, Mapping):
        for key, inner in cast(Mapping[Any, Any], value).items():
            _checked_inner(str(key), inner)
    if isinstance(value, list):
        for index, inner in enumerate(cast(list[Any], value)):
            _checked_inner(str(index), inner)
    return value


def _checked_inner(key: str, value: object) -> None:
    try:
        _checked(value)
    except PydanticCustomError as error:
        raise refusal(f"{key}: {error.message()}") from error


def _scalar(value: object) -> object:
    if isinstance(value, Mapping | list | tuple):
        raise refusal("takes a single value, not a mapping or a list")
    return value


_SCALAR_SCHEMA = {"type": ["string", "number", "boolean"]}

NestedProperty = Annotated[Any, AfterValidator(_checked), WithJsonSchema({})]
"""A value handed through to a library: anything but null and malformed references."""

Property = Annotated[Any, AfterValidator(_scalar), AfterValidator(_checked), WithJsonSchema(_SCALAR_SCHEMA)]
"""A single value handed through to a library."""

Text = Annotated[str, AfterValidator(_checked)]
"""A text in which `${ENV:NAME}` may stand."""
