"""Values and decisions: pure, no I/O, no clock of its own."""
