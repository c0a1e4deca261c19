"""Programs of unknown extents: what scheduling decides for one shape, with the conditions under which it holds."""
