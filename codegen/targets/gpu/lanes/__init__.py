"""How lanes lie over invocations and workgroups: by shape, sorted, in tiles, in squares of a product."""
