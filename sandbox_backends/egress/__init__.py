"""The way out of a sandbox whose network is an allow-list: ``proxy.py`` first, then ``allow.py`` (SBX-07, SEC-01)."""

from sandbox_backends.egress.allow import AllowList
from sandbox_backends.egress.proxy import EgressLimits, EgressProxy, OnRefusal, Resolver

__all__ = ["AllowList", "EgressLimits", "EgressProxy", "OnRefusal", "Resolver"]
