"""The models that the torch engine runs: Llama-like ones, those made of several, and small ones that are no network.

`language_model` is their contract, `loading` makes them from a directory, a name or a recipe of
`metagen.generators.models`.
"""
