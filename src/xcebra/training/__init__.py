"""Training of the encoder: settings, pairs, loss, training loop and goodness of fit."""
