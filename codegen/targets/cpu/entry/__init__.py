"""A Program's native entry: launches, loops over whole tensors, what the runtime and the code agree on."""
