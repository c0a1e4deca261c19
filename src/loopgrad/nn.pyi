# written by `python -m tests.architecture.public_stub` from the statements PUBLIC
from loopgrad.lazy.networks.activations import celu as celu
from loopgrad.lazy.networks.activations import dot_product_attention as dot_product_attention
from loopgrad.lazy.networks.activations import elu as elu
from loopgrad.lazy.networks.activations import gelu as gelu
from loopgrad.lazy.networks.activations import glu as glu
from loopgrad.lazy.networks.activations import hard_sigmoid as hard_sigmoid
from loopgrad.lazy.networks.activations import hard_silu as hard_silu
from loopgrad.lazy.networks.activations import hard_tanh as hard_tanh
from loopgrad.lazy.networks.activations import leaky_relu as leaky_relu
from loopgrad.lazy.networks.activations import log1mexp as log1mexp
from loopgrad.lazy.networks.activations import log_expit
from loopgrad.lazy.networks.activations import log_softmax as log_softmax
from loopgrad.lazy.networks.activations import logsumexp as logsumexp
from loopgrad.lazy.networks.activations import mish as mish
from loopgrad.lazy.networks.activations import one_hot as one_hot
from loopgrad.lazy.networks.activations import relu as relu
from loopgrad.lazy.networks.activations import relu6 as relu6
from loopgrad.lazy.networks.activations import selu as selu
from loopgrad.lazy.networks.activations import sigmoid as sigmoid
from loopgrad.lazy.networks.activations import silu as silu
from loopgrad.lazy.networks.activations import soft_sign as soft_sign
from loopgrad.lazy.networks.activations import softmax as softmax
from loopgrad.lazy.networks.activations import softplus as softplus
from loopgrad.lazy.networks.activations import sparse_plus as sparse_plus
from loopgrad.lazy.networks.activations import sparse_sigmoid as sparse_sigmoid
from loopgrad.lazy.networks.activations import squareplus as squareplus
from loopgrad.lazy.networks.activations import standardize as standardize
from loopgrad.lazy.networks.activations import tanh as tanh

hard_swish = hard_silu
log_sigmoid = log_expit
swish = silu
