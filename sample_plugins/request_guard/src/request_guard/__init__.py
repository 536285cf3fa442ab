"""Filters: limits of tenants, and texts that outputs must not show."""
