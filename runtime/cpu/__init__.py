"""The CPU device: loads compiled Programs, runs them in one native call, decodes what they report."""
