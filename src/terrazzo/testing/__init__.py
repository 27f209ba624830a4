"""For tests of terrazzo and of programs that use it."""
