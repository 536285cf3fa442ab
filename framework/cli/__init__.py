"""The command line `framework`. Nothing heavy is imported before a command needs an engine."""
