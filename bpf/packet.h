/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a packet says of itself, read and never written here. Bytes are named by
 * offset and not by pointers, so packets may lie in pieces. The same parser reads
 * packets and what ICMP errors quote of them.
 */
#ifndef KBPF_PACKET_H
#define KBPF_PACKET_H

#include "lb.h"

#define ETHERNET_HEADER 14
#define ETH_P_IP 0x0800
#define ETH_P_IPV6 0x86dd

#define ICMP 1
#define ICMPV6 58

#define HOP_BY_HOP 0
#define ROUTING 43
#define FRAGMENT 44
#define AUTHENTICATION 51
#define DESTINATION 60
#define MAX_EXTENSION_HEADERS 6
#define FRAGMENT_TIMEOUT_S 30 /* the kernel's own */

#define PLACE(field) ((void *)(long)(field)) /* the kernel gives pointers in 32 bits */
#define IN_PLACE 256 /* bytes, in which headers begin; the verifier wants a bound */

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RESET 0x04
#define TCP_ACK 0x10

struct ipv4_header {
	__u8 version_and_length;
	__u8 service;
	__be16 total_length;
	__be16 id;
	__be16 fragment; /* two flags, then the offset */
	__u8 ttl;
	__u8 protocol;
	__u16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6_header {
	__be32 version_and_flow;
	__be16 payload_length;
	__u8 next;
	__u8 hop_limit;
	struct address source;
	struct address destination;
};

struct fragment_header {
	__u8 next;
	__u8 reserved;
	__be16 offset; /* and three bits */
	__be32 id;
};

/* The first fourteen bytes of a TCP header. */
struct tcp_start {
	__be16 source_port;
	__be16 destination_port;
	__be32 sequence;
	__be32 acknowledged;
	__u8 length;
	__u8 flags;
};

struct packet {
	struct address source;
	struct address destination;
	__be16 source_port;
	__be16 destination_port;
	__u8 protocol;
	__u8 tcp_flags;
	bool is_ipv4;
	bool is_fragment;
	bool has_transport; /* not so in fragments but the first */
	bool is_from_pod; /* as far as the device tells */
	bool is_bridged;
	__u32 fragment_id;
	__u16 header_checksum; /* IPv4's */
	__u32 network; /* offsets of the headers */
	__u32 transport;
};

/*
 * In place where the bytes lie in the packet's first piece, as headers nearly always
 * do: a call of the helper costs more than all that is done with them.
 */
static __always_inline bool read_bytes(struct __sk_buff *skb, __u32 offset, void *to, __u32 length)
{
	void *start = PLACE(skb->data), *end = PLACE(skb->data_end);

	if (offset < IN_PLACE && start + offset + length <= end) {
		__builtin_memcpy(to, start + offset, length);
		return true;
	}
	return !bpf_skb_load_bytes(skb, offset, to, length);
}

static __always_inline bool parse_ipv4(struct __sk_buff *skb, struct packet *packet)
{
	struct ipv4_header ip;
	__u32 length;

	if (!read_bytes(skb, packet->network, &ip, sizeof(ip)))
		return false;
	length = (ip.version_and_length & 0xf) * 4;
	if (ip.version_and_length >> 4 != 4 || length < sizeof(ip))
		return false;
	packet->source = mapped(ip.source);
	packet->destination = mapped(ip.destination);
	packet->protocol = ip.protocol;
	packet->transport = packet->network + length;
	packet->is_fragment = ip.fragment & bpf_htons(0x3fff);
	packet->has_transport = !(ip.fragment & bpf_htons(0x1fff));
	packet->fragment_id = ip.id;
	packet->header_checksum = ip.checksum;
	return true;
}

/* Nothing but the extension headers that any packet may have; others hide the transport header. */
static __always_inline bool skip_extensions(struct __sk_buff *skb, struct packet *packet)
{
	struct fragment_header fragment;
	__u8 start[2];

#pragma nounroll
	for (int i = 0; i < MAX_EXTENSION_HEADERS; i++) {
		switch (packet->protocol) {
		case HOP_BY_HOP:
		case ROUTING:
		case DESTINATION:
			if (bpf_skb_load_bytes(skb, packet->transport, start, sizeof(start)))
				return false;
			packet->transport += (start[1] + 1) * 8;
			packet->protocol = start[0];
			break;
		case AUTHENTICATION:
			if (bpf_skb_load_bytes(skb, packet->transport, start, sizeof(start)))
				return false;
			packet->transport += (start[1] + 2) * 4;
			packet->protocol = start[0];
			break;
		case FRAGMENT:
			if (bpf_skb_load_bytes(skb, packet->transport, &fragment, sizeof(fragment)))
				return false;
			packet->is_fragment = true;
			packet->has_transport = !(fragment.offset & bpf_htons(0xfff8));
			packet->fragment_id = fragment.id;
			packet->transport += sizeof(fragment);
			packet->protocol = fragment.next;
			if (!packet->has_transport)
				return true;
			break;
		default:
			return true;
		}
	}
	return packet->protocol == TCP || packet->protocol == UDP;
}

static __always_inline bool parse_ipv6(struct __sk_buff *skb, struct packet *packet)
{
	struct ipv6_header ip;

	if (!read_bytes(skb, packet->network, &ip, sizeof(ip)))
		return false;
	if (bpf_ntohl(ip.version_and_flow) >> 28 != 6)
		return false;
	packet->source = ip.source;
	packet->destination = ip.destination;
	packet->protocol = ip.next;
	packet->transport = packet->network + sizeof(ip);
	packet->is_fragment = false;
	packet->has_transport = true;
	return skip_extensions(skb, packet);
}

/* Addresses and protocol of what begins at `network`. */
static __always_inline bool parse_network(struct __sk_buff *skb, __u32 network, bool is_ipv4,
					  struct packet *packet)
{
	packet->network = network;
	packet->is_ipv4 = is_ipv4;
	packet->tcp_flags = 0;
	return is_ipv4 ? parse_ipv4(skb, packet) : parse_ipv6(skb, packet);
}

/* Only the eight bytes that every ICMP error quotes. */
static __always_inline bool parse_ports(struct __sk_buff *skb, struct packet *packet)
{
	__be16 ports[2];

	if (!read_bytes(skb, packet->transport, ports, sizeof(ports)))
		return false;
	packet->source_port = ports[0];
	packet->destination_port = ports[1];
	return true;
}

static __always_inline bool parse_tcp(struct __sk_buff *skb, struct packet *packet)
{
	struct tcp_start tcp;

	if (!read_bytes(skb, packet->transport, &tcp, sizeof(tcp)))
		return false;
	packet->source_port = tcp.source_port;
	packet->destination_port = tcp.destination_port;
	packet->tcp_flags = tcp.flags;
	return true;
}

static __always_inline struct fragment_key fragment_of(const struct packet *packet)
{
	struct fragment_key key = {
		.source = packet->source,
		.destination = packet->destination,
		.id = packet->fragment_id,
		.protocol = packet->protocol,
	};

	return key;
}

/* Before anything is rewritten: later fragments look for what the sender wrote. */
static __always_inline void remember_fragment(const struct packet *packet)
{
	struct fragment_key key = fragment_of(packet);
	struct fragment_value ports = {packet->source_port, packet->destination_port, now_s()};

	fragments.update(&key, &ports);
}

static __always_inline bool recall_fragment(struct packet *packet)
{
	struct fragment_key key = fragment_of(packet);
	struct fragment_value *ports = fragments.lookup(&key);

	/* Senders use an id again. */
	if (!ports || now_s() - ports->seen_s > FRAGMENT_TIMEOUT_S)
		return false;
	packet->source_port = ports->source_port;
	packet->destination_port = ports->destination_port;
	return true;
}

/* A TCP or UDP packet with its ports, which a later fragment has from the first one. */
static __always_inline bool parse_transport(struct __sk_buff *skb, struct packet *packet)
{
	if (packet->protocol != TCP && packet->protocol != UDP)
		return false;
	if (!packet->has_transport)
		return recall_fragment(packet);
	if (packet->protocol == TCP ? !parse_tcp(skb, packet) : !parse_ports(skb, packet))
		return false;
	if (packet->is_fragment)
		remember_fragment(packet);
	return true;
}

static __always_inline bool is_later_fragment(const struct packet *packet)
{
	return !packet->has_transport && (packet->protocol == TCP || packet->protocol == UDP);
}

static __always_inline bool opens(const struct packet *packet)
{
	return (packet->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
}

/* Errors that are about a packet of a flow; all quote the packet eight bytes behind their start. */
static __always_inline bool is_error(struct __sk_buff *skb, const struct packet *packet)
{
	__u8 type;

	if (packet->is_fragment || packet->protocol != (packet->is_ipv4 ? ICMP : ICMPV6))
		return false;
	if (bpf_skb_load_bytes(skb, packet->transport, &type, sizeof(type)))
		return false;
	/* unreachable, time exceeded, parameter problem; IPv6: also packet too big */
	return packet->is_ipv4 ? type == 3 || type == 11 || type == 12 : type >= 1 && type <= 4;
}

#endif
