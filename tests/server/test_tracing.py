"""Spans of OpenTelemetry, with a provider that keeps them, and without the library."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from opentelemetry import context as contexts
from opentelemetry import trace

from crossbit.server import tracing
from crossbit.server.service import Service
from tests.server.conftest import Client

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class _Span(trace.NonRecordingSpan):
    """A span that keeps what it is told."""

    def __init__(self, name: str, parent: trace.SpanContext, kind: trace.SpanKind) -> None:
        super().__init__(trace.SpanContext(parent.trace_id or 1, id(self) % 2**64, False))
        self.name = name
        self.parent = parent
        self.kind = kind
        self.attributes: dict[str, Any] = {}
        self.status: object = None
        self.ended = False

    def is_recording(self) -> bool:
        return not self.ended

    def update_name(self, name: str) -> None:
        self.name = name

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        self.attributes |= attributes

    def set_status(self, status: object, description: str | None = None) -> None:
        self.status = status

    def end(self, end_time: int | None = None) -> None:
        self.ended = True


class _Tracer:
    """A tracer that keeps its spans."""

    def __init__(self) -> None:
        self.spans: list[_Span] = []

    def start_as_current_span(self, name: str, context: Any = None, **options: Any) -> Any:  # noqa: ANN401
        parent = trace.get_current_span(context or contexts.get_current()).get_span_context()
        span = _Span(name, parent, options.get("kind", trace.SpanKind.INTERNAL))
        self.spans.append(span)
        return trace.use_span(span, end_on_exit=True)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[_Span]:
    tracer = _Tracer()
    monkeypatch.setattr(tracing, "_TRACER", tracer)
    return tracer.spans


def test_a_request_and_its_work_are_spans(client: Client, spans: list[_Span]) -> None:
    headers = {"traceparent": PARENT}
    assert client().post("/api/search", json={"text": "red"}, headers=headers).status_code == 200
    request, work = spans
    assert request.name == "POST /api/search"
    assert request.kind is trace.SpanKind.SERVER
    assert f"{request.parent.trace_id:032x}-{request.parent.span_id:016x}" in PARENT
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/api/search",
        "http.response.status_code": 200,
    }
    assert work.name == "crossbit.work"
    assert work.parent.span_id == request.get_span_context().span_id
    assert request.ended
    assert work.ended


def test_a_batch_of_many_clients_is_within_no_span(client: Client, spans: list[_Span]) -> None:
    query = {"features": [1.0] + [0.0] * 11, "modality": "text"}
    assert client().post("/api/search", json=query).status_code == 200
    assert [span.name for span in spans] == ["POST /api/search"]


def test_errors_are_marked(
    client: Client, spans: list[_Span], monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = client()
    tested.get("/nothing")
    assert (spans[0].name, spans[0].status) == ("GET other", None)
    monkeypatch.setattr(Service, "stats", lambda *_: 1 / 0)
    assert tested.get("/api/stats").status_code == 500
    assert spans[1].attributes["http.response.status_code"] == 500
    assert spans[1].status is not None


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "opentelemetry", None)
        importlib.reload(tracing)
    yield
    importlib.reload(tracing)


@pytest.mark.usefixtures("without_library")
def test_there_are_none_without_the_library(client: Client) -> None:
    assert tracing.trace is None
    assert client().post("/api/search", json={"text": "red"}).status_code == 200
