"""Metrics for Prometheus and what reads its text format."""
