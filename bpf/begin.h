/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A flow from elsewhere that begins: which frontend it is for, whether its client may
 * call it, which backend gets it, and whether the kernel must masquerade it.
 */
#ifndef KBPF_BEGIN_H
#define KBPF_BEGIN_H

#include "flows.h"

static __always_inline bool is_in_range(__u32 service_id, const struct address *address)
{
	struct source_range_key key = {
		.prefix_length = 8 * (sizeof(service_id) + sizeof(*address)),
		.service_id = service_id,
		.address = *address,
	};
	struct source_range_value *found = source_ranges.lookup(&key);

	return found && found->service_id == service_id;
}

/* kube-proxy sees pods as pods wherever they are, and then as clients inside. */
static __always_inline bool describe(const struct packet *packet,
				     const struct frontend_value *frontend, struct caller *caller)
{
	/* Most have the same for both, and a search costs. */
	bool differs = frontend->kind == KIND_CLUSTER_IP ||
		       frontend->internal_view != frontend->external_view ||
		       frontend->internal_verdict != frontend->external_verdict;
	bool is_pod = packet->is_from_pod || (differs && is_in_range(0, &packet->source));

	caller->client = packet->source;
	caller->view = is_pod ? frontend->internal_view : frontend->external_view;
	caller->verdict = is_pod ? frontend->internal_verdict : frontend->external_verdict;
	return is_pod;
}

static __always_inline bool is_masqueraded(const struct packet *packet,
					   const struct frontend_value *frontend, bool is_pod,
					   const struct config_value *node,
					   const struct backend_value *backend)
{
	__u32 detects = packet->is_ipv4 ? CONFIG_DETECTS_PODS4 : CONFIG_DETECTS_PODS6;

	if (same_address(&packet->source, &backend->address))
		return true;
	if (frontend->kind == KIND_CLUSTER_IP)
		return (node->flags & detects) && !is_pod;
	return frontend->external_view == VIEW_CLUSTER;
}

/*
 * The rule that masquerades stands in netfilter only while somebody needs it. User
 * space knows of external frontends; that a ClusterIP has clients outside it learns
 * here. The client tries again while the rule comes.
 */
static __always_inline bool want_masquerade(const struct frontend_value *frontend,
					    const struct config_value *node)
{
	struct wanted_key key = {.id = frontend->service_id};
	struct wanted_value value;

	if (frontend->kind == KIND_CLUSTER_IP) {
		value.last_seen_s = now_s();
		wanted.update(&key, &value);
	}
	return node->flags & CONFIG_MASQUERADES;
}

/* A backend of masqueraded flows answers to this node: that is no call of a node port. */
static __always_inline bool is_answer(const struct packet *packet,
				      const struct frontend_value *frontend)
{
	struct flow_key key = answering_key(&packet->source, packet->source_port, packet->protocol);
	struct flow_value *found;

	if (packet->protocol != UDP || frontend->kind != KIND_NODE_PORT)
		return false;
	found = flows.lookup(&key);
	return found && !is_idle(found, found);
}

static __always_inline enum reason find(const struct packet *packet,
					struct frontend_value *frontend)
{
	struct frontend_key to = {
		.address = packet->destination,
		.port = packet->destination_port,
		.protocol = packet->protocol,
	};
	enum reason reason;
	int local;

	reason = find_frontend(&to, frontend, &local, EXPECT_NODE_PORT);
	if (reason != REASON_CHOSEN && reason != REASON_PORT_CLOSED)
		return reason;
	if (frontend->kind == KIND_NODE_PORT && (local & LOCAL_LOOPBACK))
		return REASON_NOT_A_FRONTEND;
	if (frontend->flags & FRONTEND_DEFER_PACKETS)
		return REASON_DEFERRED;
	if (is_answer(packet, frontend))
		return REASON_NOT_A_FRONTEND;
	if (reason == REASON_PORT_CLOSED)
		return closed_node_port(frontend);
	if ((frontend->flags & FRONTEND_SOURCE_RANGES) &&
	    !is_in_range(frontend->service_id, &packet->source))
		return REASON_SOURCE_RANGE;
	return REASON_CHOSEN;
}

/*
 * A refusal is a flow to a port of this node on which nobody can listen, port 0.
 * The kernel resets the connection or answers with an ICMP error, within its rate
 * limits, and both are translated back like any other packet.
 */
static __always_inline bool refuse(const struct packet *packet, const struct config_value *node,
				   struct backend_value *backend)
{
	backend->id = 0;
	backend->port = 0;
	backend->address = packet->is_ipv4 ? node->node_address4 : node->node_address6;
	return backend->address.word[3];
}

static __always_inline enum reason choose(const struct packet *packet,
					  const struct config_value *node, struct flow_value *flow)
{
	struct frontend_value frontend;
	struct backend_value backend = {};
	struct caller caller;
	enum reason reason = find(packet, &frontend);
	bool is_pod = false;

	if (reason == REASON_CHOSEN) {
		is_pod = describe(packet, &frontend, &caller);
		flow->view = caller.view;
		reason = select_backend(&frontend, &caller, &backend);
	}
	if (reason == REASON_REJECTED) {
		if (!refuse(packet, node, &backend))
			return REASON_REJECT_PASSED;
	} else if (reason != REASON_CHOSEN && reason != REASON_AFFINITY) {
		return reason;
	} else if (is_mapped(&backend.address) != packet->is_ipv4) {
		return REASON_OTHER_FAMILY;
	} else if (is_masqueraded(packet, &frontend, is_pod, node, &backend)) {
		if (!want_masquerade(&frontend, node))
			return REASON_NO_MASQUERADE;
		flow->flags = FLOW_MASQUERADE;
	}
	flow->frontend_address = packet->destination;
	flow->frontend_port = packet->destination_port;
	flow->backend_address = backend.address;
	flow->backend_port = backend.port;
	flow->client_port = packet->source_port;
	flow->translated_port = packet->source_port;
	flow->service_id = frontend.service_id;
	flow->backend_id = backend.id;
	return reason;
}

static __always_inline bool is_translated(enum reason reason)
{
	return reason == REASON_CHOSEN || reason == REASON_AFFINITY ||
	       reason == REASON_REMEMBERED || reason == REASON_REJECTED;
}

/* A row of "key" that tells of an earlier flow is "old"; it goes, or becomes the new one's. */
static __always_inline enum reason begin(const struct packet *packet, struct flow_key *key,
					 struct flow_value *flow, struct flow_value *old)
{
	int zero = 0;
	struct config_value *node = config.lookup(&zero);
	struct flow_value empty = {};
	enum reason reason, opened;

	*flow = empty;
	if (!node)
		return REASON_NO_SERVICE;
	/* Somebody else's connection, or one whose row was lost: its middle means nothing here. */
	if (packet->protocol == TCP && !opens(packet))
		return REASON_NO_FLOW;
	reason = packet->has_transport ? choose(packet, node, flow) : REASON_NO_FLOW;
	if (old) {
		if (is_translated(reason) && renew_flow(packet, key, flow, old))
			return reason;
		forget_flow(key, old);
	}
	if (!is_translated(reason))
		return reason;
	opened = open_flow(packet, key, flow);
	return opened == REASON_CHOSEN ? reason : opened;
}

#endif
