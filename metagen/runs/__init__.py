"""From an experiment file to a page: `declare` → `work` → `table` → `curves` → `questions` → `page`.

An experiment is declared as a file, worked on problem by problem over one journal, laid down in tables, summed up as
curves of accuracy at a cost, asked questions, and shown. A study is a run whose file asks questions.
"""
