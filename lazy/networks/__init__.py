"""Functions of neural networks that are more than array functions: written of loops and rules, as users could."""
