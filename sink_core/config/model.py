"""What the models of both files share: the strict base class, pass-through values and the ways to refuse a setting."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, WithJsonSchema
from pydantic_core import InitErrorDetails, PydanticCustomError

from sink_core.config.references import malformed, redact

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


def matching(pattern: str, meaning: str) -> AfterValidator:
    """Refuse a text that doesn't match, and say what is meant in words."""

    def check(given: str) -> str:
        if not re.fullmatch(pattern, given):
            raise refusal(f"{given!r} isn't {meaning}")
        return given

    return AfterValidator(check)


def comes_with(what: str, *values: str) -> BeforeValidator:
    """Refuse the named values, or any value if none is named, as planned but not built yet."""

    def check(given: object) -> object:
        if given is None or (values and given not in values):
            return given
        shown = f" {given!r}" if values else ""
        raise refusal(f"not available yet:{shown} comes with {what}")

    return BeforeValidator(check)


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
