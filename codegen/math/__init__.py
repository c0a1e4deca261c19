"""Elementary functions as recipes over abstract operations, for targets that lack them."""
