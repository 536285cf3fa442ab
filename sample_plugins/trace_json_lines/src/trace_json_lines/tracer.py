"""The tracer. Front-end process, on the thread that hands out outputs."""

from __future__ import annotations

import msgspec
from hookspecs.contracts.stats import FinishedRequest, Tracer, TracerContext
from hookspecs.errors import PluginConfigError

from trace_json_lines.bounded_file import BoundedFile
from trace_json_lines.options import TraceJsonLinesOptions
from trace_json_lines.record import record_of

__all__ = ["JsonLinesTracer"]

_BUFFER_BYTES = 64 * 1024


class JsonLinesTracer(Tracer):
    """Appends one JSON object a line: JSON Lines, https://jsonlines.org.

    PluginConfigError when the file can not be opened. OSError when it can not be written later:
    the kernel then detaches this tracer, and requests go on.
    """

    def __init__(self, context: TracerContext) -> None:
        super().__init__(context)
        options: TraceJsonLinesOptions = context.options
        # A write of a full buffer is a small part of a file.
        self._buffer_bytes = 0 if options.flush else min(_BUFFER_BYTES, options.max_bytes // 4)
        self._buffer = bytearray()
        self._encoder = msgspec.json.Encoder()
        try:
            self._file = BoundedFile(options.path, options.max_bytes)
        except OSError as error:
            raise PluginConfigError(
                f"plugins.options.{context.name}.path is {options.path!r}, which can not be "
                f"written: {error}; name a file in a directory that exists and is writable",
                plugin=context.plugin,
            ) from error

    def on_request_finished(self, request: FinishedRequest) -> None:
        self._buffer += self._encoder.encode(record_of(request, self.context.model)) + b"\n"
        if len(self._buffer) > self._buffer_bytes:
            self._write()

    def close(self) -> None:
        try:
            if self._buffer:
                self._write()
        finally:
            self._file.close()

    def _write(self) -> None:
        # Forgotten first: after a failure `close` must not try again with what was half written.
        data, self._buffer = bytes(self._buffer), bytearray()
        self._file.append(data)
