"""The Speed tab: what a step takes on this machine, the least it could take, and what limits it."""
