"""The checks: one problem, one file. Nobody imports one by name; ask ``ddpdoctor.registry``."""

if __name__ != "ddpdoctor.checks":
    raise ImportError("the checks are the package ddpdoctor.checks; ask ddpdoctor.registry for them")
