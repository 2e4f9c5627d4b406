"""Every rank fetches the same weights through torch.hub, which writes them under a name of its own and renames them."""

import contextlib
import functools
import http.server
import io
import threading

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
if dist.get_rank() == 0:
    torch.save(torch.nn.Linear(4, 1).state_dict(), "weights.pth")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=".")
    handler.func.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
port = [server.server_port if dist.get_rank() == 0 else None]
dist.broadcast_object_list(port)
torch.hub.set_dir("hub")
model = torch.nn.Linear(4, 1)
address = f"http://127.0.0.1:{port[0]}/weights.pth"
with contextlib.redirect_stdout(io.StringIO()):  # it says the address, and the port is another each time
    model.load_state_dict(torch.hub.load_state_dict_from_url(address, progress=False))
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
