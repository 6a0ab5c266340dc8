"""What people ask of a node: status, explain, verify, top. They read the kernel and change nothing."""
