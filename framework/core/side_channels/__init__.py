"""Side channels: plugins' messages between an engine core and its workers, with every step."""
