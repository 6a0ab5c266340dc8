/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Rewriting of addresses and ports with all checksums that cover them. Nothing
 * changes its length, so packets that stand for many (GSO) stay right.
 *
 * The kernel's helpers know a checksum that hardware will complete from one that
 * is complete. Where it summed up the whole packet, that sum must stay true too:
 * IPv4 addresses and ports are balanced by the checksum that covers them; an IPv6
 * address is told to the kernel with BPF_F_RECOMPUTE_CSUM, as the pseudo header's
 * flag makes it count the change of the checksum alone.
 *
 * Every function answers 0 or an error; after one the packet must be dropped.
 */
#ifndef KBPF_NAT_H
#define KBPF_NAT_H

#include "packet.h"

#define TCP_CHECKSUM 16
#define UDP_CHECKSUM 6
#define ICMP_CHECKSUM 2
#define ICMP_HEADER 8
#define IPV4_CHECKSUM 10

enum end {
	END_SOURCE,
	END_DESTINATION,
};

static __always_inline __u32 address_offset(const struct packet *packet, enum end end)
{
	if (packet->is_ipv4)
		return packet->network + (end == END_SOURCE ? 12 : 16);
	return packet->network + (end == END_SOURCE ? 8 : 24);
}

static __always_inline __u32 port_offset(const struct packet *packet, enum end end)
{
	return packet->transport + (end == END_SOURCE ? 0 : 2);
}

static __always_inline __u32 checksum_offset(const struct packet *packet)
{
	return packet->transport + (packet->protocol == TCP ? TCP_CHECKSUM : UDP_CHECKSUM);
}

/* An UDP checksum of zero means that there is none, and stays. */
static __always_inline __u64 zero_flag(const struct packet *packet)
{
	return packet->protocol == UDP ? BPF_F_MARK_MANGLED_0 : 0;
}

/* BCC declares the helper without const. */
static __always_inline int store(struct __sk_buff *skb, __u32 offset, const void *bytes,
				 __u32 length, __u64 flags)
{
	return bpf_skb_store_bytes(skb, offset, (void *)bytes, length, flags);
}

static __always_inline __u32 difference(const struct address *from, const struct address *to)
{
	return bpf_csum_diff((__be32 *)from->word, sizeof(*from), (__be32 *)to->word, sizeof(*to),
			     0);
}

/* In the network header alone. */
static __always_inline int store_address(struct __sk_buff *skb, const struct packet *packet,
					 enum end end, const struct address *from,
					 const struct address *to)
{
	__u32 offset = address_offset(packet, end);

	if (!packet->is_ipv4)
		return store(skb, offset, to, sizeof(*to), BPF_F_RECOMPUTE_CSUM);
	return bpf_l3_csum_replace(skb, packet->network + IPV4_CHECKSUM, from->word[3], to->word[3],
				   sizeof(to->word[3])) ||
	       store(skb, offset, &to->word[3], sizeof(to->word[3]), 0);
}

/* In the checksum that covers the address as part of a pseudo header. */
static __always_inline int replace_pseudo(struct __sk_buff *skb, const struct packet *packet,
					  const struct address *from, const struct address *to)
{
	__u64 flags = BPF_F_PSEUDO_HDR | zero_flag(packet);
	__u32 offset = checksum_offset(packet);

	if (packet->is_ipv4)
		return bpf_l4_csum_replace(skb, offset, from->word[3], to->word[3],
					   flags | sizeof(to->word[3]));
	return bpf_l4_csum_replace(skb, offset, 0, difference(from, to), flags);
}

/* As they lie in a header. */
union ports {
	struct {
		__be16 source;
		__be16 destination;
	};
	__be32 both;
};

/* The end of an IPv4 header without options, and what follows it. */
struct ipv4_ends {
	__u16 checksum;
	__be32 source;
	__be32 destination;
	union ports ports;
} __attribute__((packed));

/* RFC 1624. */
static __always_inline __u16 adjusted(__u16 checksum, __be32 from, __be32 to)
{
	__u64 sum = (__u64)(__u16)~checksum + (__u32)~from + to;

	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline int replace_ports(struct __sk_buff *skb, const struct packet *packet,
					 union ports from, union ports to)
{
	if (from.both == to.both)
		return 0;
	return bpf_l4_csum_replace(skb, checksum_offset(packet), from.both, to.both,
				   sizeof(to.both) | zero_flag(packet));
}

static __always_inline int store_ports(struct __sk_buff *skb, const struct packet *packet,
				       union ports ports)
{
	if (!packet->has_transport)
		return 0;
	return store(skb, packet->transport, &ports, sizeof(ports), 0);
}

/* Most of what a translation costs are calls of helpers: one of them stores what lies together. */
static __always_inline int store_ipv4(struct __sk_buff *skb, const struct packet *packet,
				      enum end end, const struct address *from,
				      const struct address *to, union ports ports)
{
	bool is_source = end == END_SOURCE;
	struct ipv4_ends ends = {
		.checksum = adjusted(packet->header_checksum, from->word[3], to->word[3]),
		.source = is_source ? to->word[3] : packet->source.word[3],
		.destination = is_source ? packet->destination.word[3] : to->word[3],
		.ports = ports,
	};
	__u32 offset = packet->network + IPV4_CHECKSUM;

	if (packet->has_transport &&
	    packet->transport == packet->network + sizeof(struct ipv4_header))
		return store(skb, offset, &ends, sizeof(ends), 0);
	return store(skb, offset, &ends, sizeof(ends) - sizeof(ports), 0) ||
	       store_ports(skb, packet, ports);
}

/* One end gets another address, and both may get other ports. */
static __always_inline int rewrite(struct __sk_buff *skb, const struct packet *packet, enum end end,
				   const struct address *to, union ports ports)
{
	const struct address *from = end == END_SOURCE ? &packet->source : &packet->destination;
	union ports before = {{packet->source_port, packet->destination_port}};

	if (packet->has_transport &&
	    (replace_pseudo(skb, packet, from, to) || replace_ports(skb, packet, before, ports)))
		return -1;
	if (packet->is_ipv4)
		return store_ipv4(skb, packet, end, from, to, ports);
	return store_address(skb, packet, end, from, to) || store_ports(skb, packet, ports);
}

/*
 * The same for what an ICMP error quotes. Its checksum covers every byte that
 * changes; an IPv4 address and the header's checksum balance each other. A quoted
 * checksum may be cut off.
 */
static __always_inline int replace_in_error(struct __sk_buff *skb, const struct packet *error,
					    __u16 from, __u16 to)
{
	return bpf_l4_csum_replace(skb, error->transport + ICMP_CHECKSUM, from, to, sizeof(to));
}

static __always_inline int quoted_checksum(struct __sk_buff *skb, const struct packet *error,
					   const struct packet *quoted, __u64 from, __u64 to,
					   __u64 flags)
{
	__u32 offset = checksum_offset(quoted);
	__u16 before, after;

	if (bpf_skb_load_bytes(skb, offset, &before, sizeof(before)))
		return 0;
	return bpf_l4_csum_replace(skb, offset, from, to, flags | zero_flag(quoted)) ||
	       bpf_skb_load_bytes(skb, offset, &after, sizeof(after)) ||
	       replace_in_error(skb, error, before, after);
}

static __always_inline int set_quoted_address(struct __sk_buff *skb, const struct packet *error,
					      const struct packet *quoted, enum end end,
					      const struct address *from, const struct address *to)
{
	__u32 change = difference(from, to);

	if (quoted_checksum(skb, error, quoted, 0, change, 0))
		return -1;
	if (quoted->is_ipv4)
		return store_address(skb, quoted, end, from, to);
	return store(skb, address_offset(quoted, end), to, sizeof(*to), 0) ||
	       bpf_l4_csum_replace(skb, error->transport + ICMP_CHECKSUM, 0, change, 0);
}

static __always_inline int set_quoted_port(struct __sk_buff *skb, const struct packet *error,
					   const struct packet *quoted, enum end end, __be16 from,
					   __be16 to)
{
	if (from == to)
		return 0;
	return quoted_checksum(skb, error, quoted, from, to, sizeof(to)) ||
	       store(skb, port_offset(quoted, end), &to, sizeof(to), 0) ||
	       replace_in_error(skb, error, from, to);
}

/* The error's own address. ICMPv6 has a pseudo header, ICMP has none. */
static __always_inline int set_error_address(struct __sk_buff *skb, const struct packet *error,
					     enum end end, const struct address *from,
					     const struct address *to)
{
	if (!error->is_ipv4 && bpf_l4_csum_replace(skb, error->transport + ICMP_CHECKSUM, 0,
						   difference(from, to), BPF_F_PSEUDO_HDR))
		return -1;
	return store_address(skb, error, end, from, to);
}

#endif
