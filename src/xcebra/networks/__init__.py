"""The encoder, the decoders that predict neurons from latents, and their derivatives."""
