/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The cgroup hooks: they see an address before a packet exists, so a translated
 * call costs nothing afterwards.
 *
 * A call that cannot be translated completely leaves byte for byte as it came,
 * and every exit counts its reason. A hook never answers a bare FAIL: that is
 * EPERM to the application, and NFS in the kernel spins on it.
 */
#include "records.h"

#define PASS 1
#define FAIL 0
#define EADDRINUSE 98
#define ECONNREFUSED 111

static __always_inline int leave(enum reason reason)
{
	stats.increment(reason);
	if (HAVE_SET_RETVAL && reason == REASON_REJECTED && !bpf_set_retval(-ECONNREFUSED))
		return FAIL;
	return PASS;
}

/* Pods have a loopback of their own; in one, the node's is out of reach. */
static __always_inline bool is_node_netns(void *ctx)
{
	int zero = 0;
	struct config_value *found = config.lookup(&zero);
	__u64 node = found ? found->host_netns_cookie : 0;

	if (!node)
		node = bpf_get_netns_cookie(NULL);
	return bpf_get_netns_cookie(ctx) == node;
}

/*
 * The client of session affinity is its network namespace: all of a pod, all of
 * the node. The tag is a multicast address, so it can never be a source address.
 */
static __always_inline void describe(struct bpf_sock_addr *ctx,
				     const struct frontend_value *frontend, struct caller *caller)
{
	__u64 cookie = bpf_get_netns_cookie(ctx);

	caller->client.word[0] = 0xffffffff;
	caller->client.word[1] = 0xffffffff;
	caller->client.word[2] = cookie >> 32;
	caller->client.word[3] = cookie;
	caller->view = frontend->internal_view;
	caller->verdict = frontend->internal_verdict;
}

/* REASON_CHOSEN: a frontend to balance; anything else: how the call is left. */
static __always_inline enum reason find(struct bpf_sock_addr *ctx, struct frontend_key *to,
					struct frontend_value *frontend, int *local)
{
	enum reason reason = find_frontend(to, frontend, local, EXPECT_FRONTEND);

	if (reason != REASON_CHOSEN && reason != REASON_PORT_CLOSED)
		return reason;
	if (frontend->kind == KIND_NODE_PORT && (*local & LOCAL_LOOPBACK) && !is_node_netns(ctx))
		return REASON_NOT_A_FRONTEND;
	if (frontend->flags & FRONTEND_DEFER_SOCKETS)
		return REASON_DEFERRED;
	return reason == REASON_PORT_CLOSED ? closed_node_port(frontend) : REASON_CHOSEN;
}

/*
 * A rejection is an errno, on kernels that let a hook choose it; on the others
 * user space defers such frontends. A drop has no errno: an error at once would
 * fail an UDP send that succeeds under kube-proxy, and would make a client that
 * retries spin. The packet goes out untranslated; the program on the uplink drops
 * it (tc.c), and the application waits.
 *
 * kube-proxy refuses an external address without endpoints to packets that
 * arrive, not to the node's own that leave it.
 */
static __always_inline enum reason without_backend(struct bpf_sock_addr *ctx,
						   const struct frontend_value *frontend, int local,
						   enum reason reason)
{
	if (reason == REASON_DROPPED)
		return REASON_DROP_PASSED;
	if (!HAVE_SET_RETVAL)
		return REASON_REJECT_PASSED;
	if (frontend->kind != KIND_CLUSTER_IP && local < 0 && is_node_netns(ctx))
		return REASON_REJECT_PASSED;
	return REASON_REJECTED;
}

static __always_inline bool is_translated(enum reason reason)
{
	return reason == REASON_CHOSEN || reason == REASON_AFFINITY || reason == REASON_REMEMBERED;
}

static __always_inline enum reason balance(struct bpf_sock_addr *ctx, struct frontend_key *to,
					   enum call call, struct backend_value *backend)
{
	struct frontend_value frontend;
	struct caller caller;
	enum reason reason;
	int local;

	if (to->protocol != TCP && to->protocol != UDP)
		return REASON_OTHER_PROTOCOL;
	/* A proxy in the pod's own namespace wants to see the address that was called. */
	if (NODE_SOCKETS_ONLY && !is_node_netns(ctx))
		return REASON_POD_SOCKET;
	resolve_unspecified(&to->address);
	reason = find(ctx, to, &frontend, &local);
	if (reason == REASON_REJECTED || reason == REASON_DROPPED)
		return without_backend(ctx, &frontend, local, reason);
	if (reason != REASON_CHOSEN)
		return reason;
	if (call == CALL_SENDMSG && recall(ctx, to, &frontend, backend))
		return REASON_REMEMBERED;
	describe(ctx, &frontend, &caller);
	reason = select_backend(&frontend, &caller, backend);
	if (reason == REASON_REJECTED || reason == REASON_DROPPED)
		return without_backend(ctx, &frontend, local, reason);
	if (!is_translated(reason))
		return reason;
	if (is_mapped(&to->address) != is_mapped(&backend->address))
		return REASON_OTHER_FAMILY;
	/* Before the address changes: rewritten implies reversible. */
	if (!remember(ctx, to, call, frontend.service_id, backend))
		return REASON_NO_STORAGE;
	return reason;
}

/* A refused call leaves the socket as it was; one that goes elsewhere makes its records untrue. */
static __always_inline enum reason forward(struct bpf_sock_addr *ctx, struct frontend_key *to,
					   enum call call, struct backend_value *backend)
{
	enum reason reason = balance(ctx, to, call, backend);

	if (!is_translated(reason) && reason != REASON_REJECTED)
		forget(ctx, to, call);
	return reason;
}

static __always_inline struct frontend_key address4(struct bpf_sock_addr *ctx)
{
	struct frontend_key key = {
		.address = mapped(ctx->user_ip4),
		.port = ctx->user_port,
		.protocol = ctx->protocol,
	};

	return key;
}

static __always_inline struct frontend_key address6(struct bpf_sock_addr *ctx)
{
	struct frontend_key key = {
		.address.word = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2],
				 ctx->user_ip6[3]},
		.port = ctx->user_port,
		.protocol = ctx->protocol,
	};

	return key;
}

static __always_inline void write4(struct bpf_sock_addr *ctx, const struct address *address,
				   __be16 port)
{
	ctx->user_ip4 = address->word[3];
	ctx->user_port = port;
}

static __always_inline void write6(struct bpf_sock_addr *ctx, const struct address *address,
				   __be16 port)
{
	ctx->user_ip6[0] = address->word[0];
	ctx->user_ip6[1] = address->word[1];
	ctx->user_ip6[2] = address->word[2];
	ctx->user_ip6[3] = address->word[3];
	ctx->user_port = port;
}

int connect4(struct bpf_sock_addr *ctx)
{
	struct frontend_key to = address4(ctx);
	struct backend_value backend = {};
	enum reason reason = forward(ctx, &to, CALL_CONNECT, &backend);

	if (is_translated(reason))
		write4(ctx, &backend.address, backend.port);
	return leave(reason);
}

int connect6(struct bpf_sock_addr *ctx)
{
	struct frontend_key to = address6(ctx);
	struct backend_value backend = {};
	enum reason reason = forward(ctx, &to, CALL_CONNECT, &backend);

	if (is_translated(reason))
		write6(ctx, &backend.address, backend.port);
	return leave(reason);
}

int sendmsg4(struct bpf_sock_addr *ctx)
{
	struct frontend_key to = address4(ctx);
	struct backend_value backend = {};
	enum reason reason = forward(ctx, &to, CALL_SENDMSG, &backend);

	if (is_translated(reason))
		write4(ctx, &backend.address, backend.port);
	return leave(reason);
}

int sendmsg6(struct bpf_sock_addr *ctx)
{
	struct frontend_key to = address6(ctx);
	struct backend_value backend = {};
	enum reason reason = forward(ctx, &to, CALL_SENDMSG, &backend);

	if (is_translated(reason))
		write6(ctx, &backend.address, backend.port);
	return leave(reason);
}

int recvmsg4(struct bpf_sock_addr *ctx)
{
	struct frontend_key from = address4(ctx);

	if (!reverse_datagram(ctx, &from))
		return leave(REASON_NOT_REVERSED);
	write4(ctx, &from.address, from.port);
	return leave(REASON_REVERSED);
}

int recvmsg6(struct bpf_sock_addr *ctx)
{
	struct frontend_key from = address6(ctx);

	if (!reverse_datagram(ctx, &from))
		return leave(REASON_NOT_REVERSED);
	write6(ctx, &from.address, from.port);
	return leave(REASON_REVERSED);
}

int getpeername4(struct bpf_sock_addr *ctx)
{
	struct frontend_key from = address4(ctx);

	if (!reverse_connected(ctx, &from))
		return leave(REASON_NOT_REVERSED);
	write4(ctx, &from.address, from.port);
	return leave(REASON_REVERSED);
}

int getpeername6(struct bpf_sock_addr *ctx)
{
	struct frontend_key from = address6(ctx);

	if (!reverse_connected(ctx, &from))
		return leave(REASON_NOT_REVERSED);
	write6(ctx, &from.address, from.port);
	return leave(REASON_REVERSED);
}

/* What tables hold of a socket goes with it; its own storage goes by itself. */
int sock_release(struct bpf_sock *ctx)
{
	struct udp_conn_key key;

	if (ctx->protocol == TCP || ctx->protocol == UDP)
		forget_connection(bpf_get_socket_cookie(ctx));
	if (ctx->protocol == UDP) {
		key.netns_cookie = bpf_get_netns_cookie(ctx);
		key.socket_cookie = bpf_get_socket_cookie(ctx);
		udp_conn.delete(&key);
	}
	return PASS;
}

#if HOLD_NODE_PORTS
/* A node port of this very family: what arrives for it never reaches a socket. */
static __always_inline bool is_node_port(const struct frontend_key *bound, struct address any)
{
	struct frontend_key key = {
		.address = any, .port = bound->port, .protocol = bound->protocol};
	struct frontend_value frontend;

	return read_frontend(&key, &frontend);
}

/* A socket on the wildcard of IPv6 mostly answers for IPv4 as well. */
static __always_inline bool is_held(void *ctx, const struct frontend_key *bound)
{
	struct address any4 = mapped(0), any6 = {};
	int local;

	if ((bound->protocol != TCP && bound->protocol != UDP) || !is_node_netns(ctx))
		return false;
	if (same_address(&bound->address, &any6))
		return is_node_port(bound, any6) || is_node_port(bound, any4);
	if (!same_address(&bound->address, &any4)) {
		local = local_flags(&bound->address);
		if (local < 0 || !(local & LOCAL_NODE_PORT))
			return false;
	}
	return is_node_port(bound, is_mapped(&bound->address) ? any4 : any6);
}

static __always_inline int hold(void *ctx, const struct frontend_key *bound)
{
	if (!is_held(ctx, bound))
		return PASS;
	stats.increment(REASON_PORT_HELD);
	return HAVE_SET_RETVAL && !bpf_set_retval(-EADDRINUSE) ? FAIL : PASS;
}

int post_bind4(struct bpf_sock *ctx)
{
	struct frontend_key bound = {
		.address = mapped(ctx->src_ip4),
		.port = bpf_htons(ctx->src_port),
		.protocol = ctx->protocol,
	};

	return hold(ctx, &bound);
}

int post_bind6(struct bpf_sock *ctx)
{
	struct frontend_key bound = {
		.address.word = {ctx->src_ip6[0], ctx->src_ip6[1], ctx->src_ip6[2],
				 ctx->src_ip6[3]},
		.port = bpf_htons(ctx->src_port),
		.protocol = ctx->protocol,
	};

	return hold(ctx, &bound);
}
#endif
