"""Library routines over whole arrays that a GPU does by launches of its own."""
