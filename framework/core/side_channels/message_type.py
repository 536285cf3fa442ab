"""`MessageType`: one direction of a side channel."""

from __future__ import annotations

from typing import Any

import msgspec

from hookspecs.contracts.side_channel import MAX_SIDE_CHANNEL_BYTES
from hookspecs.errors import ContractViolation

__all__ = ["MessageType"]


class MessageType:
    """Values of a type that msgspec knows, as msgpack."""

    def __init__(self, kind: Any) -> None:
        """`kind`: None where nothing may be sent, else a type that is not `unreadable`."""
        self._kind = kind
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(kind)

    def encode(self, value: Any) -> bytes:
        """Bytes that `decode` takes: msgspec does not check the fields of a struct when it is
        made, and what is wrong should be found where it comes from. ContractViolation for a
        wrong type and for too many bytes, msgspec's errors for what can not be encoded."""
        kind = self._kind
        given = type(value).__name__
        if kind is None:
            raise ContractViolation(f"it gave a {given}, but its channel declares no type for it")
        try:
            data = self._encoder.encode(msgspec.convert(value, kind))
            self._decoder.decode(data)
        except msgspec.ValidationError as error:
            declared = kind.__name__ if isinstance(kind, type) else kind
            raise ContractViolation(
                f"it gave a {given} that does not fit {declared}, which its channel declares: "
                f"{error}"
            ) from error
        if len(data) > MAX_SIDE_CHANNEL_BYTES:
            raise ContractViolation(
                f"it gave a {given} of {len(data)} bytes, encoded; a message has at most "
                f"{MAX_SIDE_CHANNEL_BYTES}"
            )
        return data

    def decode(self, data: bytes) -> Any:
        """msgspec.DecodeError for what `encode` did not make."""
        return self._decoder.decode(data)
