"""Models that are reached by the library litellm, which only translates: the network is ours (PROV-04)."""
