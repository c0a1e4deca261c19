# written by `python -m tests.architecture.public_stub` from the statements PUBLIC
from loopgrad.lazy.numpy.tree_functions import all as all
from loopgrad.lazy.numpy.tree_functions import allclose as allclose
from loopgrad.lazy.numpy.tree_functions import broadcast as broadcast
from loopgrad.lazy.numpy.tree_functions import flatten as flatten
from loopgrad.lazy.numpy.tree_functions import flatten_with_path as flatten_with_path
from loopgrad.lazy.numpy.tree_functions import leaves as leaves
from loopgrad.lazy.numpy.tree_functions import leaves_with_path as leaves_with_path
from loopgrad.lazy.numpy.tree_functions import map as map
from loopgrad.lazy.numpy.tree_functions import map_with_path as map_with_path
from loopgrad.lazy.numpy.tree_functions import ravel as ravel
from loopgrad.lazy.numpy.tree_functions import reduce as reduce
from loopgrad.lazy.numpy.tree_functions import stack as stack
from loopgrad.lazy.numpy.tree_functions import structure as structure
from loopgrad.lazy.numpy.tree_functions import transpose as transpose
from loopgrad.lazy.numpy.tree_functions import unflatten as unflatten
from loopgrad.lazy.numpy.tree_functions import unstack as unstack
