"""Engines behind HTTP: any server that speaks the OpenAI API, one's own or hosted."""

from metagen.generators.openai.engine import OpenAIEngine as OpenAIEngine
