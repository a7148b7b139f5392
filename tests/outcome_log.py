"""Batches of Envoy's access log, as a picker gets them."""

from __future__ import annotations

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest


def batch(*lines: str) -> bytes:
    message = ExportLogsServiceRequest()
    resource = message.resource_logs.add()
    # OpenTelemetry renamed these fields over time; their numbers stay
    scope = getattr(resource, resource.DESCRIPTOR.fields_by_number[2].name).add()
    records = getattr(scope, scope.DESCRIPTOR.fields_by_number[2].name)
    for line in lines:
        records.add().body.string_value = line
    return message.SerializeToString()
