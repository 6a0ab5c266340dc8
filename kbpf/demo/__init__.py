"""A toy node out of network namespaces: what `kbpf demo` shows and what the kernel tests stand on."""
