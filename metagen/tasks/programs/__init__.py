"""The second embedded task: short Python functions from examples, with public and hidden tests."""
