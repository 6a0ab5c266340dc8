/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What happens to a packet of a flow, and to an ICMP error about one:
 *
 *     forward    the frontend's address becomes the backend's
 *     reverse    the backend's address becomes the frontend's
 */
#ifndef KBPF_TRANSLATE_H
#define KBPF_TRANSLATE_H

#include "begin.h"
#include "nat.h"

/* ---- ingress */

/*
 * The kernel must be told once; later packets follow what it then decided. A TCP
 * client that says more than SYN has its answer.
 */
static __always_inline void mark(struct __sk_buff *skb, const struct packet *packet,
				 struct flow_value *found, const struct flow_key *key,
				 const struct flow_value *flow)
{
	struct flow_key other;
	struct flow_value *back;
	int zero = 0;
	struct config_value *node;

	if ((flow->flags & (FLOW_MASQUERADE | FLOW_ANSWERED)) != FLOW_MASQUERADE)
		return;
	if (packet->protocol == TCP && !opens(packet))
		return;
	if (found) {
		other = other_key(key, flow);
		back = flows.lookup(&other);
		if (back && (back->seen & SEEN_PACKET)) {
			found->flags = flow->flags | FLOW_ANSWERED;
			return;
		}
	}
	node = config.lookup(&zero);
	if (node)
		*(volatile __u32 *)&skb->mark = skb->mark | node->masquerade_mark;
}

static __always_inline int to_backend(struct __sk_buff *skb, const struct packet *packet,
				      const struct flow_value *flow)
{
	union ports ports = {{flow->translated_port, flow->backend_port}};

	return rewrite(skb, packet, END_DESTINATION, &flow->backend_address, ports);
}

/* Translated before, and here again: what its answer would be has a row. */
static __always_inline bool is_under_way(struct flow_key answer)
{
	struct flow_value flow;

	return find_flow(&answer, &flow);
}

static __always_inline enum reason forward(struct __sk_buff *skb, const struct packet *packet)
{
	struct flow_key key = key_of(packet, FLOW_FROM_CLIENT);
	struct flow_value flow, *found, *old = NULL;
	enum reason reason = REASON_REMEMBERED;

	if (packet->is_bridged && is_under_way(key_of_answer(packet, FLOW_FROM_BACKEND)))
		return REASON_NOT_A_FRONTEND;
	found = find_flow(&key, &flow);
	if (found && !is_current(packet, &key, &flow)) {
		old = found;
		found = NULL;
	}
	if (found)
		touch(found, &key, packet, &flow);
	else
		reason = begin(packet, &key, &flow, old);
	if (!is_translated(reason))
		return reason;
	mark(skb, packet, found, &key, &flow);
	return to_backend(skb, packet, &flow) ? REASON_HALF_TRANSLATED : reason;
}

/* What follows the header of an ICMP error: the beginning of the packet that it is about. */
static __always_inline bool parse_quoted(struct __sk_buff *skb, const struct packet *error,
					 struct packet *quoted)
{
	if (!parse_network(skb, error->transport + ICMP_HEADER, error->is_ipv4, quoted))
		return false;
	if (quoted->protocol != TCP && quoted->protocol != UDP)
		return false;
	return quoted->has_transport && parse_ports(skb, quoted);
}

/* An error on the client's side is about a packet that the client sees as the frontend's. */
static __always_inline enum reason forward_error(struct __sk_buff *skb, const struct packet *error)
{
	struct packet quoted;
	struct flow_key key;
	struct flow_value flow;

	if (!parse_quoted(skb, error, &quoted))
		return REASON_OTHER_PROTOCOL;
	if (error->is_bridged && is_under_way(key_of(&quoted, FLOW_FROM_BACKEND)))
		return REASON_NO_FLOW;
	key = key_of_answer(&quoted, FLOW_FROM_CLIENT);
	if (!find_flow(&key, &flow) || !same_address(&error->destination, &quoted.source))
		return REASON_NO_FLOW;
	if (set_quoted_port(skb, error, &quoted, END_SOURCE, flow.frontend_port,
			    flow.backend_port) ||
	    set_quoted_port(skb, error, &quoted, END_DESTINATION, flow.client_port,
			    flow.translated_port) ||
	    set_quoted_address(skb, error, &quoted, END_SOURCE, &flow.frontend_address,
			       &flow.backend_address) ||
	    set_error_address(skb, error, END_DESTINATION, &flow.frontend_address,
			      &flow.backend_address))
		return REASON_HALF_TRANSLATED;
	return REASON_ERROR_TRANSLATED;
}

/* ---- egress */

/*
 * A call of this node or of a pod that the hooks let pass, because kube-proxy drops
 * it: it must not reach somebody else who answers for the address.
 */
static __always_inline bool is_refused_silently(const struct packet *packet)
{
	struct frontend_key to = {
		.address = packet->destination,
		.port = packet->destination_port,
		.protocol = packet->protocol,
	};
	struct frontend_value frontend;
	struct service_value service;

	if (packet->protocol == TCP && !opens(packet))
		return false;
	if (!read_frontend(&to, &frontend) || (frontend.flags & FRONTEND_DEFER_SOCKETS))
		return false;
	return frontend.internal_verdict == VERDICT_DROP &&
	       read_service(frontend.service_id, &service) &&
	       !count_of(&service, frontend.internal_view);
}

static __always_inline enum reason reverse(struct __sk_buff *skb, const struct packet *packet)
{
	struct flow_key key = key_of(packet, FLOW_FROM_BACKEND);
	struct flow_value flow;
	struct flow_value *found = find_flow(&key, &flow);
	union ports ports;

	if (!found)
		return is_refused_silently(packet) ? REASON_DROPPED : REASON_NOT_REVERSED;
	touch(found, &key, packet, &flow);
	ports.source = flow.frontend_port;
	ports.destination = flow.client_port;
	return rewrite(skb, packet, END_SOURCE, &flow.frontend_address, ports)
		       ? REASON_HALF_TRANSLATED
		       : REASON_REVERSED;
}

/* An error on the backend's side comes, for the client, from the frontend: it knows nobody else
 * there. */
static __always_inline enum reason reverse_error(struct __sk_buff *skb, const struct packet *error)
{
	struct packet quoted;
	struct flow_key key;
	struct flow_value flow;

	if (!parse_quoted(skb, error, &quoted))
		return REASON_OTHER_PROTOCOL;
	key = key_of_answer(&quoted, FLOW_FROM_BACKEND);
	if (!find_flow(&key, &flow) || !same_address(&error->destination, &quoted.source))
		return REASON_NOT_REVERSED;
	if (set_quoted_port(skb, error, &quoted, END_DESTINATION, flow.backend_port,
			    flow.frontend_port) ||
	    set_quoted_port(skb, error, &quoted, END_SOURCE, flow.translated_port,
			    flow.client_port) ||
	    set_quoted_address(skb, error, &quoted, END_DESTINATION, &flow.backend_address,
			       &flow.frontend_address) ||
	    set_error_address(skb, error, END_SOURCE, &error->source, &flow.frontend_address))
		return REASON_HALF_TRANSLATED;
	return REASON_ERROR_TRANSLATED;
}

#endif
