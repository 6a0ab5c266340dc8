"""The eBPF datapath: layout, ids, encode, plan, trace (pure); maps, loader, links, probe, fake, backend."""
