"""Turn what users ask for into changes, against one base snapshot."""
