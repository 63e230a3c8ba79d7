"""Language models made of language models, and small ones that are no neural network."""
