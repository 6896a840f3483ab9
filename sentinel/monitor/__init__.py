"""The frozen monitor at run time: what `calibrate` exports, read back and played step by step.

>>> from sentinel.monitor import load                               # doctest: +SKIP
>>> watch = load("runs/demo/monitor/clinic/nano-sage/sentinel").watch(4)  # doctest: +SKIP
>>> watch.see("QUESTION: how many patients are there?").ends        # doctest: +SKIP
False
"""

from sentinel.monitor.frozen import load, save
from sentinel.monitor.play import Monitor, Verdict, Watch

__all__ = ["Monitor", "Verdict", "Watch", "load", "save"]
