"""The Kubernetes manifests of the documents and of the bundled trainer, against the schemas of their kinds."""
