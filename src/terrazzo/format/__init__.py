"""Bytes to objects and back. Pure: no input or output, no clock, no chance, no threads."""
