"""From trained networks to an attribution map: which neuron is connected to which factor."""
