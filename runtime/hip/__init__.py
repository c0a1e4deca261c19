"""The `hip` devices: AMD code objects through hip-python."""
