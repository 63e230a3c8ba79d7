"""A local web app over run directories, which may still be written: it reads, and changes nothing."""
