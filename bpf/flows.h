/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is remembered of flows from elsewhere. The row for packets from the client
 * finds the backend; the row for packets from the backend finds the frontend. It
 * stands first, so that nothing is translated that could not be translated back.
 *
 * Each row tells of its own direction what was seen and when; both together are
 * the state of the flow. Rows live in an LRU map: the one that is left makes the
 * other again. Nobody locks. A row that the kernel recycles under our hands is
 * found out by comparing it with its key.
 */
#ifndef KBPF_FLOWS_H
#define KBPF_FLOWS_H

#include "packet.h"

#define PORT_ATTEMPTS 8
#define FIRST_PORT 1024

static __always_inline struct flow_key key_of(const struct packet *packet,
					      enum flow_direction direction)
{
	struct flow_key key = {
		.source = packet->source,
		.destination = packet->destination,
		.source_port = packet->source_port,
		.destination_port = packet->destination_port,
		.protocol = packet->protocol,
		.direction = direction,
	};

	return key;
}

/* Of the packet to which a quoted one would have been the answer. */
static __always_inline struct flow_key key_of_answer(const struct packet *quoted,
						     enum flow_direction direction)
{
	struct flow_key key = {
		.source = quoted->destination,
		.destination = quoted->source,
		.source_port = quoted->destination_port,
		.destination_port = quoted->source_port,
		.protocol = quoted->protocol,
		.direction = direction,
	};

	return key;
}

static __always_inline struct flow_key other_key(const struct flow_key *key,
						 const struct flow_value *flow)
{
	struct flow_key other = {.protocol = key->protocol};

	if (key->direction == FLOW_FROM_CLIENT) {
		other.source = flow->backend_address;
		other.destination = key->source;
		other.source_port = flow->backend_port;
		other.destination_port = flow->translated_port;
		other.direction = FLOW_FROM_BACKEND;
	} else {
		other.source = key->destination;
		other.destination = flow->frontend_address;
		other.source_port = flow->client_port;
		other.destination_port = flow->frontend_port;
		other.direction = FLOW_FROM_CLIENT;
	}
	return other;
}

static __always_inline bool is_of(const struct flow_value *flow, const struct flow_key *key)
{
	if (key->direction == FLOW_FROM_CLIENT)
		return flow->client_port == key->source_port &&
		       flow->frontend_port == key->destination_port &&
		       same_address(&flow->frontend_address, &key->destination);
	return flow->backend_port == key->source_port &&
	       flow->translated_port == key->destination_port &&
	       same_address(&flow->backend_address, &key->source);
}

static __always_inline struct flow_value *find_flow(struct flow_key *key, struct flow_value *flow)
{
	struct flow_value *found = flows.lookup(key);

	if (!found)
		return NULL;
	*flow = *found;
	return is_of(flow, key) ? found : NULL;
}

static __always_inline __u8 seen_in(const struct packet *packet)
{
	__u8 seen = SEEN_PACKET;

	if (packet->tcp_flags & TCP_SYN)
		seen |= SEEN_SYN;
	if (packet->tcp_flags & TCP_FIN)
		seen |= SEEN_FIN;
	if (packet->tcp_flags & TCP_RESET)
		seen |= SEEN_RESET;
	return seen;
}

/* The backend answers to this node as long as somebody masqueraded talks to it. */
static __always_inline struct flow_key answering_key(const struct address *backend, __be16 port,
						     __u8 protocol)
{
	struct flow_key key = {
		.source = *backend,
		.source_port = port,
		.protocol = protocol,
		.direction = FLOW_ANSWERS,
	};

	return key;
}

static __always_inline void note_answering(struct flow_value *flow, __u8 protocol)
{
	struct flow_key key = answering_key(&flow->backend_address, flow->backend_port, protocol);

	if (protocol == UDP && (flow->flags & FLOW_MASQUERADE))
		flows.update(&key, flow);
}

/* Once a second is enough for everything but flags. */
static __always_inline void touch(struct flow_value *found, const struct flow_key *key,
				  const struct packet *packet, struct flow_value *flow)
{
	struct flow_key other;
	__u32 now = now_s();

	flow->seen |= seen_in(packet);
	if (found->seen != flow->seen)
		found->seen = flow->seen;
	if (found->last_seen_s == now)
		return;
	found->last_seen_s = now;
	flow->last_seen_s = now;
	other = other_key(key, flow);
	if (!flows.lookup(&other))
		flows.insert(&other, flow);
	if (key->direction == FLOW_FROM_CLIENT)
		note_answering(flow, key->protocol);
}

static __always_inline bool is_idle(const struct flow_value *flow, const struct flow_value *back)
{
	int zero = 0;
	struct config_value *found = config.lookup(&zero);
	__u32 now = now_s(), last = flow->last_seen_s, timeout_s;

	if (!found)
		return false;
	timeout_s = found->udp_timeout_s;
	if (back && (back->seen & SEEN_PACKET)) {
		timeout_s = found->udp_stream_timeout_s;
		if ((__s32)(back->last_seen_s - last) > 0)
			last = back->last_seen_s;
	}
	return (__s32)(now - last) > (__s32)timeout_s;
}

static __always_inline bool is_closing(const struct flow_value *flow)
{
	return flow->seen & (SEEN_FIN | SEEN_RESET);
}

/*
 * May this packet of the client follow the remembered choice? The middle of a TCP
 * connection always does. A SYN does while the flow is no older connection's that
 * is closing and the backend is still in the list; a datagram while the flow is not
 * idle and the backend still serves.
 */
static __always_inline bool is_current(const struct packet *packet, const struct flow_key *key,
				       const struct flow_value *flow)
{
	struct flow_key other = other_key(key, flow);
	struct service_value service;
	struct flow_value *back;

	if (packet->protocol == TCP && !opens(packet))
		return true;
	if (is_closing(flow))
		return false;
	if (!read_service(flow->service_id, &service))
		return false;
	back = flows.lookup(&other);
	if (packet->protocol == UDP)
		return may_stay(&service, flow->view, flow->backend_id) && !is_idle(flow, back);
	if (!is_member(&service, flow->view, flow->backend_id))
		return false;
	return !back || !is_closing(back);
}

static __always_inline void forget_flow(struct flow_key *key, const struct flow_value *flow)
{
	struct flow_key other = other_key(key, flow);

	flows.delete(&other);
	flows.delete(key);
}

/* Two rows that tell of one client's port and one frontend. */
static __always_inline bool is_same_call(const struct flow_value *a, const struct flow_value *b)
{
	return a->client_port == b->client_port && a->frontend_port == b->frontend_port &&
	       same_address(&a->frontend_address, &b->frontend_address);
}

/*
 * Two frontends may lead to one backend, and one client may use one port for both:
 * the later flow gets another client port on the backend's side.
 */
static __always_inline bool claim_answers(const struct flow_key *key, struct flow_value *flow)
{
	struct flow_key back = other_key(key, flow);
	struct flow_value *taken;

#pragma nounroll
	for (int attempt = 0; attempt < PORT_ATTEMPTS; attempt++) {
		if (!flows.insert(&back, flow))
			return true;
		taken = flows.lookup(&back);
		if (taken && is_same_call(taken, flow)) {
			flows.update(&back, flow);
			return true;
		}
		flow->translated_port =
			bpf_htons(FIRST_PORT + bpf_get_prandom_u32() % (65536 - FIRST_PORT));
		back.destination_port = flow->translated_port;
	}
	return false;
}

/*
 * A client that uses a port again, and is led to the same backend: both rows are
 * written over in place. To delete and insert them costs more than all the rest.
 */
static __always_inline bool renew_flow(const struct packet *packet, const struct flow_key *key,
				       struct flow_value *flow, struct flow_value *old)
{
	struct flow_key other;
	struct flow_value *back;

	if (old->backend_port != flow->backend_port ||
	    !same_address(&old->backend_address, &flow->backend_address))
		return false;
	flow->translated_port = old->translated_port;
	other = other_key(key, flow);
	back = flows.lookup(&other);
	if (!back || !is_same_call(back, flow)) {
		flow->translated_port = flow->client_port;
		return false;
	}
	flow->last_seen_s = now_s();
	*back = *flow;
	flow->seen = seen_in(packet);
	*old = *flow;
	note_answering(flow, packet->protocol);
	return true;
}

/* REASON_CHOSEN: remembered, with the answers' row first. */
static __always_inline enum reason open_flow(const struct packet *packet, struct flow_key *key,
					     struct flow_value *flow)
{
	flow->last_seen_s = now_s();
	if (!claim_answers(key, flow))
		return REASON_NO_PORT;
	flow->seen = seen_in(packet);
	if (flows.update(key, flow))
		return REASON_NO_STORAGE;
	note_answering(flow, packet->protocol);
	return REASON_CHOSEN;
}

#endif
