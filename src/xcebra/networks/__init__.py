"""The encoder, the decoders that go back from latents to neurons, and their derivatives."""
