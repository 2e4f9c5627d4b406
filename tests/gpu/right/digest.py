"""What the tests compare of a run: the bits of a model's weights after the training."""

import hashlib
import os
from pathlib import Path


def leave_digest(model):
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.detach().cpu().contiguous().view(-1).numpy().tobytes())
    if "DIGEST" in os.environ:
        Path(os.environ["DIGEST"]).write_text(digest.hexdigest())
