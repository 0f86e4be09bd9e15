"""Rows out of files, one after another, in flat memory."""
