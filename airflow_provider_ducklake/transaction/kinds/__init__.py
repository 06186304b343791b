"""The kinds of changes, each with all that it says of itself."""
