# written by `python -m tests.architecture.public_stub` from the statements PUBLIC
from loopgrad.lazy.random.bit_generators import BitGenerator as BitGenerator
from loopgrad.lazy.random.bit_generators import Philox4x32 as Philox4x32
from loopgrad.lazy.random.bit_generators import Philox4x64 as Philox4x64
from loopgrad.lazy.random.generator import Generator as Generator
from loopgrad.lazy.random.generator import default_rng as default_rng
from loopgrad.lazy.random.stream import Stream as Stream
