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
#include "translate.h"

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
