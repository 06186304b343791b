"""Turn users' requests into changes against one base snapshot."""
