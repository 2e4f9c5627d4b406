"""Names the packages that pyproject.toml cannot find by itself; everything else stands there.

``checks/`` is a package at the top of the repository and ``ddpdoctor.checks`` where it is installed.
"""

from setuptools import find_packages, setup

ours = find_packages(include=["ddpdoctor", "ddpdoctor.*"])
checks = [f"ddpdoctor.{name}" for name in find_packages(include=["checks", "checks.*"])]

setup(packages=[*ours, *checks, "ddpdoctor.sample_trainer"])
