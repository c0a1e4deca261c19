# written by `python -m tests.architecture.public_stub` from the statements PUBLIC
from loopgrad.lazy.samples.integrals import cumulative_simpson as cumulative_simpson
from loopgrad.lazy.samples.integrals import cumulative_trapezoid as cumulative_trapezoid
from loopgrad.lazy.samples.integrals import fixed_quad as fixed_quad
from loopgrad.lazy.samples.integrals import simpson as simpson
from loopgrad.lazy.samples.integrals import trapezoid as trapezoid
