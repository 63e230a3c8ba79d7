"""The work that a declaration asks for: engines opened, problems solved, everything recorded in the journal."""
