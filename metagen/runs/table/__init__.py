"""What came out, as tables: a row for each candidate, each call and each problem of a run."""
