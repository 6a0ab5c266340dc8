"""One small world for each shape of rules: what a person would try first. Each is a list of steps, and each step the
objects that exist then; the later ones are partial syncs.
"""

from tests.cluster.api import Tree
from tests.parity.objects import DRAINING, endpoint, endpoint_slice, port, service

WEB = service("shop/web", "10.96.12.34", port(80, "http"))
WEB_PORTS = [port(8080, "http")]
WEB_ENDPOINTS = [endpoint("10.42.1.5"), endpoint("10.42.2.7"), endpoint("10.42.3.9")]

CART = service(
    "shop/cart",
    "10.96.40.1",
    port(6379),
    sessionAffinity="ClientIP",
    sessionAffinityConfig={"clientIP": {"timeoutSeconds": 10800}},
)
FRONT = service(
    "shop/front",
    "10.96.50.5",
    port(443, "https", nodePort=31443),
    type="LoadBalancer",
    externalIPs=["203.0.113.8"],
    # The first holds the node's own address, so the load balancer's address counts as a source, too.
    loadBalancerSourceRanges=["192.168.60.0/24", "172.20.0.0/16"],
    ingress=({"ip": "198.51.100.20", "ipMode": "VIP"}, {"ip": "198.51.100.21", "ipMode": "Proxy"}),
)
STREAM = service(
    "media/stream",
    "10.96.60.6",
    port(5004, "rtp", "UDP", nodePort=32504),
    type="LoadBalancer",
    externalTrafficPolicy="Local",
    healthCheckNodePort=31999,
    ingress=({"ip": "198.51.100.30", "ipMode": "VIP"},),
)
STREAM_PORTS = [port(5004, "rtp", "UDP")]
IDLE = service(
    "ops/idle", "10.96.70.7", port(8080, "api", nodePort=30080), type="NodePort", externalIPs=["203.0.113.9"]
)
WEB_6 = service(
    "shop/web", "fd96::c22", port(80, "http", nodePort=30081), type="NodePort", internalTrafficPolicy="Local"
)

EXAMPLES: dict[str, list[list[Tree]]] = {
    "cluster-ip": [[WEB, endpoint_slice("shop/web", WEB_PORTS, *WEB_ENDPOINTS)]],
    "affinity": [[CART, endpoint_slice("shop/cart", [port(6379)], endpoint("10.42.1.20"), endpoint("10.42.2.21"))]],
    "source-ranges": [[FRONT, endpoint_slice("shop/front", [port(8443, "https")], endpoint("10.42.1.30"))]],
    "external-policy-local": [
        [STREAM, endpoint_slice("media/stream", STREAM_PORTS, endpoint("10.42.1.40"), endpoint("10.42.2.41"))],
        [STREAM, endpoint_slice("media/stream", STREAM_PORTS, endpoint("10.42.2.41"))],
    ],
    "no-endpoints": [[IDLE]],
    "internal-policy-local-draining": [
        [
            WEB_6,
            endpoint_slice(
                "shop/web",
                WEB_PORTS,
                endpoint("fd42:1::5", conditions=DRAINING),
                endpoint("fd42:2::7"),
                family="IPv6",
            ),
        ]
    ],
    "endpoints-come-and-go": [
        [WEB, CART, endpoint_slice("shop/web", WEB_PORTS, *WEB_ENDPOINTS)],
        [WEB, CART, endpoint_slice("shop/web", WEB_PORTS, *WEB_ENDPOINTS, endpoint("10.42.1.10"))],
        [WEB, CART, endpoint_slice("shop/web", WEB_PORTS, *WEB_ENDPOINTS[1:])],
        [WEB, CART, endpoint_slice("shop/web", WEB_PORTS)],
        [CART],
        [],
    ],
}
