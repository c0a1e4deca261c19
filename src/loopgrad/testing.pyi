# written by `python -m tests.architecture.public_stub` from the statements PUBLIC
from loopgrad.lazy.transforms.gradient_checks import check_grads as check_grads
