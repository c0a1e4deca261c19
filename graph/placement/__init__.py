"""Programs of one process of a mesh, made of programs over whole arrays (`partition`)."""
