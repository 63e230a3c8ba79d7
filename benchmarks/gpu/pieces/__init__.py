"""One module a piece: `tasks(place)` yields names with what measures under them, and is run in a process of its own."""
