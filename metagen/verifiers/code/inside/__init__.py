"""What runs inside a sandbox: sources that are sent there as text, and import nothing of metagen."""
