"""Bundled samples of the eight sources, and what they are written with."""
