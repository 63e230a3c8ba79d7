"""`make gpu`: what only a GPU can tell, measured in pieces that stop, go on and fail apart from each other."""
