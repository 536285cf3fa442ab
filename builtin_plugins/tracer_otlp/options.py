"""Options of the tracer `otlp`."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

__all__ = ["OtlpOptions"]

HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110, section 5.6.2."""
HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")


class OtlpOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`plugins.options.otlp`."""

    endpoint: Annotated[
        str,
        Meta(
            description="http or https URL of the collector, OTLP over HTTP; /v1/traces is added "
            "to one without a path."
        ),
    ] = "http://localhost:4318"
    headers: Annotated[
        dict[str, str], Meta(description="Headers of every export, e.g. an API key.")
    ] = {}
    service_name: Annotated[
        str, Meta(min_length=1, description="Name under which the spans are filed.")
    ] = "engine-framework"
    timeout_s: Annotated[
        float, Meta(gt=0, le=300, description="Seconds for an export, and for the last one.")
    ] = 10.0
    sample_ratio: Annotated[
        float,
        Meta(ge=0, le=1, description="Share of traces; a caller's own decision comes first."),
    ] = 1.0

    def __post_init__(self) -> None:
        url = urlsplit(self.endpoint)
        web = url.scheme in ("http", "https") and url.hostname
        # An impossible port raises ValueError when it is read.
        if not web or url.port == 0 or url.query or url.fragment or "@" in url.netloc:
            raise ValueError(
                f"endpoint is {self.endpoint!r}; it must be a URL such as http://localhost:4318. "
                "Credentials belong into headers"
            )
        for name, value in self.headers.items():
            if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
                raise ValueError(
                    f"headers has {name!r} with a value that no HTTP header can have; names are "
                    "letters, digits and -, values printable ASCII"
                )

    @property
    def url(self) -> str:
        """Where spans are sent."""
        path = urlsplit(self.endpoint).path
        return self.endpoint if path.strip("/") else self.endpoint.rstrip("/") + "/v1/traces"
