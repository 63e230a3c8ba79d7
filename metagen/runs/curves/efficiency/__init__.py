"""Beyond tokens: what hardware would make of a run, what its user waits for, and what it holds in memory."""
