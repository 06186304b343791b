"""Write one snapshot."""
