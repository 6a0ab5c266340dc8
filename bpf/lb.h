/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The decision, once for sockets, packets and both families: is this destination
 * a frontend, and which of its backends takes the call. Nothing here knows who
 * asks, how an address is rewritten (sock.c, tc.c) or remembered
 * (records.h, flows.h).
 */
#ifndef KBPF_LB_H
#define KBPF_LB_H

#include "maps.h"

#define TCP 6
#define UDP 17

#define SELECT_ATTEMPTS 2

/* Who calls, as far as the choice depends on it. */
struct caller {
	struct address client; /* of session affinity */
	__u32 view;
	__u32 verdict;
};

#define barrier() asm volatile("" ::: "memory")

/* The time of the last tick, where the kernel tells it: each packet of a flow asks. */
static __always_inline __u32 now_s(void)
{
#if HAVE_COARSE_CLOCK
	return bpf_ktime_get_coarse_ns() / 1000000000;
#else
	return bpf_ktime_get_ns() / 1000000000;
#endif
}

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

/* -1: not an address of this node. */
static __always_inline int local_flags(const struct address *address)
{
	struct local_addr_key key = {.address = *address};
	struct local_addr_value *found;

	/* All of 127.0.0.0/8 is local; the map holds 127.0.0.1 for it. */
	if (is_mapped(address) &&
	    (address->word[3] & bpf_htonl(0xff000000)) == bpf_htonl(0x7f000000))
		key.address.word[3] = bpf_htonl(0x7f000001);
	found = local_addr.lookup(&key);
	return found ? (int)found->flags : -1;
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

/*
 * Then an address is a frontend's or the node's, and whoever knows the one need not
 * look for the other.
 */
static __always_inline bool frontends_stand_apart(void)
{
	int zero = 0;
	struct config_value *node = config.lookup(&zero);

	return node && (node->flags & CONFIG_STANDS_APART);
}

/* What is called mostly: sockets call frontends, packets from elsewhere come to node ports. */
enum expected {
	EXPECT_FRONTEND,
	EXPECT_NODE_PORT,
};

/*
 * REASON_CHOSEN: a frontend to balance. REASON_PORT_CLOSED: a node port, on an
 * address where node ports are not open. Anything else: why it is left alone.
 */
static __always_inline enum reason find_frontend(struct frontend_key *to,
						 struct frontend_value *frontend, int *local,
						 enum expected expected)
{
	struct frontend_key node_port = {.port = to->port, .protocol = to->protocol};
	bool apart = frontends_stand_apart();
	bool is_later = apart && expected == EXPECT_FRONTEND;

	*local = is_later ? -1 : local_flags(&to->address);
	/* A ClusterIP on a device of this node: a node-local DNS cache listens there. */
	if (!(apart && *local >= 0) && read_frontend(to, frontend))
		return frontend->kind == KIND_CLUSTER_IP && *local >= 0 ? REASON_LOCAL_ADDRESS
									: REASON_CHOSEN;
	if (is_later)
		*local = local_flags(&to->address);
	if (*local < 0)
		return REASON_NOT_A_FRONTEND;
	if (is_mapped(&to->address))
		node_port.address = mapped(0);
	if (!read_frontend(&node_port, frontend))
		return REASON_NOT_A_FRONTEND;
	return *local & LOCAL_NODE_PORT ? REASON_CHOSEN : REASON_PORT_CLOSED;
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
	struct slot_value *found = slots.lookup(&key);

	if (!found)
		return false;
	backend->address = found->backend.address;
	backend->port = found->backend.port;
	backend->protocol = found->backend.protocol;
	backend->id = found->backend_id;
	/* A recycled row is written from its head: who has read any of that sees another head. */
	barrier();
	return found->service_id == service->id && found->generation == service->generation;
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

/* UDP flows leave a backend only when it serves no more, whatever list new ones choose from. */
static __always_inline bool may_stay(const struct service_value *service, __u32 view,
				     __u32 backend_id)
{
	return is_member(service, view, backend_id) ||
	       is_member(service, VIEW_CLUSTER, backend_id) ||
	       is_member(service, VIEW_KEPT, backend_id);
}

static __always_inline bool read_affinity(const struct caller *caller,
					  const struct service_value *service,
					  struct backend_value *backend)
{
	struct affinity_key key = {.client = caller->client, .service_id = service->id};
	struct affinity_value *found = affinity.lookup(&key), seen;

	if (!found)
		return false;
	seen = *found;
	if (seen.service_id != service->id)
		return false;
	/* An age of exactly the timeout still counts, as in the iptables match "recent". */
	if (bpf_ktime_get_ns() - seen.last_seen_ns > service->affinity_timeout_s * 1000000000ULL)
		return false;
	return is_member(service, caller->view, seen.backend_id) &&
	       read_backend(seen.backend_id, backend);
}

static __always_inline void write_affinity(const struct caller *caller, __u32 service_id,
					   __u32 backend_id)
{
	struct affinity_key key = {.client = caller->client, .service_id = service_id};
	struct affinity_value seen = {
		.last_seen_ns = bpf_ktime_get_ns(),
		.backend_id = backend_id,
		.service_id = service_id,
	};

	affinity.update(&key, &seen);
}

static __always_inline __u32 count_of(const struct service_value *service, __u32 view)
{
	return view == VIEW_LOCAL ? service->n_local : service->n_cluster;
}

static __always_inline enum reason without_backends(__u32 verdict)
{
	return verdict == VERDICT_DROP ? REASON_DROPPED : REASON_REJECTED;
}

/* kube-proxy refuses a node port without backends on every address of the node, open or not. */
static __always_inline enum reason closed_node_port(const struct frontend_value *frontend)
{
	struct service_value service;

	if (!read_service(frontend->service_id, &service))
		return REASON_NO_SERVICE;
	if (count_of(&service, frontend->external_view))
		return REASON_NOT_A_FRONTEND;
	return without_backends(frontend->external_verdict);
}

static __always_inline void count_choice(__u32 service_id, __u32 backend_id)
{
	struct choice_key key = {.service_id = service_id, .backend_id = backend_id};
	__u64 *total = choices.lookup(&key), first = 1;

	/* Each processor counts in a place of its own. */
	if (total)
		*total += 1;
	else
		choices.update(&key, &first);
}

/*
 * REASON_CHOSEN or REASON_AFFINITY: a backend. REASON_REJECTED or REASON_DROPPED:
 * there is none. A miss means that the generation was swept while we looked, so
 * the service is read once more.
 */
static __always_inline enum reason select_backend(const struct frontend_value *frontend,
						  const struct caller *caller,
						  struct backend_value *backend)
{
	struct service_value service;
	enum reason reason;
	__u32 count;

#pragma unroll
	for (int attempt = 0; attempt < SELECT_ATTEMPTS; attempt++) {
		if (!read_service(frontend->service_id, &service))
			return REASON_NO_SERVICE;
		count = count_of(&service, caller->view);
		if (!count)
			return without_backends(caller->verdict);
		reason = REASON_CHOSEN;
		if (service.affinity_timeout_s && read_affinity(caller, &service, backend))
			reason = REASON_AFFINITY;
		else if (!read_slot(&service, caller->view, count, backend))
			continue;
		if (backend->protocol != frontend->protocol)
			continue;
		if (service.affinity_timeout_s)
			write_affinity(caller, service.id, backend->id);
		count_choice(service.id, backend->id);
		return reason;
	}
	return REASON_NO_BACKEND;
}

#endif
