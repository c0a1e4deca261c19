"""Many processes: lanes that they share, and what all of them know."""
