"""Factorisations as operations of the graph, where no library does them: `schedule/factorisations.py` chooses."""
