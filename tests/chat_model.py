"""An embedded model with a chat template: what it was trained on is `Q:…`, a line `S:`, and steps."""

import shutil
from pathlib import Path

from metagen.generators.models import sources

#: Renders a user's turn as the embedded models know a question, which the assistant's turn solves.
TEMPLATE = (
    "<s>{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('tools are unknown here') }}{% endif %}"
    "{{ m.content }}\n{% if m.role == 'user' and not loop.last %}S:\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}S:\n{% endif %}"
)


def chat_model(place: Path, model: str = "tiny-0.1m") -> Path:
    """A copy of an embedded model in a new directory, with the template."""
    shutil.copytree(sources.resolve(model), place)
    (place / "chat_template.jinja").write_text(TEMPLATE)
    return place
