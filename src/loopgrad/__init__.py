"""loopgrad: write the loop, get the gradient."""
