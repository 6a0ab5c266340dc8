"""Virtual machines with kernels of Debian's archive, for the kernel tests: plain qemu, no daemon, no network."""
