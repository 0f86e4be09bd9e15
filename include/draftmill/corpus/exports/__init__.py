"""The forms in which a corpus is written. Each takes the rows of one split in their order, one at a time."""
