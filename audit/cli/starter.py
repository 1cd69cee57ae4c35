"""The config that `fedaudit init` writes: small, commented, and valid as it stands."""

STARTER = """\
# A first audit of your own. `fedaudit plan THIS_FILE` says what it will do and about how long that takes,
# `fedaudit run THIS_FILE` does it. `fedaudit show THIS_FILE` prints every setting that is not written here.
title: My first audit
system: {name: "", purpose: "", controller: "", author: ""}      # page 1 prints what you state, or "not stated"
seed: 7                                            # the same seed gives the same numbers

federation:
  dataset: digits                            # `fedaudit tools list datasets`; of your own: "mymodule:MyDataset"
  clients: 10
  partition: {name: dirichlet, alpha: 0.3}         # who holds what; smaller alpha: more uneven
  model: small_cnn                           # `fedaudit tools list models`; of your own: "mymodule:MyModel"
  holdout: {auxiliary: 0.35, reference: 0.25}      # examples for the attacker, and for controls

method: {name: fedavg, rounds: 10, local_epochs: 2, batch_size: 20, lr: 0.05}    # `fedaudit tools list methods`

# protections:                                     # what clients do before anything leaves them
#   - {name: dp_gaussian, clip_norm: 1.0, noise_multiplier: 1.1}

attacks: auto                                      # every attack that applies, as far as the budget goes
budget: 3                               # minutes of one core

# variants: auto                                   # protections against what is demonstrated, compared
"""
