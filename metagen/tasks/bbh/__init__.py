"""BIG-Bench Hard: 27 sub-tasks, each with answers of one form."""
