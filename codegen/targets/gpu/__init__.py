"""What GPU targets share: a scalar program per lane, emitted through an `Assembler`, and the launches around it."""
