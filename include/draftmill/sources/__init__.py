"""Rows from a hub, JSON, JSONL or Parquet, and one adapter per published schema that makes conversations of them."""
