"""``docker``: ``backend.py`` first, then ``container.py`` for what a sandbox's container is."""

from sandbox_backends.docker.backend import DockerBackend
from sandbox_backends.docker.reaper import ContainerInfo, list_containers, reap

__all__ = ["ContainerInfo", "DockerBackend", "list_containers", "reap"]
