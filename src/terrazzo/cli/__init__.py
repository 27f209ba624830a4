"""The command `terrazzo`."""
