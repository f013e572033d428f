"""Print what generated protobuf modules say on the wire, as JSON: one line of facts per name.

Run in a process of its own, because two copies of one message cannot be loaded side by side:

    python dump_descriptors.py smg_grpc_proto.generated.sglang_scheduler_pb2 ...

File names and the order of declaration are left out: the wire knows neither.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

Facts = dict[str, dict[str, object]]


def dump(module_name: str) -> Facts:
    """Return the facts of every message, field, oneof, enum value and rpc of a module."""
    file = FileDescriptorProto()
    importlib.import_module(module_name).DESCRIPTOR.CopyToProto(file)
    prefix = f".{file.package}"
    facts: Facts = {}
    for message in file.message_type:
        facts.update(message_facts(message, prefix))
    for enum in file.enum_type:
        facts.update(enum_facts(enum, prefix))
    for service in file.service:
        facts.update(service_facts(service, prefix))
    return {f"{name} ({file.syntax})": fact for name, fact in facts.items()}


def message_facts(message: DescriptorProto, prefix: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the facts of *message*, its fields and what is nested in it."""
    name = f"{prefix}.{message.name}"
    reserved = sorted(
        number for span in message.reserved_range for number in range(span.start, span.end)
    )
    yield (
        f"message {name}",
        {
            "reserved": reserved,
            "reserved_names": sorted(message.reserved_name),
            "map_entry": message.options.map_entry,
            "fields": len(message.field),
            "oneofs": sorted(oneof.name for oneof in message.oneof_decl),
            "extensible": len(message.extension_range) + len(message.extension),
        },
    )
    for field in message.field:
        yield f"field {name}.{field.name}", field_facts(field, message)
    for nested in message.nested_type:
        yield from message_facts(nested, name)
    for enum in message.enum_type:
        yield from enum_facts(enum, name)


def field_facts(field: FieldDescriptorProto, message: DescriptorProto) -> dict[str, object]:
    """Return what *field* is on the wire."""
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else None
    packed = field.options.packed if field.options.HasField("packed") else None
    return {
        "number": field.number,
        "type": FieldDescriptorProto.Type.Name(field.type),
        "label": FieldDescriptorProto.Label.Name(field.label),
        "type_name": field.type_name,
        "oneof": oneof,
        "presence": field.proto3_optional,
        "packed": packed,
        "json": field.json_name,
        "default": field.default_value,
    }


def enum_facts(enum: EnumDescriptorProto, prefix: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the facts of *enum* and its values."""
    name = f"{prefix}.{enum.name}"
    reserved = sorted(
        number for span in enum.reserved_range for number in range(span.start, span.end + 1)
    )
    yield f"enum {name}", {"values": len(enum.value), "reserved": reserved}
    for value in enum.value:
        yield f"value {name}.{value.name}", {"number": value.number}


def service_facts(
    service: ServiceDescriptorProto, prefix: str
) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the facts of *service*'s rpcs."""
    name = f"{prefix}.{service.name}"
    yield f"service {name}", {"rpcs": len(service.method)}
    for method in service.method:
        yield (
            f"rpc {name}.{method.name}",
            {
                "input": method.input_type,
                "output": method.output_type,
                "client_streaming": method.client_streaming,
                "server_streaming": method.server_streaming,
            },
        )


if __name__ == "__main__":
    every: Facts = {}
    for argument in sys.argv[1:]:
        every.update(dump(argument))
    json.dump(every, sys.stdout, indent=1, sort_keys=True)
