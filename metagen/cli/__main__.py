"""`python -m metagen.cli`."""

from metagen.cli import app

if __name__ == "__main__":
    app()
