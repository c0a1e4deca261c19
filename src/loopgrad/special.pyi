# written by `python -m tests.architecture.public_stub` from the statements PUBLIC
from loopgrad.lazy.special.bessel import i0 as i0
from loopgrad.lazy.special.bessel import i0e as i0e
from loopgrad.lazy.special.bessel import i1 as i1
from loopgrad.lazy.special.bessel import i1e as i1e
from loopgrad.lazy.special.bessel import j0 as j0
from loopgrad.lazy.special.bessel import j1 as j1
from loopgrad.lazy.special.bessel import k0 as k0
from loopgrad.lazy.special.bessel import k0e as k0e
from loopgrad.lazy.special.bessel import k1 as k1
from loopgrad.lazy.special.bessel import k1e as k1e
from loopgrad.lazy.special.bessel import y0 as y0
from loopgrad.lazy.special.bessel import y1 as y1
from loopgrad.lazy.special.entropies import entr as entr
from loopgrad.lazy.special.entropies import kl_div as kl_div
from loopgrad.lazy.special.entropies import log_expit as log_expit
from loopgrad.lazy.special.entropies import log_softmax as log_softmax
from loopgrad.lazy.special.entropies import logit as logit
from loopgrad.lazy.special.entropies import logsumexp as logsumexp
from loopgrad.lazy.special.entropies import rel_entr as rel_entr
from loopgrad.lazy.special.entropies import sigmoid
from loopgrad.lazy.special.entropies import softmax as softmax
from loopgrad.lazy.special.entropies import softplus as softplus
from loopgrad.lazy.special.entropies import xlog1py as xlog1py
from loopgrad.lazy.special.entropies import xlogy as xlogy
from loopgrad.lazy.special.gamma_functions import beta as beta
from loopgrad.lazy.special.gamma_functions import betaln as betaln
from loopgrad.lazy.special.gamma_functions import factorial as factorial
from loopgrad.lazy.special.gamma_functions import gamma as gamma
from loopgrad.lazy.special.gamma_functions import gammasgn as gammasgn
from loopgrad.lazy.special.gamma_functions import polygamma as polygamma
from loopgrad.lazy.special.gamma_functions import zeta as zeta
from loopgrad.lazy.special.incomplete_beta import betainc as betainc
from loopgrad.lazy.special.incomplete_beta import betaincc as betaincc
from loopgrad.lazy.special.incomplete_gamma import gammainc as gammainc
from loopgrad.lazy.special.incomplete_gamma import gammaincc as gammaincc
from loopgrad.lazy.special.integrals import exp1 as exp1
from loopgrad.lazy.special.integrals import expi as expi
from loopgrad.lazy.special.integrals import sici as sici
from loopgrad.lazy.special.integrals import spence as spence
from loopgrad.lazy.special.lambert_w import lambertw as lambertw
from loopgrad.lazy.special.normal import digamma as digamma
from loopgrad.lazy.special.normal import erf as erf
from loopgrad.lazy.special.normal import erfc as erfc
from loopgrad.lazy.special.normal import erfcinv as erfcinv
from loopgrad.lazy.special.normal import erfcx as erfcx
from loopgrad.lazy.special.normal import erfinv as erfinv
from loopgrad.lazy.special.normal import lgamma
from loopgrad.lazy.special.normal import log_ndtr as log_ndtr
from loopgrad.lazy.special.normal import ndtr as ndtr
from loopgrad.lazy.special.normal import ndtri as ndtri

expit = sigmoid
psi = digamma
gammaln = lgamma
