"""The node itself: addresses, sysctls, conntrack."""
