# written by `python -m tests.architecture.public_stub` from the statements PUBLIC
from loopgrad.lazy.samples.grids import RegularGridInterpolator as RegularGridInterpolator
from loopgrad.lazy.samples.grids import interpn as interpn
from loopgrad.lazy.samples.piecewise import Akima1DInterpolator as Akima1DInterpolator
from loopgrad.lazy.samples.piecewise import CubicHermiteSpline as CubicHermiteSpline
from loopgrad.lazy.samples.piecewise import CubicSpline as CubicSpline
from loopgrad.lazy.samples.piecewise import PchipInterpolator as PchipInterpolator
from loopgrad.lazy.samples.piecewise import PPoly as PPoly
