"""Stores: local disks and object stores behind one surface."""
