"""Reading a YAML file so that errors can name the line, and a key given twice is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from calve.sink_core.codes import Code
from calve.sink_core.config.model import Location
from calve.sink_core.config.references import of_dagster
from calve.sink_core.errors import ConfigError

_MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True)
class Document:
    """One YAML mapping: its values and the nodes they came from. `base` is where the wanted mapping starts."""

    path: Path
    data: Mapping[str, Any]
    root: yaml.MappingNode
    base: Location = ()

    def line(self, location: Location) -> int:
        """The line, from 1, of the deepest key of `location` that stands in the file."""
        node: yaml.Node | None = self.root
        line = self.root.start_mark.line
        for part in self.base + location:
            key, node = _child(node, part)
            if key is None:
                break
            line = key.start_mark.line
        return line + 1


def read(path: Path) -> Document:
    """The one mapping in the file. Raises ConfigError as `documents` does, and if there are several."""
    found = documents(path)
    if len(found) > 1:
        raise ConfigError(
            f"{path}: holds {len(found)} YAML documents",
            hint="keep one of them; others begin with ---",
            code=Code.WHICH_DOCUMENT,
        )
    return found[0]


def documents(path: Path) -> list[Document]:
    """The mappings in the file, at least one. Raises ConfigError if it can't be read, is no YAML or has a key twice."""
    try:
        loader, found = yaml.SafeLoader(path.read_text(encoding="utf-8")), list[Document]()
        while loader.check_node():
            root = loader.get_node()
            if not isinstance(root, yaml.MappingNode):
                break
            _refuse_repeated(path, root)
            found.append(Document(path, of_dagster(loader.construct_document(root)), root))
        else:
            if found:
                return found
        raise ConfigError(
            f"{path}: holds no mapping of settings", hint="begin with a key such as name:", code=Code.UNREADABLE_FILE
        )
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(
            f"{path}: can't be read: {reason}", hint="check the path", code=Code.UNREADABLE_FILE
        ) from error
    except yaml.YAMLError as error:
        # The error itself quotes what it met, which may be a secret; as a cause it would be printed with a traceback.
        raise ConfigError(
            f"{path}{_fault(error)}", hint="check indentation and quotes", code=Code.UNREADABLE_FILE
        ) from None
    except RecursionError:
        raise ConfigError(
            f"{path}: is not YAML: nested too deeply", hint="take out what holds itself", code=Code.UNREADABLE_FILE
        ) from None
    except (ValueError, LookupError, TypeError, AttributeError):
        # What the library's conversions of scalars raise on their own: `2020-99-99`, `0b`, `-`.
        raise ConfigError(
            f"{path}: is not YAML: a value looks like a date, a number or another type and is none",
            hint="quote it",
            code=Code.UNREADABLE_FILE,
        ) from None


def _fault(error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return ": is not YAML: holds a character YAML doesn't allow"
    line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
    # A value that begins with * & or ! is taken for an alias, an anchor or a tag, and named in the problem.
    if "unhashable key" in (error.problem or ""):
        return f"{line}: is not YAML: a template such as {{{{ env.NAME }}}} needs quotes around it"
    words = re.sub(r"\b(alias|anchor|tag)\b.*", r"\1 (quote a value that begins with * & or !)", error.problem or "")
    return f"{line}: is not YAML: {words}"


def _refuse_repeated(path: Path, root: yaml.Node) -> None:
    repeated = list(_repeated(root, "", set()))
    if repeated:
        lines = [f"{path}:{line}: {key}: given twice" for key, line in repeated]
        raise ConfigError("\n".join(lines), hint="keep one of them", code=Code.UNREADABLE_FILE)


def _repeated(node: yaml.Node, prefix: str, visited: set[int]) -> Iterator[tuple[str, int]]:
    if id(node) in visited or isinstance(node, yaml.ScalarNode):
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(cast(list[yaml.Node], node.value)):
            yield from _repeated(item, f"{prefix}{index}.", visited)
        return
    seen: set[str] = set()
    for key, value in cast(list[tuple[yaml.Node, yaml.Node]], node.value):
        name = str(key.value)
        if name in seen and key.tag != _MERGE:
            yield prefix + name, key.start_mark.line + 1
        seen.add(name)
        yield from _repeated(value, f"{prefix}{name}.", visited)


def _child(node: yaml.Node | None, part: int | str) -> tuple[yaml.Node | None, yaml.Node | None]:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if isinstance(node, yaml.MappingNode):
        for key, value in cast(list[tuple[yaml.Node, yaml.Node]], node.value):
            if key.value == str(part):
                return key, value
    return None, None
