"""How lanes lie over invocations and workgroups: by shape, sorted, in tiles, in rectangles of a product."""
