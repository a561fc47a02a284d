"""Data files that belong to the engine."""
