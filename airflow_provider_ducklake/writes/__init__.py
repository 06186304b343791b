"""Verbs: what a user wants done to a lake's rows, planned, carried out by a Spark job and committed."""
