"""Rank 1 downloads from rank 0, which has gone on to the barrier and never answers."""

import socket

import torch
import torch.distributed as dist


def download(address):
    with socket.create_connection(address) as connection:
        return connection.recv(1 << 16)  # expect: DD307 ranks 1


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    server = socket.create_server(("127.0.0.1", 0)) if rank == 0 else None
    port = torch.tensor([server.getsockname()[1] if server else 0])
    dist.broadcast(port, 0)
    vocabulary = download(("127.0.0.1", int(port))) if rank == 1 else b""
    dist.barrier()
    print(vocabulary)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
