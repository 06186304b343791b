"""The kinds of changes, each with everything that it declares."""
