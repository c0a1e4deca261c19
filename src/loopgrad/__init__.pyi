# written by `python -m tests.architecture.public_stub` from the statements PUBLIC
from loopgrad import fft as fft
from loopgrad import linalg as linalg
from loopgrad import nn as nn
from loopgrad import optim as optim
from loopgrad import random as random
from loopgrad import special as special
from loopgrad import stats as stats
from loopgrad import testing as testing
from loopgrad import tree as tree
from loopgrad.codegen.options import Options as Options
from loopgrad.graph.errors import AxisError as AxisError
from loopgrad.graph.errors import DTypeError as DTypeError
from loopgrad.graph.errors import DeviceError as DeviceError
from loopgrad.graph.errors import GradientError as GradientError
from loopgrad.graph.errors import IndexRangeError as IndexRangeError
from loopgrad.graph.errors import LeakedValueError as LeakedValueError
from loopgrad.graph.errors import LoopgradError as LoopgradError
from loopgrad.graph.errors import LoopLimitError as LoopLimitError
from loopgrad.graph.errors import NamedAxisError as NamedAxisError
from loopgrad.graph.errors import NestingError as NestingError
from loopgrad.graph.errors import ShapeError as ShapeError
from loopgrad.graph.types import bfloat16 as bfloat16
from loopgrad.graph.types import bool_ as bool_
from loopgrad.graph.types import complex128 as complex128
from loopgrad.graph.types import complex64 as complex64
from loopgrad.graph.types import DType as DType
from loopgrad.graph.types import float16 as float16
from loopgrad.graph.types import float32 as float32
from loopgrad.graph.types import float64 as float64
from loopgrad.graph.types import int16 as int16
from loopgrad.graph.types import int32 as int32
from loopgrad.graph.types import int64 as int64
from loopgrad.graph.types import int8 as int8
from loopgrad.graph.types import uint16 as uint16
from loopgrad.graph.types import uint32 as uint32
from loopgrad.graph.types import uint64 as uint64
from loopgrad.graph.types import uint8 as uint8
from loopgrad.lazy.clusters.shards import map_shards as map_shards
from loopgrad.lazy.clusters.sweeps import sweep as sweep
from loopgrad.lazy.files.exported import Exported as Exported
from loopgrad.lazy.files.exported import export as export
from loopgrad.lazy.files.exported import load_exported as load_exported
from loopgrad.lazy.files.saved_trees import FileFormatError as FileFormatError
from loopgrad.lazy.files.saved_trees import load as load
from loopgrad.lazy.files.saved_trees import save as save
from loopgrad.lazy.loops.associative_scan import associative_scan as associative_scan
from loopgrad.lazy.loops.branches import cond as cond
from loopgrad.lazy.loops.branches import switch as switch
from loopgrad.lazy.loops.fori_loop import fori_loop as fori_loop
from loopgrad.lazy.loops.scan import scan as scan
from loopgrad.lazy.loops.while_loop import EndlessLoopError as EndlessLoopError
from loopgrad.lazy.loops.while_loop import while_loop as while_loop
from loopgrad.lazy.mesh.batches import shard_batches as shard_batches
from loopgrad.lazy.mesh.collectives import all_gather as all_gather
from loopgrad.lazy.mesh.collectives import all_to_all as all_to_all
from loopgrad.lazy.mesh.collectives import axis_index as axis_index
from loopgrad.lazy.mesh.collectives import axis_size as axis_size
from loopgrad.lazy.mesh.collectives import pmax as pmax
from loopgrad.lazy.mesh.collectives import pmean as pmean
from loopgrad.lazy.mesh.collectives import pmin as pmin
from loopgrad.lazy.mesh.collectives import ppermute as ppermute
from loopgrad.lazy.mesh.collectives import pshuffle as pshuffle
from loopgrad.lazy.mesh.collectives import psum as psum
from loopgrad.lazy.mesh.collectives import psum_scatter as psum_scatter
from loopgrad.lazy.mesh.collectives import pswapaxes as pswapaxes
from loopgrad.lazy.mesh.meshes import Mesh as Mesh
from loopgrad.lazy.mesh.meshes import mesh as mesh
from loopgrad.lazy.mesh.sharding import gather_all as gather_all
from loopgrad.lazy.mesh.sharding import shard as shard
from loopgrad.lazy.networks.attention import attention as attention
from loopgrad.lazy.numpy.complex_functions import angle as angle
from loopgrad.lazy.numpy.complex_functions import conj as conj
from loopgrad.lazy.numpy.complex_functions import imag as imag
from loopgrad.lazy.numpy.complex_functions import iscomplex as iscomplex
from loopgrad.lazy.numpy.complex_functions import iscomplexobj as iscomplexobj
from loopgrad.lazy.numpy.complex_functions import isreal as isreal
from loopgrad.lazy.numpy.complex_functions import isrealobj as isrealobj
from loopgrad.lazy.numpy.complex_functions import real as real
from loopgrad.lazy.numpy.complex_functions import real_if_close as real_if_close
from loopgrad.lazy.numpy.constants import array_api_version
from loopgrad.lazy.numpy.constants import e as e
from loopgrad.lazy.numpy.constants import euler_gamma as euler_gamma
from loopgrad.lazy.numpy.constants import inf as inf
from loopgrad.lazy.numpy.constants import nan as nan
from loopgrad.lazy.numpy.constants import newaxis as newaxis
from loopgrad.lazy.numpy.constants import pi as pi
from loopgrad.lazy.numpy.convolution import conv as conv
from loopgrad.lazy.numpy.convolution import convolve as convolve
from loopgrad.lazy.numpy.convolution import correlate as correlate
from loopgrad.lazy.numpy.creation import arange as arange
from loopgrad.lazy.numpy.creation import array as array
from loopgrad.lazy.numpy.creation import asarray as asarray
from loopgrad.lazy.numpy.creation import astype as astype
from loopgrad.lazy.numpy.creation import copy as copy
from loopgrad.lazy.numpy.creation import empty as empty
from loopgrad.lazy.numpy.creation import empty_like as empty_like
from loopgrad.lazy.numpy.creation import eye as eye
from loopgrad.lazy.numpy.creation import from_dlpack as from_dlpack
from loopgrad.lazy.numpy.creation import fromfunction as fromfunction
from loopgrad.lazy.numpy.creation import full as full
from loopgrad.lazy.numpy.creation import full_like as full_like
from loopgrad.lazy.numpy.creation import identity as identity
from loopgrad.lazy.numpy.creation import indices as indices
from loopgrad.lazy.numpy.creation import ones as ones
from loopgrad.lazy.numpy.creation import ones_like as ones_like
from loopgrad.lazy.numpy.creation import tri as tri
from loopgrad.lazy.numpy.creation import zeros as zeros
from loopgrad.lazy.numpy.creation import zeros_like as zeros_like
from loopgrad.lazy.numpy.dynamic_slices import dynamic_index_in_dim as dynamic_index_in_dim
from loopgrad.lazy.numpy.dynamic_slices import dynamic_slice as dynamic_slice
from loopgrad.lazy.numpy.dynamic_slices import dynamic_slice_in_dim as dynamic_slice_in_dim
from loopgrad.lazy.numpy.dynamic_slices import dynamic_update_index_in_dim as dynamic_update_index_in_dim
from loopgrad.lazy.numpy.dynamic_slices import dynamic_update_slice as dynamic_update_slice
from loopgrad.lazy.numpy.dynamic_slices import dynamic_update_slice_in_dim as dynamic_update_slice_in_dim
from loopgrad.lazy.numpy.einsum import einsum as einsum
from loopgrad.lazy.numpy.elementwise import absolute as absolute
from loopgrad.lazy.numpy.elementwise import acos as acos
from loopgrad.lazy.numpy.elementwise import acosh as acosh
from loopgrad.lazy.numpy.elementwise import add as add
from loopgrad.lazy.numpy.elementwise import asin as asin
from loopgrad.lazy.numpy.elementwise import asinh as asinh
from loopgrad.lazy.numpy.elementwise import atan as atan
from loopgrad.lazy.numpy.elementwise import atan2 as atan2
from loopgrad.lazy.numpy.elementwise import atanh as atanh
from loopgrad.lazy.numpy.elementwise import bitwise_and as bitwise_and
from loopgrad.lazy.numpy.elementwise import bitwise_invert as bitwise_invert
from loopgrad.lazy.numpy.elementwise import bitwise_left_shift as bitwise_left_shift
from loopgrad.lazy.numpy.elementwise import bitwise_or as bitwise_or
from loopgrad.lazy.numpy.elementwise import bitwise_right_shift as bitwise_right_shift
from loopgrad.lazy.numpy.elementwise import bitwise_xor as bitwise_xor
from loopgrad.lazy.numpy.elementwise import ceil as ceil
from loopgrad.lazy.numpy.elementwise import cos as cos
from loopgrad.lazy.numpy.elementwise import cosh as cosh
from loopgrad.lazy.numpy.elementwise import digamma as digamma
from loopgrad.lazy.numpy.elementwise import divide as divide
from loopgrad.lazy.numpy.elementwise import equal as equal
from loopgrad.lazy.numpy.elementwise import erf as erf
from loopgrad.lazy.numpy.elementwise import erfc as erfc
from loopgrad.lazy.numpy.elementwise import exp as exp
from loopgrad.lazy.numpy.elementwise import exp2 as exp2
from loopgrad.lazy.numpy.elementwise import expm1 as expm1
from loopgrad.lazy.numpy.elementwise import floor as floor
from loopgrad.lazy.numpy.elementwise import floor_divide as floor_divide
from loopgrad.lazy.numpy.elementwise import fmod as fmod
from loopgrad.lazy.numpy.elementwise import greater as greater
from loopgrad.lazy.numpy.elementwise import greater_equal as greater_equal
from loopgrad.lazy.numpy.elementwise import less as less
from loopgrad.lazy.numpy.elementwise import less_equal as less_equal
from loopgrad.lazy.numpy.elementwise import lgamma as lgamma
from loopgrad.lazy.numpy.elementwise import log as log
from loopgrad.lazy.numpy.elementwise import log10 as log10
from loopgrad.lazy.numpy.elementwise import log1p as log1p
from loopgrad.lazy.numpy.elementwise import log2 as log2
from loopgrad.lazy.numpy.elementwise import logical_and as logical_and
from loopgrad.lazy.numpy.elementwise import logical_not as logical_not
from loopgrad.lazy.numpy.elementwise import logical_or as logical_or
from loopgrad.lazy.numpy.elementwise import logical_xor as logical_xor
from loopgrad.lazy.numpy.elementwise import maximum as maximum
from loopgrad.lazy.numpy.elementwise import minimum as minimum
from loopgrad.lazy.numpy.elementwise import multiply as multiply
from loopgrad.lazy.numpy.elementwise import negative as negative
from loopgrad.lazy.numpy.elementwise import not_equal as not_equal
from loopgrad.lazy.numpy.elementwise import positive as positive
from loopgrad.lazy.numpy.elementwise import power as power
from loopgrad.lazy.numpy.elementwise import reciprocal as reciprocal
from loopgrad.lazy.numpy.elementwise import remainder as remainder
from loopgrad.lazy.numpy.elementwise import round as round
from loopgrad.lazy.numpy.elementwise import rsqrt as rsqrt
from loopgrad.lazy.numpy.elementwise import sign as sign
from loopgrad.lazy.numpy.elementwise import sin as sin
from loopgrad.lazy.numpy.elementwise import sinh as sinh
from loopgrad.lazy.numpy.elementwise import sqrt as sqrt
from loopgrad.lazy.numpy.elementwise import square as square
from loopgrad.lazy.numpy.elementwise import stop_gradient as stop_gradient
from loopgrad.lazy.numpy.elementwise import subtract as subtract
from loopgrad.lazy.numpy.elementwise import tan as tan
from loopgrad.lazy.numpy.elementwise import tanh as tanh
from loopgrad.lazy.numpy.elementwise import trunc as trunc
from loopgrad.lazy.numpy.elementwise_compositions import allclose as allclose
from loopgrad.lazy.numpy.elementwise_compositions import array_equal as array_equal
from loopgrad.lazy.numpy.elementwise_compositions import bitwise_count as bitwise_count
from loopgrad.lazy.numpy.elementwise_compositions import deg2rad as deg2rad
from loopgrad.lazy.numpy.elementwise_compositions import degrees as degrees
from loopgrad.lazy.numpy.elementwise_compositions import divmod as divmod
from loopgrad.lazy.numpy.elementwise_compositions import fabs as fabs
from loopgrad.lazy.numpy.elementwise_compositions import float_power as float_power
from loopgrad.lazy.numpy.elementwise_compositions import fmax as fmax
from loopgrad.lazy.numpy.elementwise_compositions import fmin as fmin
from loopgrad.lazy.numpy.elementwise_compositions import gcd as gcd
from loopgrad.lazy.numpy.elementwise_compositions import heaviside as heaviside
from loopgrad.lazy.numpy.elementwise_compositions import isclose as isclose
from loopgrad.lazy.numpy.elementwise_compositions import isin as isin
from loopgrad.lazy.numpy.elementwise_compositions import isneginf as isneginf
from loopgrad.lazy.numpy.elementwise_compositions import isposinf as isposinf
from loopgrad.lazy.numpy.elementwise_compositions import lcm as lcm
from loopgrad.lazy.numpy.elementwise_compositions import ldexp as ldexp
from loopgrad.lazy.numpy.elementwise_compositions import logaddexp2 as logaddexp2
from loopgrad.lazy.numpy.elementwise_compositions import modf as modf
from loopgrad.lazy.numpy.elementwise_compositions import rad2deg as rad2deg
from loopgrad.lazy.numpy.elementwise_compositions import radians as radians
from loopgrad.lazy.numpy.elementwise_compositions import rint as rint
from loopgrad.lazy.numpy.elementwise_compositions import select as select
from loopgrad.lazy.numpy.elementwise_compositions import sinc as sinc
from loopgrad.lazy.numpy.float_bits import bitcast_convert_type as bitcast_convert_type
from loopgrad.lazy.numpy.float_bits import frexp as frexp
from loopgrad.lazy.numpy.float_bits import nextafter as nextafter
from loopgrad.lazy.numpy.float_bits import spacing as spacing
from loopgrad.lazy.numpy.float_errors import errstate as errstate
from loopgrad.lazy.numpy.float_errors import seterr as seterr
from loopgrad.lazy.numpy.found_positions import argwhere as argwhere
from loopgrad.lazy.numpy.found_positions import compress as compress
from loopgrad.lazy.numpy.found_positions import delete as delete
from loopgrad.lazy.numpy.found_positions import extract as extract
from loopgrad.lazy.numpy.found_positions import flatnonzero as flatnonzero
from loopgrad.lazy.numpy.found_positions import nonzero as nonzero
from loopgrad.lazy.numpy.found_positions import unravel_index as unravel_index
from loopgrad.lazy.numpy.general_products import conv_general_dilated as conv_general_dilated
from loopgrad.lazy.numpy.general_products import dot_general as dot_general
from loopgrad.lazy.numpy.histograms import bincount as bincount
from loopgrad.lazy.numpy.histograms import digitize as digitize
from loopgrad.lazy.numpy.histograms import histogram as histogram
from loopgrad.lazy.numpy.histograms import histogram2d as histogram2d
from loopgrad.lazy.numpy.histograms import histogram_bin_edges as histogram_bin_edges
from loopgrad.lazy.numpy.histograms import histogramdd as histogramdd
from loopgrad.lazy.numpy.index_builders import c_ as c_
from loopgrad.lazy.numpy.index_builders import diag_indices as diag_indices
from loopgrad.lazy.numpy.index_builders import diag_indices_from as diag_indices_from
from loopgrad.lazy.numpy.index_builders import index_exp as index_exp
from loopgrad.lazy.numpy.index_builders import ix_ as ix_
from loopgrad.lazy.numpy.index_builders import mask_indices as mask_indices
from loopgrad.lazy.numpy.index_builders import mgrid as mgrid
from loopgrad.lazy.numpy.index_builders import ogrid as ogrid
from loopgrad.lazy.numpy.index_builders import r_ as r_
from loopgrad.lazy.numpy.index_builders import ravel_multi_index as ravel_multi_index
from loopgrad.lazy.numpy.index_builders import s_ as s_
from loopgrad.lazy.numpy.index_builders import tril_indices as tril_indices
from loopgrad.lazy.numpy.index_builders import tril_indices_from as tril_indices_from
from loopgrad.lazy.numpy.index_builders import triu_indices as triu_indices
from loopgrad.lazy.numpy.index_builders import triu_indices_from as triu_indices_from
from loopgrad.lazy.numpy.joining import append as append
from loopgrad.lazy.numpy.joining import array_split as array_split
from loopgrad.lazy.numpy.joining import atleast_1d as atleast_1d
from loopgrad.lazy.numpy.joining import atleast_2d as atleast_2d
from loopgrad.lazy.numpy.joining import atleast_3d as atleast_3d
from loopgrad.lazy.numpy.joining import block as block
from loopgrad.lazy.numpy.joining import column_stack as column_stack
from loopgrad.lazy.numpy.joining import dsplit as dsplit
from loopgrad.lazy.numpy.joining import dstack as dstack
from loopgrad.lazy.numpy.joining import fliplr as fliplr
from loopgrad.lazy.numpy.joining import flipud as flipud
from loopgrad.lazy.numpy.joining import hsplit as hsplit
from loopgrad.lazy.numpy.joining import hstack as hstack
from loopgrad.lazy.numpy.joining import kron as kron
from loopgrad.lazy.numpy.joining import rot90 as rot90
from loopgrad.lazy.numpy.joining import vsplit as vsplit
from loopgrad.lazy.numpy.joining import vstack as vstack
from loopgrad.lazy.numpy.matrix_products import cross as cross
from loopgrad.lazy.numpy.matrix_products import diag as diag
from loopgrad.lazy.numpy.matrix_products import diagflat as diagflat
from loopgrad.lazy.numpy.matrix_products import diagonal as diagonal
from loopgrad.lazy.numpy.matrix_products import dot as dot
from loopgrad.lazy.numpy.matrix_products import inner as inner
from loopgrad.lazy.numpy.matrix_products import matmul as matmul
from loopgrad.lazy.numpy.matrix_products import matvec as matvec
from loopgrad.lazy.numpy.matrix_products import outer as outer
from loopgrad.lazy.numpy.matrix_products import tensordot as tensordot
from loopgrad.lazy.numpy.matrix_products import trace as trace
from loopgrad.lazy.numpy.matrix_products import vdot as vdot
from loopgrad.lazy.numpy.matrix_products import vecdot as vecdot
from loopgrad.lazy.numpy.matrix_products import vecmat as vecmat
from loopgrad.lazy.numpy.movement import broadcast_arrays as broadcast_arrays
from loopgrad.lazy.numpy.movement import broadcast_shapes as broadcast_shapes
from loopgrad.lazy.numpy.movement import broadcast_to as broadcast_to
from loopgrad.lazy.numpy.movement import concat as concat
from loopgrad.lazy.numpy.movement import expand_dims as expand_dims
from loopgrad.lazy.numpy.movement import flip as flip
from loopgrad.lazy.numpy.movement import matrix_transpose as matrix_transpose
from loopgrad.lazy.numpy.movement import moveaxis as moveaxis
from loopgrad.lazy.numpy.movement import permute_dims as permute_dims
from loopgrad.lazy.numpy.movement import ravel as ravel
from loopgrad.lazy.numpy.movement import reshape as reshape
from loopgrad.lazy.numpy.movement import roll as roll
from loopgrad.lazy.numpy.movement import split as split
from loopgrad.lazy.numpy.movement import squeeze as squeeze
from loopgrad.lazy.numpy.movement import stack as stack
from loopgrad.lazy.numpy.movement import swapaxes as swapaxes
from loopgrad.lazy.numpy.movement import transpose as transpose
from loopgrad.lazy.numpy.movement import tril as tril
from loopgrad.lazy.numpy.movement import triu as triu
from loopgrad.lazy.numpy.movement import unstack as unstack
from loopgrad.lazy.numpy.namespace_info import namespace_info
from loopgrad.lazy.numpy.norms import matrix_norm as matrix_norm
from loopgrad.lazy.numpy.norms import vector_norm as vector_norm
from loopgrad.lazy.numpy.padding import pad as pad
from loopgrad.lazy.numpy.polynomial_roots import poly as poly
from loopgrad.lazy.numpy.polynomial_roots import polyfit as polyfit
from loopgrad.lazy.numpy.polynomial_roots import roots as roots
from loopgrad.lazy.numpy.polynomials import polyadd as polyadd
from loopgrad.lazy.numpy.polynomials import polyder as polyder
from loopgrad.lazy.numpy.polynomials import polydiv as polydiv
from loopgrad.lazy.numpy.polynomials import polyint as polyint
from loopgrad.lazy.numpy.polynomials import polymul as polymul
from loopgrad.lazy.numpy.polynomials import polysub as polysub
from loopgrad.lazy.numpy.polynomials import polyval as polyval
from loopgrad.lazy.numpy.quantiles import median as median
from loopgrad.lazy.numpy.quantiles import nanmedian as nanmedian
from loopgrad.lazy.numpy.quantiles import nanpercentile as nanpercentile
from loopgrad.lazy.numpy.quantiles import nanquantile as nanquantile
from loopgrad.lazy.numpy.quantiles import percentile as percentile
from loopgrad.lazy.numpy.quantiles import quantile as quantile
from loopgrad.lazy.numpy.reading import frombuffer as frombuffer
from loopgrad.lazy.numpy.reading import fromiter as fromiter
from loopgrad.lazy.numpy.reading import fromstring as fromstring
from loopgrad.lazy.numpy.reading import genfromtxt as genfromtxt
from loopgrad.lazy.numpy.reading import loadtxt as loadtxt
from loopgrad.lazy.numpy.rearranging import argpartition as argpartition
from loopgrad.lazy.numpy.rearranging import array_equiv as array_equiv
from loopgrad.lazy.numpy.rearranging import choose as choose
from loopgrad.lazy.numpy.rearranging import insert as insert
from loopgrad.lazy.numpy.rearranging import packbits as packbits
from loopgrad.lazy.numpy.rearranging import partition as partition
from loopgrad.lazy.numpy.rearranging import piecewise as piecewise
from loopgrad.lazy.numpy.rearranging import resize as resize
from loopgrad.lazy.numpy.rearranging import rollaxis as rollaxis
from loopgrad.lazy.numpy.rearranging import unpackbits as unpackbits
from loopgrad.lazy.numpy.reduction import all as all
from loopgrad.lazy.numpy.reduction import any as any
from loopgrad.lazy.numpy.reduction import argmax as argmax
from loopgrad.lazy.numpy.reduction import argmin as argmin
from loopgrad.lazy.numpy.reduction import count_nonzero as count_nonzero
from loopgrad.lazy.numpy.reduction import diff as diff
from loopgrad.lazy.numpy.reduction import logsumexp as logsumexp
from loopgrad.lazy.numpy.reduction import max as max
from loopgrad.lazy.numpy.reduction import mean as mean
from loopgrad.lazy.numpy.reduction import min as min
from loopgrad.lazy.numpy.reduction import prod as prod
from loopgrad.lazy.numpy.reduction import std as std
from loopgrad.lazy.numpy.reduction import sum as sum
from loopgrad.lazy.numpy.reduction import var as var
from loopgrad.lazy.numpy.repetition import meshgrid as meshgrid
from loopgrad.lazy.numpy.repetition import repeat as repeat
from loopgrad.lazy.numpy.repetition import tile as tile
from loopgrad.lazy.numpy.running_totals import cummax as cummax
from loopgrad.lazy.numpy.running_totals import cummin as cummin
from loopgrad.lazy.numpy.running_totals import cumprod as cumprod
from loopgrad.lazy.numpy.running_totals import cumsum as cumsum
from loopgrad.lazy.numpy.running_totals import logcumsumexp as logcumsumexp
from loopgrad.lazy.numpy.sampled_functions import gradient as gradient
from loopgrad.lazy.numpy.sampled_functions import interp as interp
from loopgrad.lazy.numpy.sampled_functions import trapezoid as trapezoid
from loopgrad.lazy.numpy.sampled_functions import unwrap as unwrap
from loopgrad.lazy.numpy.sampled_functions import vander as vander
from loopgrad.lazy.numpy.set_operations import ediff1d as ediff1d
from loopgrad.lazy.numpy.set_operations import intersect1d as intersect1d
from loopgrad.lazy.numpy.set_operations import setdiff1d as setdiff1d
from loopgrad.lazy.numpy.set_operations import setxor1d as setxor1d
from loopgrad.lazy.numpy.set_operations import trim_zeros as trim_zeros
from loopgrad.lazy.numpy.set_operations import union1d as union1d
from loopgrad.lazy.numpy.shapes_and_dtypes import complexfloating as complexfloating
from loopgrad.lazy.numpy.shapes_and_dtypes import finfo as finfo
from loopgrad.lazy.numpy.shapes_and_dtypes import floating as floating
from loopgrad.lazy.numpy.shapes_and_dtypes import generic as generic
from loopgrad.lazy.numpy.shapes_and_dtypes import iinfo as iinfo
from loopgrad.lazy.numpy.shapes_and_dtypes import inexact as inexact
from loopgrad.lazy.numpy.shapes_and_dtypes import integer as integer
from loopgrad.lazy.numpy.shapes_and_dtypes import isdtype as isdtype
from loopgrad.lazy.numpy.shapes_and_dtypes import isscalar as isscalar
from loopgrad.lazy.numpy.shapes_and_dtypes import issubdtype as issubdtype
from loopgrad.lazy.numpy.shapes_and_dtypes import ndim as ndim
from loopgrad.lazy.numpy.shapes_and_dtypes import number as number
from loopgrad.lazy.numpy.shapes_and_dtypes import promote_types as promote_types
from loopgrad.lazy.numpy.shapes_and_dtypes import result_type as result_type
from loopgrad.lazy.numpy.shapes_and_dtypes import shape as shape
from loopgrad.lazy.numpy.shapes_and_dtypes import signedinteger as signedinteger
from loopgrad.lazy.numpy.shapes_and_dtypes import size as size
from loopgrad.lazy.numpy.shapes_and_dtypes import unsignedinteger as unsignedinteger
from loopgrad.lazy.numpy.smooth_functions import cbrt as cbrt
from loopgrad.lazy.numpy.smooth_functions import hypot as hypot
from loopgrad.lazy.numpy.smooth_functions import logaddexp as logaddexp
from loopgrad.lazy.numpy.smooth_functions import sigmoid as sigmoid
from loopgrad.lazy.numpy.sorting import argsort as argsort
from loopgrad.lazy.numpy.sorting import lexsort as lexsort
from loopgrad.lazy.numpy.sorting import searchsorted as searchsorted
from loopgrad.lazy.numpy.sorting import sort as sort
from loopgrad.lazy.numpy.sorting import top_k as top_k
from loopgrad.lazy.numpy.spaced_numbers import geomspace as geomspace
from loopgrad.lazy.numpy.spaced_numbers import linspace as linspace
from loopgrad.lazy.numpy.spaced_numbers import logspace as logspace
from loopgrad.lazy.numpy.special_values import clip as clip
from loopgrad.lazy.numpy.special_values import copysign as copysign
from loopgrad.lazy.numpy.special_values import isfinite as isfinite
from loopgrad.lazy.numpy.special_values import isinf as isinf
from loopgrad.lazy.numpy.special_values import isnan as isnan
from loopgrad.lazy.numpy.special_values import nan_to_num as nan_to_num
from loopgrad.lazy.numpy.special_values import signbit as signbit
from loopgrad.lazy.numpy.special_values import where as where
from loopgrad.lazy.numpy.statistics import average as average
from loopgrad.lazy.numpy.statistics import corrcoef as corrcoef
from loopgrad.lazy.numpy.statistics import cov as cov
from loopgrad.lazy.numpy.statistics import nanargmax as nanargmax
from loopgrad.lazy.numpy.statistics import nanargmin as nanargmin
from loopgrad.lazy.numpy.statistics import nancumprod as nancumprod
from loopgrad.lazy.numpy.statistics import nancumsum as nancumsum
from loopgrad.lazy.numpy.statistics import nanmax as nanmax
from loopgrad.lazy.numpy.statistics import nanmean as nanmean
from loopgrad.lazy.numpy.statistics import nanmin as nanmin
from loopgrad.lazy.numpy.statistics import nanprod as nanprod
from loopgrad.lazy.numpy.statistics import nanstd as nanstd
from loopgrad.lazy.numpy.statistics import nansum as nansum
from loopgrad.lazy.numpy.statistics import nanvar as nanvar
from loopgrad.lazy.numpy.statistics import ptp as ptp
from loopgrad.lazy.numpy.taking import take as take
from loopgrad.lazy.numpy.taking import take_along_axis as take_along_axis
from loopgrad.lazy.numpy.text import array2string as array2string
from loopgrad.lazy.numpy.text import array_repr as array_repr
from loopgrad.lazy.numpy.text import array_str as array_str
from loopgrad.lazy.numpy.text import base_repr as base_repr
from loopgrad.lazy.numpy.text import binary_repr as binary_repr
from loopgrad.lazy.numpy.text import format_float_positional as format_float_positional
from loopgrad.lazy.numpy.text import format_float_scientific as format_float_scientific
from loopgrad.lazy.numpy.text import get_printoptions as get_printoptions
from loopgrad.lazy.numpy.text import iterable as iterable
from loopgrad.lazy.numpy.text import ndenumerate as ndenumerate
from loopgrad.lazy.numpy.text import ndindex as ndindex
from loopgrad.lazy.numpy.text import printoptions as printoptions
from loopgrad.lazy.numpy.text import set_printoptions as set_printoptions
from loopgrad.lazy.numpy.unique import unique as unique
from loopgrad.lazy.numpy.unique import unique_all as unique_all
from loopgrad.lazy.numpy.unique import unique_counts as unique_counts
from loopgrad.lazy.numpy.unique import unique_inverse as unique_inverse
from loopgrad.lazy.numpy.unique import unique_values as unique_values
from loopgrad.lazy.numpy.window_reductions import reduce_window as reduce_window
from loopgrad.lazy.numpy.windows import bartlett as bartlett
from loopgrad.lazy.numpy.windows import blackman as blackman
from loopgrad.lazy.numpy.windows import hamming as hamming
from loopgrad.lazy.numpy.windows import hanning as hanning
from loopgrad.lazy.numpy.windows import i0 as i0
from loopgrad.lazy.numpy.windows import kaiser as kaiser
from loopgrad.lazy.numpy.writes import copyto as copyto
from loopgrad.lazy.numpy.writes import fill_diagonal as fill_diagonal
from loopgrad.lazy.numpy.writes import place as place
from loopgrad.lazy.numpy.writes import put as put
from loopgrad.lazy.numpy.writes import put_along_axis as put_along_axis
from loopgrad.lazy.numpy.writes import putmask as putmask
from loopgrad.lazy.tensor.config import default_device as default_device
from loopgrad.lazy.tensor.config import default_dtype as default_dtype
from loopgrad.lazy.tensor.config import options as options
from loopgrad.lazy.tensor.config import set_default_dtype as set_default_dtype
from loopgrad.lazy.tensor.errors import HistoryError as HistoryError
from loopgrad.lazy.tensor.errors import StaleCaptureError as StaleCaptureError
from loopgrad.lazy.tensor.errors import StaticArgumentError as StaticArgumentError
from loopgrad.lazy.tensor.errors import StructureError as StructureError
from loopgrad.lazy.tensor.errors import TracedValueError as TracedValueError
from loopgrad.lazy.tensor.evaluation import evaluate
from loopgrad.lazy.tensor.evaluation import memory_stats as memory_stats
from loopgrad.lazy.tensor.evaluation import synchronize as synchronize
from loopgrad.lazy.tensor.evaluation import to_device as to_device
from loopgrad.lazy.tensor.graph_export import explain as explain
from loopgrad.lazy.tensor.graph_export import to_dot as to_dot
from loopgrad.lazy.tensor.graph_export import to_networkx as to_networkx
from loopgrad.lazy.tensor.graph_export import to_text as to_text
from loopgrad.lazy.tensor.promotion import can_cast as can_cast
from loopgrad.lazy.tensor.tensor import Tensor as Tensor
from loopgrad.lazy.transforms.apply_functions import apply_along_axis as apply_along_axis
from loopgrad.lazy.transforms.apply_functions import apply_over_axes as apply_over_axes
from loopgrad.lazy.transforms.captured_call import Replay as Replay
from loopgrad.lazy.transforms.checkpoint import checkpoint as checkpoint
from loopgrad.lazy.transforms.checkpoint import checkpoint_policies as checkpoint_policies
from loopgrad.lazy.transforms.checkpoint import name as name
from loopgrad.lazy.transforms.compile import compile as compile
from loopgrad.lazy.transforms.compile import Compiled as Compiled
from loopgrad.lazy.transforms.derivatives import grad as grad
from loopgrad.lazy.transforms.derivatives import hessian as hessian
from loopgrad.lazy.transforms.derivatives import hvp as hvp
from loopgrad.lazy.transforms.derivatives import jacfwd as jacfwd
from loopgrad.lazy.transforms.derivatives import jacrev as jacrev
from loopgrad.lazy.transforms.derivatives import jvp as jvp
from loopgrad.lazy.transforms.derivatives import linearize as linearize
from loopgrad.lazy.transforms.derivatives import value_and_grad as value_and_grad
from loopgrad.lazy.transforms.derivatives import vjp as vjp
from loopgrad.lazy.transforms.gradients_of_tensors import gradients as gradients
from loopgrad.lazy.transforms.linear_transposition import linear_transpose as linear_transpose
from loopgrad.lazy.transforms.own_rules import custom_jvp as custom_jvp
from loopgrad.lazy.transforms.own_rules import custom_vjp as custom_vjp
from loopgrad.lazy.transforms.shape_evaluation import eval_shape as eval_shape
from loopgrad.lazy.transforms.shape_evaluation import ShapeDtypeStruct as ShapeDtypeStruct
from loopgrad.lazy.transforms.static_arguments import register_pytree as register_pytree
from loopgrad.lazy.transforms.static_arguments import register_static as register_static
from loopgrad.lazy.transforms.vectorize import map as map
from loopgrad.lazy.transforms.vectorize import vectorize as vectorize
from loopgrad.lazy.transforms.vmap import vmap as vmap
from loopgrad.runtime.devices import devices as devices
from loopgrad.runtime.devices import DeviceStatus as DeviceStatus
from loopgrad.runtime.failures import StackCapacityError as StackCapacityError
from loopgrad.runtime.plan import MemoryStats as MemoryStats
from loopgrad.runtime.plan import Plan as Plan
from loopgrad.runtime.replay import ReplayStats as ReplayStats

__version__: str
bool = bool_
half = float16
single = float32
double = float64
csingle = complex64
cdouble = complex128
byte = int8
ubyte = uint8
short = int16
ushort = uint16
intc = int32
uintc = uint32
int_ = int64
intp = int64
long = int64
longlong = int64
uint = uint64
uintp = uint64
ulong = uint64
ulonglong = uint64
conjugate = conj
__array_api_version__ = array_api_version
asanyarray = asarray
ascontiguousarray = asarray
abs = absolute
arccos = acos
arccosh = acosh
arcsin = asin
arcsinh = asinh
arctan = atan
arctan2 = atan2
arctanh = atanh
bitwise_not = bitwise_invert
invert = bitwise_invert
left_shift = bitwise_left_shift
right_shift = bitwise_right_shift
true_divide = divide
pow = power
mod = remainder
around = round
fix = trunc
concatenate = concat
__array_namespace_info__ = namespace_info
amax = max
amin = min
cumulative_prod = cumprod
cumulative_sum = cumsum
eval = evaluate
