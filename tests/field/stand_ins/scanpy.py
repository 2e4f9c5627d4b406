"""Cells of random counts of genes, in place of a file that would have to be downloaded."""


class Cells:
    def __init__(self, cells=120, genes=40, kinds=3):
        import numpy
        from scipy import sparse

        generator = numpy.random.default_rng(0)
        counts = generator.integers(0, 7, (cells, genes)) * (generator.random((cells, genes)) < 0.5)
        self.X = sparse.csr_matrix(counts.astype("float32"))
        self.obs = {"celltype": [f"kind{number}" for number in generator.integers(kinds, size=cells)]}


def read_h5ad(_):
    return Cells()
