"""The Protobuf files that schemas import without a reference, as those of Confluent's clients do.

`google/protobuf/…` comes with protoc; of `confluent/…` there are no texts, only descriptors.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import google.type
from confluent_kafka.schema_registry.confluent import meta_pb2
from confluent_kafka.schema_registry.confluent.type import decimal_pb2, variant_pb2
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet

DECIMAL = "confluent.type.Decimal"
_FIELD_META: Any = meta_pb2.DESCRIPTOR.extensions_by_name["field_meta"]
_OURS = (descriptor_pb2, meta_pb2, decimal_pb2, variant_pb2)


@contextmanager
def known_files() -> Generator[list[str]]:
    """What protoc is to be told so that it knows them; files of the schema go first."""
    with TemporaryDirectory(prefix="calve-known-") as folder, as_file(files("grpc_tools") / "_proto") as protobuf:
        root, described = Path(folder, "in"), Path(folder, "confluent.binpb")
        (root / "google").mkdir(parents=True)
        (root / "google" / "type").symlink_to(next(iter(google.type.__path__)))
        of_confluent = FileDescriptorSet()
        for module in _OURS:
            module.DESCRIPTOR.CopyToProto(of_confluent.file.add())
        described.write_bytes(of_confluent.SerializeToString())
        yield [f"-I{protobuf}", f"-I{root}", f"--descriptor_set_in={described}"]


def declared_digits(field: FieldDescriptor) -> tuple[int, int] | None:
    """Precision and scale that a field's Decimals have by its `confluent.field_meta`; None if it doesn't say."""
    params = field.GetOptions().Extensions[_FIELD_META].params
    try:
        return int(params.get("precision", "")), int(params.get("scale", "0"))
    except ValueError:
        return None
