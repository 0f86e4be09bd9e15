"""From responses to a corpus that drafter training starts from: records, quality, merge, exports, manifest."""
