"""Trees of tensors in files."""
