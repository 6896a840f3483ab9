"""The decision layer: exit gate, early stop and Chow's rule under the Reliability Score.

`fit` learns a frozen `Policy` from the calibration pool, `apply` plays it, `evaluate` reads
everything that the paper reports on the held-out pool. Only numpy, scipy, scikit-learn and pyarrow
are needed.

>>> from sentinel.decide import DecideConfig
>>> DecideConfig.of(lambdas=[1, 2.5]).lambdas
('1', '2.5')
"""

from sentinel.decide.config import DecideConfig
from sentinel.decide.evaluate import Evaluation, evaluate
from sentinel.decide.fit import fit
from sentinel.decide.play import SYSTEMS, Decisions, apply
from sentinel.decide.policy import Policy
from sentinel.decide.table import Prefixes, from_table

__all__ = [
    "SYSTEMS",
    "DecideConfig",
    "Decisions",
    "Evaluation",
    "Policy",
    "Prefixes",
    "apply",
    "evaluate",
    "fit",
    "from_table",
]
