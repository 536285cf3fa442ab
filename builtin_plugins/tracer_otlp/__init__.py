"""Spans of requests for OpenTelemetry collectors."""
