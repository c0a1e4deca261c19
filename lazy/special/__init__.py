"""`lg.special`: special functions by the names of SciPy, each a composition of what has derivatives.

Operands broadcast; 16-bit floats are computed as float32. Where a function is put together of pieces, each piece is the
function on both sides of its border, so that derivatives of every order are right there, and what isn't wanted is
computed for an argument that is in the range of its piece.
"""
