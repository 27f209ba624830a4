"""Arrays, through a Store."""
