# written by `python -m tests.architecture.public_stub` from the statements PUBLIC
from loopgrad.graph.errors import LinAlgError as LinAlgError
from loopgrad.lazy.numpy.linalg.decompositions import cholesky as cholesky
from loopgrad.lazy.numpy.linalg.solving import inv as inv
from loopgrad.lazy.numpy.linalg.solving import solve as solve
from loopgrad.lazy.numpy.matrix_products import cross as cross
from loopgrad.lazy.numpy.matrix_products import matmul as matmul
from loopgrad.lazy.numpy.matrix_products import outer as outer
from loopgrad.lazy.numpy.matrix_products import tensordot as tensordot
from loopgrad.lazy.numpy.matrix_products import vecdot as vecdot
from loopgrad.lazy.numpy.movement import matrix_transpose as matrix_transpose
from loopgrad.lazy.numpy.norms import diagonal as diagonal
from loopgrad.lazy.numpy.norms import matrix_norm as matrix_norm
from loopgrad.lazy.numpy.norms import matrix_power as matrix_power
from loopgrad.lazy.numpy.norms import multi_dot as multi_dot
from loopgrad.lazy.numpy.norms import norm as norm
from loopgrad.lazy.numpy.norms import trace as trace
from loopgrad.lazy.numpy.norms import vector_norm as vector_norm
