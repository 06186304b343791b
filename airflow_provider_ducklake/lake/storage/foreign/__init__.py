"""Tables of other formats: what their metadata says of columns, files and deleted rows."""
