"""Sources that run inside a sandbox: they are sent there as text, and import nothing of metagen."""
