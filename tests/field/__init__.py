"""The field study: public scripts under ``ddpdoctor check --rehearse``, compared with what was read by eye.

``batch_N.toml`` has facts about public scripts: where they are, how they are launched, what is made smaller, which data
and packages are replaced, and which defects a person read in them. None of their code is here.
"""
