"""metagen beside other libraries, on one server, with one generator and one reward model."""
