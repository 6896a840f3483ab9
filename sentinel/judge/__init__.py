"""The judge: whether an answer that no scorer accepts says the same as the gold result.

`prompt.py` is what the judge reads, `verdict.py` how its reply is read, `rules.py` which answers it
is asked about, `sheet.py` and `agreement.py` the audit by two people. Whoever asks the model is
`cluster/judge_ask.py`.
"""
