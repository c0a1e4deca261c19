"""Factorisations of a lane's matrices as loops over its arrays."""
