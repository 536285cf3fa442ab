"""One line of statistics in the log, every few seconds."""
