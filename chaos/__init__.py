"""Real processes, real faults, and a checker that says what was lost. See docs/decisions/0025-chaos.md."""
