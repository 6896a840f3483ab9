"""Hidden states of finished episodes, by one teacher-forced pass per episode.

`positions` finds the token that each round's probe reads, `packing` groups passes of like length,
`extract` (a torch room) runs a model over them and keeps only what was asked for. Layers are
numbered as blocks: layer k = 1…L is the residual stream after block k, so layer L is what enters
the final norm.
"""
