"""Rows from a hub or from local files, and one adapter per published schema that turns a row into chat messages."""
