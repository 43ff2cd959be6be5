"""Stand-ins without a model: babble and silence of the right length."""
