"""Decisions made before work starts, as values; imports nothing but the standard library."""
