"""Spans of OpenTelemetry: one per request and one per call in a thread; none without the library.

The library is ``opentelemetry-api``. Spans go where its provider sends them, such as that of
``opentelemetry-instrument``; without a provider they cost next to nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

trace: Any
propagate: Any
try:
    from opentelemetry import propagate, trace
except ImportError:
    trace = None
    propagate = None

# It leads to the provider of the moment, none or one that is set later.
_TRACER: Any = None if trace is None else trace.get_tracer("crossbit.server")


@contextmanager
def request_span(
    method: str, headers: Mapping[str, str]
) -> Iterator[Callable[[Mapping[str, object]], None]]:
    """Open the span of a request, a child of the one that its headers name.

    Args:
        method: Its method.
        headers: Its headers.

    Yields:
        A function to call with the attributes of the span, when they are known.
    """
    if trace is None:
        yield lambda attributes: None
        return
    parent = propagate.extract(headers) if "traceparent" in headers else None
    with _TRACER.start_as_current_span(method, context=parent, kind=trace.SpanKind.SERVER) as span:

        def describe(attributes: Mapping[str, object]) -> None:
            if not span.is_recording():
                return
            span.update_name(f"{method} {attributes['http.route']}")
            span.set_attributes({"http.request.method": method, **attributes})
            if int(str(attributes["http.response.status_code"])) >= 500:
                span.set_status(trace.StatusCode.ERROR)

        yield describe


@contextmanager
def work_span() -> Iterator[None]:
    """Open the span of a call in a thread, its wait included, within that of its request."""
    if trace is None or not trace.get_current_span().is_recording():
        yield
        return
    with _TRACER.start_as_current_span("crossbit.work"):
        yield
