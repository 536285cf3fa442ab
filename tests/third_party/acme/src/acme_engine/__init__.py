"""Engine parts of a third party, written from the documentation only."""
