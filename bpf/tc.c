/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The packet path: packets from elsewhere to frontends of this node, and back.
 *
 *     ingress   the frontend's address becomes the backend's; the stack routes
 *     egress    of the same device: the backend's address becomes the frontend's
 *
 * Both directions pass netfilter, which sees a flow between client and backend.
 * Where kube-proxy would masquerade, the packet is marked and the kernel does it,
 * so that FORWARD rules and the kernel's own connection tracking stay right.
 *
 * Whatever is not translated leaves byte for byte as it came, with a verdict that
 * lets other programs on the device run.
 */
#include "flows.h"
#include "nat.h"

#define NEXT (-1) /* TC_ACT_UNSPEC and TCX_NEXT */
#define DROP 2 /* TC_ACT_SHOT and TCX_DROP */
#define VLAN_ID 0xfff

/* In the traffic control index, which is usually zero: a mark of ours, and the turns taken. */
#define TURNS 0x6b00
#define TURNS_MASK 0xff00
#define MAX_TURNS 8

static __always_inline int leave(enum reason reason)
{
	packet_stats.increment(reason);
	switch (reason) {
	case REASON_DROPPED:
	case REASON_SOURCE_RANGE:
	case REASON_NO_MASQUERADE:
	case REASON_NO_PORT:
	case REASON_HALF_TRANSLATED:
		return DROP;
	default:
		return NEXT;
	}
}

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

/* ---- a new flow */

/* kube-proxy sees pods as pods wherever they are, and then as clients inside. */
static __always_inline bool describe(const struct packet *packet,
				     const struct frontend_value *frontend, struct caller *caller)
{
	bool is_pod = packet->is_from_pod || is_in_range(0, &packet->source);

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
	struct wanted_value value = {.last_seen_s = now_s()};

	if (frontend->kind == KIND_CLUSTER_IP)
		wanted.update(&key, &value);
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

	reason = find_frontend(&to, frontend, &local);
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

static __always_inline enum reason begin(const struct packet *packet, struct flow_key *key,
					 struct flow_value *flow)
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
	if (!packet->has_transport)
		return REASON_NO_FLOW;
	reason = choose(packet, node, flow);
	if (!is_translated(reason))
		return reason;
	opened = open_flow(packet, key, flow);
	return opened == REASON_CHOSEN ? reason : opened;
}

/* ---- ingress */

/* The kernel must be told once; later packets of a connection follow what it then decided. */
static __always_inline void mark(struct __sk_buff *skb, struct flow_value *found,
				 const struct flow_key *key, const struct flow_value *flow)
{
	struct flow_key other;
	struct flow_value *back;
	int zero = 0;
	struct config_value *node;

	if ((flow->flags & (FLOW_MASQUERADE | FLOW_ANSWERED)) != FLOW_MASQUERADE)
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
	return set_address(skb, packet, END_DESTINATION, &packet->destination,
			   &flow->backend_address) ||
	       set_port(skb, packet, END_DESTINATION, packet->destination_port,
			flow->backend_port) ||
	       set_port(skb, packet, END_SOURCE, packet->source_port, flow->translated_port);
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
	struct flow_value flow, *found;
	enum reason reason = REASON_REMEMBERED;

	if (packet->is_bridged && is_under_way(key_of_answer(packet, FLOW_FROM_BACKEND)))
		return REASON_NOT_A_FRONTEND;
	found = find_flow(&key, &flow);
	if (found && !is_current(packet, &key, &flow)) {
		forget_flow(&key, &flow);
		found = NULL;
	}
	if (found)
		touch(found, &key, packet, &flow);
	else
		reason = begin(packet, &key, &flow);
	if (!is_translated(reason))
		return reason;
	mark(skb, found, &key, &flow);
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

	if (!found)
		return is_refused_silently(packet) ? REASON_DROPPED : REASON_NOT_REVERSED;
	touch(found, &key, packet, &flow);
	if (set_address(skb, packet, END_SOURCE, &packet->source, &flow.frontend_address) ||
	    set_port(skb, packet, END_SOURCE, packet->source_port, flow.frontend_port) ||
	    set_port(skb, packet, END_DESTINATION, packet->destination_port, flow.client_port))
		return REASON_HALF_TRANSLATED;
	return REASON_REVERSED;
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

/* ---- the programs: a pair for each kind of device */

static __always_inline bool parse(struct __sk_buff *skb, __u32 network, struct packet *packet)
{
	/* Tagged packets belong to the VLAN's own device, which has a program of its own. A tag
	 * without a VLAN gives a priority only. */
	if (skb->vlan_present && (skb->vlan_tci & VLAN_ID))
		return false;
	if (skb->protocol == bpf_htons(ETH_P_IP))
		return parse_network(skb, network, true, packet);
	return skb->protocol == bpf_htons(ETH_P_IPV6) && parse_network(skb, network, false, packet);
}

/*
 * Netfilter may already have seen a packet that came over a bridge, and remembers
 * it as it was: the kernel must forget that. A packet that arrives anew has no past,
 * and is_under_way knows it.
 */
static __always_inline int arrive(struct __sk_buff *skb, const struct packet *packet,
				  enum reason reason)
{
	int verdict = leave(reason);

	if (!packet->is_bridged || (!is_translated(reason) && reason != REASON_ERROR_TRANSLATED))
		return verdict;
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

/*
 * A fragment that overtook the first one of its datagram cannot be translated before
 * that. It goes to the end of the queue, where it mostly finds the first one ahead of
 * it, and is left alone when it does not after a few turns.
 */
static __always_inline int take_turn(struct __sk_buff *skb, __u32 turns)
{
	volatile __u32 *index = &skb->tc_index;

	if (turns >= MAX_TURNS)
		return leave(REASON_NO_FLOW);
	*index = TURNS | (turns + 1);
	/* A kernel without packet scheduler keeps no count. */
	if (*index != (TURNS | (turns + 1)))
		return leave(REASON_NO_FLOW);
	leave(REASON_OVERTOOK);
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS);
}

/* How many turns the packet has taken; it bears no sign of them any more. */
static __always_inline __u32 turns_of(struct __sk_buff *skb)
{
	__u32 index = skb->tc_index;

	if ((index & TURNS_MASK) != TURNS)
		return 0;
	skb->tc_index = 0;
	return index & ~TURNS_MASK;
}

/* "from" holds what the device tells of its packets. */
static __always_inline int ingress(struct __sk_buff *skb, __u32 network, struct packet from)
{
	struct packet packet = from;
	__u32 turns = turns_of(skb);

	if (!parse(skb, network, &packet))
		return NEXT;
	if (parse_transport(skb, &packet))
		return arrive(skb, &packet, forward(skb, &packet));
	if (is_later_fragment(&packet))
		return take_turn(skb, turns);
	if (is_error(skb, &packet))
		return arrive(skb, &packet, forward_error(skb, &packet));
	return NEXT;
}

static __always_inline int egress(struct __sk_buff *skb, __u32 network)
{
	struct packet packet = {};

	if (!parse(skb, network, &packet))
		return NEXT;
	if (parse_transport(skb, &packet))
		return leave(reverse(skb, &packet));
	if (is_error(skb, &packet))
		return leave(reverse_error(skb, &packet));
	return NEXT;
}

int tc_ingress(struct __sk_buff *skb)
{
	struct packet from = {};

	return ingress(skb, ETHERNET_HEADER, from);
}

int tc_egress(struct __sk_buff *skb)
{
	return egress(skb, ETHERNET_HEADER);
}

#if HAVE_TC_INGRESS_RAW
int tc_ingress_raw(struct __sk_buff *skb)
{
	struct packet from = {};

	return ingress(skb, 0, from);
}
#endif

#if HAVE_TC_EGRESS_RAW
int tc_egress_raw(struct __sk_buff *skb)
{
	return egress(skb, 0);
}
#endif

#if HAVE_TC_INGRESS_BRIDGE
int tc_ingress_bridge(struct __sk_buff *skb)
{
	struct packet from = {.is_bridged = true};

	return ingress(skb, ETHERNET_HEADER, from);
}
#endif

#if HAVE_TC_INGRESS_PODS
int tc_ingress_pods(struct __sk_buff *skb)
{
	struct packet from = {.is_from_pod = true};

	return ingress(skb, ETHERNET_HEADER, from);
}
#endif

#if HAVE_TC_INGRESS_PODS_RAW
int tc_ingress_pods_raw(struct __sk_buff *skb)
{
	struct packet from = {.is_from_pod = true};

	return ingress(skb, 0, from);
}
#endif

#if HAVE_TC_INGRESS_PODS_BRIDGE
int tc_ingress_pods_bridge(struct __sk_buff *skb)
{
	struct packet from = {.is_from_pod = true, .is_bridged = true};

	return ingress(skb, ETHERNET_HEADER, from);
}
#endif
