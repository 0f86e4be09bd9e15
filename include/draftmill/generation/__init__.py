"""Generation under a token budget: ledger, pace, client, journal, runner."""
