"""Verbs: changes of a lake's rows that are planned, run by a Spark job and committed."""
