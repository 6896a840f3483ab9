"""The audit: does a head read the outcome, or an artefact? (The paper, Appendices A, F and J.)

Everything here reads the train pool alone, out-of-fold, so that it may be looked at before the
held-out pool is: baselines that need no head, controls that must find nothing, duplicates, and the
screen of the ten features.
"""
