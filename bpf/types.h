/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The contract with user space: every key and value of every map, and every
 * number that both sides name. kbpf/datapath/ebpf/shapes.py is the other copy;
 * the layout test compares the two by BTF, field by field.
 *
 * Addresses are 16 bytes in network order, IPv4 as ::ffff:a.b.c.d. Ports are in
 * network order, all other integers in host order. There is no implicit
 * padding, and explicit padding is zero: hash maps compare it.
 *
 * Values repeat the identity of their key where a wrong one would do harm. The
 * kernel may recycle a hash element while a program still holds a pointer to
 * its value; the reader copies, compares, and treats a mismatch as a miss.
 */
#ifndef KBPF_TYPES_H
#define KBPF_TYPES_H

#include <linux/types.h>

#define UNCONNECTED_RECORDS 8

enum kind {
	KIND_CLUSTER_IP = 1,
	KIND_NODE_PORT = 2,
	KIND_EXTERNAL_IP = 3,
	KIND_LOAD_BALANCER_IP = 4,
};

/* Which of a service's two backend lists; KEPT has no slots, only members, whose UDP flows stay
 * with them. */
enum view {
	VIEW_CLUSTER = 0,
	VIEW_LOCAL = 1,
	VIEW_KEPT = 2,
};

/* What to do when the list of the view is empty. */
enum verdict {
	VERDICT_REJECT = 0,
	VERDICT_DROP = 1,
};

/* Leave alone: iptables treats this frontend, for calls of sockets here or for packets from
 * elsewhere. */
enum frontend_flag {
	FRONTEND_DEFER_SOCKETS = 1,
	FRONTEND_DEFER_PACKETS = 2,
	FRONTEND_SOURCE_RANGES = 4, /* packets only from sources that are in "source_ranges" */
};

enum defer_reason {
	DEFER_NONE = 0,
	DEFER_SCTP = 1,
	DEFER_SOURCE_RANGES = 2,
	DEFER_MASQUERADE_ALL = 3,
	DEFER_NO_RETVAL = 4,
	DEFER_SPILLED = 5,
	DEFER_OPT_OUT = 6,
	DEFER_EXTERNAL = 7,
	DEFER_NO_DESTROY = 8,
};

enum local_flag {
	LOCAL_NODE_PORT = 1, /* node ports are open on this address */
	LOCAL_LOOPBACK = 2, /* means something only in the node's own network namespace */
	LOCAL_PRIMARY = 4, /* the address by which the cluster knows this node */
};

/* How a call left a hook or a packet its program; the index into "stats" and "packet_stats". */
enum reason {
	REASON_OTHER_PROTOCOL = 0,
	REASON_NOT_A_FRONTEND = 1,
	REASON_LOCAL_ADDRESS = 2,
	REASON_DEFERRED = 3,
	REASON_REJECTED = 4,
	REASON_REJECT_PASSED = 5,
	REASON_DROP_PASSED = 6,
	REASON_NO_SERVICE = 7,
	REASON_NO_BACKEND = 8,
	REASON_OTHER_FAMILY = 9,
	REASON_NO_STORAGE = 10,
	REASON_CHOSEN = 11,
	REASON_AFFINITY = 12,
	REASON_REMEMBERED = 13,
	REASON_REVERSED = 14,
	REASON_NOT_REVERSED = 15,
	REASON_PORT_CLOSED = 16,
	REASON_DROPPED = 17,
	REASON_SOURCE_RANGE = 18,
	REASON_NO_FLOW = 19,
	REASON_NO_MASQUERADE = 20,
	REASON_NO_PORT = 21,
	REASON_ERROR_TRANSLATED = 22,
	REASON_HALF_TRANSLATED = 23,
	REASON_OVERTOOK = 24,
	REASON_POD_SOCKET = 25,
	REASON_PORT_HELD = 26,
	REASON_COUNT = 27,
};

/* What user space knows of the node and has put in force. */
enum config_flag {
	CONFIG_MASQUERADES = 1, /* marked packets leave with an address of the node */
	CONFIG_DETECTS_PODS4 = 2, /* clients of ClusterIPs that are no pods are masqueraded */
	CONFIG_DETECTS_PODS6 = 4,
	CONFIG_STANDS_APART = 8, /* no frontend has an address of this node for its own */
};

enum flow_direction {
	FLOW_FROM_CLIENT = 0,
	FLOW_FROM_BACKEND = 1,
	FLOW_ANSWERS = 2, /* the backend alone: somebody masqueraded talks to it, so it answers to
			     this node */
};

/* Packets of one direction, as far as they were seen. */
enum flow_seen {
	SEEN_PACKET = 1,
	SEEN_SYN = 2,
	SEEN_FIN = 4,
	SEEN_RESET = 8,
};

enum flow_flag {
	FLOW_MASQUERADE = 1,
	FLOW_ANSWERED = 2, /* the kernel knows the flow by now and needs no mark any more */
};

struct address {
	__be32 word[4];
};

/* A NodePort's address is the unspecified one of its family: ::ffff:0.0.0.0 or :: */
struct frontend_key {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

/*
 * The internal pair is for sockets on this node, the external pair for packets
 * that come from elsewhere. User space has already decided what a traffic policy
 * means for either.
 */
struct frontend_value {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 kind;
	__u32 service_id;
	__u8 flags;
	__u8 defer_reason;
	__u8 internal_view;
	__u8 internal_verdict;
	__u8 external_view;
	__u8 external_verdict;
	__u8 pad[2];
};

struct service_key {
	__u32 id;
};

/* The only commit point of a service: the first eight bytes are read at once. */
struct service_value {
	__u32 generation;
	__u16 n_cluster;
	__u16 n_local;
	__u32 id;
	__u32 affinity_timeout_s; /* 0: no session affinity */
};

struct slot_key {
	__u32 service_id;
	__u32 generation;
	__u16 view;
	__u16 position;
};

/* What a backend id stands for. */
struct backend_address {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 pad;
};

/* Says itself where the backend is: who has chosen needs no look into another map. */
struct slot_value {
	__u32 service_id;
	__u32 generation;
	__u32 backend_id;
	struct backend_address backend;
};

struct backend_key {
	__u32 id;
};

/* An id means one address, port and protocol for ever. */
struct backend_value {
	struct address address;
	__be16 port;
	__u8 protocol;
	__u8 pad;
	__u32 id;
};

struct membership_key {
	__u32 service_id;
	__u32 backend_id;
	__u32 view;
};

/* A member now: first_generation <= the service's generation <= last_generation. */
struct membership_value {
	__u32 first_generation;
	__u32 last_generation;
	__u32 service_id;
	__u32 backend_id;
};

struct affinity_key {
	struct address client; /* a source address, or a tagged network namespace cookie (sock.c) */
	__u32 service_id;
	__u32 pad;
};

struct affinity_value {
	__u64 last_seen_ns; /* bpf_ktime_get_ns(), that is CLOCK_MONOTONIC */
	__u32 backend_id;
	__u32 service_id;
};

/* One rewriting of one socket, and so how to reverse it. Unused: backend_id 0. */
struct translation {
	struct address frontend_address;
	struct address backend_address;
	__be16 frontend_port;
	__be16 backend_port;
	__u32 service_id;
	__u32 backend_id;
	__u32 last_used_ms; /* CLOCK_MONOTONIC; only differences mean something */
};

/*
 * Which socket has the record of this number in "connections", a TCP connection's or a
 * UDP socket's first; cookie 0: none. The socket's cookie gives the number. The lock
 * guards the taking of a record, nothing else: only the socket that has it reads or
 * writes it. Owners stand by themselves, and so close together: every socket that
 * closes asks here, and most never had a record.
 */
struct owner_value {
	struct bpf_spin_lock lock;
	__u32 pad;
	__u64 socket_cookie;
};

/* Lives as long as the socket, across program versions: append, never reorder. */
struct sock_value {
	struct translation connected;
	struct translation unconnected[UNCONNECTED_RECORDS];
	__u32 next; /* the ring's oldest record */
	__u32 pad;
};

struct udp_conn_key {
	__u64 netns_cookie;
	__u64 socket_cookie;
};

/* By addresses, so that user space can tell who may still answer for the frontend. */
struct udp_conn_value {
	struct address frontend_address;
	struct address backend_address;
	__be16 frontend_port;
	__be16 backend_port;
};

struct local_addr_key {
	struct address address;
};

struct local_addr_value {
	__u32 flags;
};

struct config_value {
	__u64 host_netns_cookie; /* 0: unknown, the kernel's first namespace then */
	__u32 next_service_id; /* user space's own: ids are never given twice, 0 is none */
	__u32 next_backend_id;
	struct address node_address4; /* zero: unknown */
	struct address node_address6;
	__u32 flags;
	__u32 masquerade_mark;
	__u32 udp_timeout_s;
	__u32 udp_stream_timeout_s;
};

/*
 * A flow between an outside client and a frontend has two rows, one for each
 * direction, with what the client sees and what the backend sees; each row can
 * make the other. The backend sees the client under translated_port, another one
 * than client_port only when that is taken: two frontends may lead to one
 * backend, and one client may use one port for both.
 */
struct flow_key {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 direction;
	__u8 pad[2];
};

struct flow_value {
	struct address frontend_address;
	struct address backend_address;
	__be16 frontend_port;
	__be16 backend_port;
	__be16 client_port;
	__be16 translated_port;
	__u32 service_id;
	__u32 backend_id; /* 0: a refusal */
	__u32 last_seen_s; /* CLOCK_MONOTONIC */
	__u8 seen;
	__u8 flags;
	__u8 view;
	__u8 pad;
};

/* The ports of a datagram's first fragment, for the others. */
struct fragment_key {
	struct address source;
	struct address destination;
	__u32 id;
	__u8 protocol;
	__u8 pad[3];
};

struct fragment_value {
	__be16 source_port;
	__be16 destination_port;
	__u32 seen_s;
};

/* Service 0: the ranges of pods. The prefix length counts the service's 32 bits. */
struct source_range_key {
	__u32 prefix_length;
	__u32 service_id;
	struct address address;
};

struct source_range_value {
	__u32 service_id;
};

/* Services with ClusterIP clients outside, who are masqueraded. */
struct wanted_key {
	__u32 id;
};

struct wanted_value {
	__u32 last_seen_s;
};

/* How often a backend was chosen: for people who watch, never read by programs. */
struct choice_key {
	__u32 service_id;
	__u32 backend_id;
};

/* What people call a service: "namespace/name:port", zeroes behind it. User space's alone. */
struct name_key {
	__u32 id;
};

struct name_value {
	char text[192];
};

#endif
