"""A model source: models packed in one tar or zip file."""
