"""What an elementwise operation means, once for all targets, in terms of `ops.Ops`."""
