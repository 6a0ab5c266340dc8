/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The decision, once for every hook and both families: is this destination a
 * frontend, and which of its backends takes the call. Nothing here knows how an
 * address is rewritten (sock.c) or remembered (records.h).
 */
#ifndef KBPF_LB_H
#define KBPF_LB_H

#include "maps.h"

#define TCP 6
#define UDP 17

#define SELECT_ATTEMPTS 2

#define barrier() asm volatile("" ::: "memory")

static __always_inline bool same_address(const struct address *a, const struct address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
	       a->word[3] == b->word[3];
}

static __always_inline bool is_mapped(const struct address *a)
{
	return !a->word[0] && !a->word[1] && a->word[2] == bpf_htonl(0xffff);
}

static __always_inline struct address mapped(__be32 ip)
{
	struct address address = {.word = {0, 0, bpf_htonl(0xffff), ip}};

	return address;
}

/* The kernel takes a call to the unspecified address for one to loopback. */
static __always_inline void resolve_unspecified(struct address *a)
{
	if (is_mapped(a)) {
		if (!a->word[3])
			a->word[3] = bpf_htonl(0x7f000001);
	} else if (!a->word[0] && !a->word[1] && !a->word[2] && !a->word[3]) {
		a->word[3] = bpf_htonl(1);
	}
}

/* Pods have a loopback of their own; in one, the node's is out of reach. */
static __always_inline bool is_node_netns(struct bpf_sock_addr *ctx)
{
	int zero = 0;
	struct config_value *found = config.lookup(&zero);
	__u64 node = found ? found->host_netns_cookie : 0;

	if (!node)
		node = bpf_get_netns_cookie(NULL);
	return bpf_get_netns_cookie(ctx) == node;
}

static __always_inline __u32 local_flags(const struct address *address, bool *is_local)
{
	struct local_addr_key key = {.address = *address};
	struct local_addr_value *found;

	/* All of 127.0.0.0/8 is local; the map holds 127.0.0.1 for it. */
	if (is_mapped(address) &&
	    (address->word[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000))
		key.address.word[3] = bpf_htonl(0x7f000001);
	found = local_addr.lookup(&key);
	*is_local = found;
	return found ? found->flags : 0;
}

static __always_inline bool read_frontend(struct frontend_key *key, struct frontend_value *frontend)
{
	struct frontend_value *found = frontends.lookup(key);

	if (!found)
		return false;
	*frontend = *found;
	return same_address(&frontend->address, &key->address) && frontend->port == key->port &&
	       frontend->protocol == key->protocol;
}

/* REASON_CHOSEN: a frontend to balance; anything else: why the call is left alone. */
static __always_inline enum reason find_frontend(struct bpf_sock_addr *ctx, struct frontend_key *to,
						 struct frontend_value *frontend)
{
	struct frontend_key node_port = {.port = to->port, .protocol = to->protocol};
	bool is_local;
	__u32 flags;

	if (read_frontend(to, frontend)) {
		/* A ClusterIP on a device of this node: a node-local DNS cache listens there. */
		if (frontend->kind == KIND_CLUSTER_IP) {
			local_flags(&to->address, &is_local);
			if (is_local)
				return REASON_LOCAL_ADDRESS;
		}
	} else {
		flags = local_flags(&to->address, &is_local);
		if (!(flags & LOCAL_NODE_PORT))
			return REASON_NOT_A_FRONTEND;
		if (is_mapped(&to->address))
			node_port.address = mapped(0);
		if (!read_frontend(&node_port, frontend))
			return REASON_NOT_A_FRONTEND;
		if ((flags & LOCAL_LOOPBACK) && !is_node_netns(ctx))
			return REASON_NOT_A_FRONTEND;
	}
	return frontend->flags & FRONTEND_DEFER ? REASON_DEFERRED : REASON_CHOSEN;
}

static __always_inline bool read_service(__u32 id, struct service_value *service)
{
	struct service_key key = {.id = id};
	struct service_value *found = services.lookup(&key);

	if (!found)
		return false;
	/* Generation and both counts must be of one moment. */
	*(__u64 *)service = *(volatile __u64 *)found;
	service->affinity_timeout_s = found->affinity_timeout_s;
	barrier();
	service->id = found->id;
	return service->id == id;
}

static __always_inline bool read_backend(__u32 id, struct backend_value *backend)
{
	struct backend_key key = {.id = id};
	struct backend_value *found = backends.lookup(&key);

	if (!found)
		return false;
	*backend = *found;
	return backend->id == id;
}

static __always_inline bool read_slot(const struct service_value *service, __u32 view, __u32 count,
				      struct backend_value *backend)
{
	struct slot_key key = {
		.service_id = service->id,
		.generation = service->generation,
		.view = view,
		.position = bpf_get_prandom_u32() % count,
	};
	struct slot_value *found = slots.lookup(&key), slot;

	if (!found)
		return false;
	slot = *found;
	if (slot.service_id != service->id || slot.generation != service->generation)
		return false;
	return read_backend(slot.backend_id, backend);
}

/* Holds on both sides of a change of generation for those who stay. */
static __always_inline bool is_member(const struct service_value *service, __u32 view,
				      __u32 backend_id)
{
	struct membership_key key = {
		.service_id = service->id, .backend_id = backend_id, .view = view};
	struct membership_value *found = membership.lookup(&key), member;

	if (!found)
		return false;
	member = *found;
	return member.service_id == service->id && member.backend_id == backend_id &&
	       member.first_generation <= service->generation &&
	       service->generation <= member.last_generation;
}

/*
 * The client of session affinity is its network namespace: all of a pod, all of
 * the node. The tag is a multicast address, so it can never be a source address.
 */
static __always_inline struct affinity_key affinity_of(struct bpf_sock_addr *ctx, __u32 service_id)
{
	__u64 cookie = bpf_get_netns_cookie(ctx);
	struct affinity_key key = {
		.client.word = {0xffffffff, 0xffffffff, cookie >> 32, cookie},
		.service_id = service_id,
	};

	return key;
}

static __always_inline bool read_affinity(struct bpf_sock_addr *ctx,
					  const struct service_value *service, __u32 view,
					  struct backend_value *backend)
{
	struct affinity_key key = affinity_of(ctx, service->id);
	struct affinity_value *found = affinity.lookup(&key), seen;

	if (!found)
		return false;
	seen = *found;
	if (seen.service_id != service->id)
		return false;
	/* An age of exactly the timeout still counts, as in the iptables match "recent". */
	if (bpf_ktime_get_ns() - seen.last_seen_ns > service->affinity_timeout_s * 1000000000ULL)
		return false;
	return is_member(service, view, seen.backend_id) && read_backend(seen.backend_id, backend);
}

static __always_inline void write_affinity(struct bpf_sock_addr *ctx, __u32 service_id,
					   __u32 backend_id)
{
	struct affinity_key key = affinity_of(ctx, service_id);
	struct affinity_value seen = {
		.last_seen_ns = bpf_ktime_get_ns(),
		.backend_id = backend_id,
		.service_id = service_id,
	};

	affinity.update(&key, &seen);
}

/*
 * Without backends kube-proxy rejects, or drops where only a Local policy found
 * none. A rejection is an errno, on kernels that let a hook choose it; on the
 * others user space defers such frontends. A drop has no errno: an error at once
 * would fail an UDP send that succeeds under kube-proxy, and would make a client
 * that retries spin. The packet goes out untranslated, to an address that nobody
 * answers for, and the application waits as it does for a dropped one.
 */
static __always_inline enum reason no_backends(const struct frontend_value *frontend)
{
	if (frontend->internal_verdict == VERDICT_DROP)
		return REASON_DROP_PASSED;
	return HAVE_SET_RETVAL ? REASON_REJECTED : REASON_REJECT_PASSED;
}

/*
 * REASON_CHOSEN or REASON_AFFINITY: a backend. A miss means that the generation
 * was swept while we looked, so the service is read once more.
 */
static __always_inline enum reason select_backend(struct bpf_sock_addr *ctx,
						  const struct frontend_value *frontend,
						  struct backend_value *backend)
{
	__u32 view = frontend->internal_view;
	struct service_value service;
	enum reason reason;
	__u32 count;

#pragma unroll
	for (int attempt = 0; attempt < SELECT_ATTEMPTS; attempt++) {
		if (!read_service(frontend->service_id, &service))
			return REASON_NO_SERVICE;
		count = view == VIEW_LOCAL ? service.n_local : service.n_cluster;
		if (!count)
			return no_backends(frontend);
		reason = REASON_CHOSEN;
		if (service.affinity_timeout_s && read_affinity(ctx, &service, view, backend))
			reason = REASON_AFFINITY;
		else if (!read_slot(&service, view, count, backend))
			continue;
		if (backend->protocol != frontend->protocol)
			continue;
		if (service.affinity_timeout_s)
			write_affinity(ctx, service.id, backend->id);
		return reason;
	}
	return REASON_NO_BACKEND;
}

#endif
