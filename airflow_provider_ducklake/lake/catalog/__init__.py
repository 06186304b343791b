"""The catalog database, through SQLAlchemy Core. ``lake.Lake`` is the public face; the rest is internal."""
