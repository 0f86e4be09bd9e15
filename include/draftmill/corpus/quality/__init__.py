"""Doubts about responses: what can be said against one, and what a campaign's policy makes of it."""
