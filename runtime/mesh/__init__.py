"""Many processes, one device each: who they are, what moves bytes between them, and the device that they make up."""
