"""What an engine runs: recipes for models made of models, and what can be told of a model before it is loaded."""
