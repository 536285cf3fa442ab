"""The tracer. Front-end process, on the thread that hands out outputs, which must not wait."""

from __future__ import annotations

import msgspec
from hookspecs.contracts.stats import FinishedRequest, Tracer, TracerContext
from hookspecs.errors import PluginConfigError

from trace_json_lines.bounded_file import BoundedFile
from trace_json_lines.options import TraceJsonLinesOptions
from trace_json_lines.record import record_of
from trace_json_lines.writer import Writer

__all__ = ["JsonLinesTracer"]

_BUFFER_BYTES = 64 * 1024


class JsonLinesTracer(Tracer):
    """Appends one JSON object a line: JSON Lines, https://jsonlines.org.

    PluginConfigError when the file can not be opened. OSError when it could not be written later,
    at the next output or at the end: the kernel then detaches this tracer, and requests go on.
    """

    def __init__(self, context: TracerContext) -> None:
        super().__init__(context)
        options: TraceJsonLinesOptions = context.options
        self._encoder = msgspec.json.Encoder()
        try:
            file = BoundedFile(options.path, options.max_bytes)
        except OSError as error:
            raise PluginConfigError(
                f"plugins.options.{context.name}.path is {options.path!r}, which can not be "
                f"written: {error}; name a file in a directory that exists and is writable",
                plugin=context.plugin,
            ) from error
        # A write of a full buffer is a small part of a file.
        self._writer = Writer(
            file, 0 if options.flush else min(_BUFFER_BYTES, options.max_bytes // 4)
        )

    @property
    def num_dropped(self) -> int:
        """Outputs that have no line, since too many waited to be written."""
        return self._writer.num_dropped

    def on_request_finished(self, request: FinishedRequest) -> None:
        self._writer.put(self._encoder.encode(record_of(request, self.context.model)) + b"\n")

    def close(self) -> None:
        self._writer.close()
