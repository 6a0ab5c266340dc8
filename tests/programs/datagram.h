/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packets as senders make them, and the judgement whether their checksums are right.
 * The maker notes where each header stands, so nothing is parsed here with the code
 * that is under test.
 */
#ifndef KBPF_TEST_DATAGRAM_H
#define KBPF_TEST_DATAGRAM_H

#include "tc.c"

#include "world.h"

struct ends {
	struct address source, destination;
	__be16 source_port, destination_port;
};

/* Where the parts of a packet begin. */
struct made {
	__u8 bytes[MOST_BYTES];
	__u32 length, network, transport, quoted;
	__u8 protocol;
	bool is_ipv4, is_later_fragment, is_first_fragment, has_no_checksum;
	struct ends ends;
};

static void put(struct made *made, const void *bytes, __u32 length)
{
	memcpy(made->bytes + made->length, bytes, length);
	made->length += length;
}

static __u32 ip_header(struct made *made, __u32 at, bool is_ipv4, __u8 protocol,
		       const struct ends *ends, __u32 payload)
{
	__u32 options = is_ipv4 && by_chance(20) ? 4 * below(11) : 0;
	struct ipv4_header four = {
		.version_and_length = 0x40 | (20 + options) / 4,
		.total_length = htons(20 + options + payload),
		.id = htons(below(4)),
		.ttl = 64,
		.protocol = protocol,
		.source = ends->source.word[3],
		.destination = ends->destination.word[3],
	};
	struct ipv6_header six = {
		.version_and_flow = htonl(6 << 28),
		.payload_length = htons(payload),
		.next = protocol,
		.hop_limit = 64,
		.source = ends->source,
		.destination = ends->destination,
	};

	if (!is_ipv4) {
		memcpy(made->bytes + at, &six, sizeof(six));
		return at + sizeof(six);
	}
	if (made->is_first_fragment)
		four.fragment = htons(0x2000);
	if (made->is_later_fragment)
		four.fragment = htons(0x2000 | 8);
	memcpy(made->bytes + at, &four, sizeof(four));
	memset(made->bytes + at + 20, 1, options);
	four.checksum = ~fold(add_bytes(made->bytes + at, 20 + options, 0));
	memcpy(made->bytes + at, &four, sizeof(four));
	return at + 20 + options;
}

static __u64 pseudo_header(bool is_ipv4, const struct address *source,
			   const struct address *destination, __u8 protocol, __u32 length)
{
	__u64 sum = htons(protocol) + htons(length);

	if (is_ipv4)
		return add_bytes(&source->word[3], 4, add_bytes(&destination->word[3], 4, sum));
	return add_bytes(source, 16, add_bytes(destination, 16, sum));
}

static __u32 checksum_place(__u8 protocol)
{
	return protocol == TCP ? 16 : protocol == UDP ? 6 : 2;
}

static void put_checksum(struct made *made, __u32 at, __u32 end, __u8 protocol,
			 const struct ends *ends)
{
	__u16 zero = 0, checksum;
	__u64 sum = protocol == ICMP ? 0
				     : pseudo_header(made->is_ipv4, &ends->source,
						     &ends->destination, protocol, end - at);

	memcpy(made->bytes + at + checksum_place(protocol), &zero, 2);
	checksum = ~fold(add_bytes(made->bytes + at, end - at, sum));
	if (protocol == UDP && !checksum)
		checksum = 0xffff;
	if (protocol == UDP && made->has_no_checksum)
		checksum = 0;
	memcpy(made->bytes + at + checksum_place(protocol), &checksum, 2);
}

static __u32 transport_header(struct made *made, __u32 at, __u8 protocol, __u8 flags,
			      const struct ends *ends, __u32 payload)
{
	__u8 header[20] = {};

	memcpy(header, &ends->source_port, 2);
	memcpy(header + 2, &ends->destination_port, 2);
	if (protocol == TCP) {
		header[12] = 0x50;
		header[13] = flags;
	} else {
		header[4] = (8 + payload) >> 8;
		header[5] = 8 + payload;
	}
	memcpy(made->bytes + at, header, protocol == TCP ? 20 : 8);
	at += protocol == TCP ? 20 : 8;
	for (__u32 i = 0; i < payload; i++)
		made->bytes[at + i] = draw();
	return at + payload;
}

static __u32 extension_headers(struct made *made, __u32 at, __u32 count, __u8 last)
{
	for (__u32 i = 0; i < count; i++, at += 8) {
		memset(made->bytes + at, 0, 8);
		made->bytes[at] = i + 1 < count ? DESTINATION : last;
	}
	return at;
}

/* TCP or UDP between these ends. */
static struct made make_packet(bool is_ipv4, __u8 protocol, __u8 flags, const struct ends *ends)
{
	struct made made = {.network = ETHERNET_HEADER, .protocol = protocol, .is_ipv4 = is_ipv4};
	__u32 payload = below(64), extensions = !is_ipv4 && by_chance(20) ? 1 + below(5) : 0;
	__u32 length = 8 * extensions + (protocol == TCP ? 20 : 8) + payload;
	__u32 at;

	made.ends = *ends;
	made.has_no_checksum = is_ipv4 && protocol == UDP && by_chance(20);
	made.is_first_fragment = is_ipv4 && by_chance(5);
	made.is_later_fragment = is_ipv4 && !made.is_first_fragment && by_chance(5);
	at = ip_header(&made, made.network, is_ipv4, extensions ? DESTINATION : protocol, ends,
		       length);
	made.transport = extension_headers(&made, at, extensions, protocol);
	made.length = transport_header(&made, made.transport, protocol, flags, ends, payload);
	put_checksum(&made, made.transport, made.length, protocol, ends);
	return made;
}

/* An ICMP error from "router" about a packet: all of it is quoted, the sender gets it. */
static struct made make_error(const struct made *about, const struct address *router)
{
	static const __u8 types4[] = {3, 11, 12}, types6[] = {1, 2, 3, 4};
	struct ends ends = {.source = *router, .destination = about->ends.source};
	struct made made = {.network = ETHERNET_HEADER,
			    .protocol = about->is_ipv4 ? ICMP : ICMPV6,
			    .is_ipv4 = about->is_ipv4,
			    .has_no_checksum = about->has_no_checksum};
	__u32 length = about->length - about->network;

	made.transport = ip_header(&made, made.network, made.is_ipv4, made.protocol, &ends,
				   ICMP_HEADER + length);
	made.bytes[made.transport] = made.is_ipv4 ? types4[below(3)] : types6[below(4)];
	made.quoted = made.transport + ICMP_HEADER;
	made.length = made.quoted;
	put(&made, about->bytes + about->network, length);
	made.ends = ends;
	put_checksum(&made, made.transport, made.length, made.protocol, &ends);
	return made;
}

/* ---- judgement */

static bool is_right(const struct made *made, __u32 network, __u32 transport, __u8 protocol)
{
	const __u8 *bytes = made->bytes;
	struct address source, destination;
	__u32 header = (bytes[network] & 0xf) * 4;
	__u16 checksum;

	if (made->is_ipv4) {
		if (fold(add_bytes(bytes + network, header, 0)) != 0xffff)
			return false;
		source = mapped(0);
		destination = mapped(0);
		memcpy(&source.word[3], bytes + network + 12, 4);
		memcpy(&destination.word[3], bytes + network + 16, 4);
	} else {
		memcpy(&source, bytes + network + 8, 16);
		memcpy(&destination, bytes + network + 24, 16);
	}
	memcpy(&checksum, bytes + transport + checksum_place(protocol), 2);
	if (protocol == UDP && made->has_no_checksum)
		return !checksum;
	if (protocol == UDP && !checksum)
		return false;
	return fold(add_bytes(bytes + transport, made->length - transport,
			      protocol == ICMP
				      ? 0
				      : pseudo_header(made->is_ipv4, &source, &destination,
						      protocol, made->length - transport))) ==
	       0xffff;
}

static struct ends ends_of(const struct made *made)
{
	struct ends ends = {.source = mapped(0), .destination = mapped(0)};

	if (made->is_ipv4) {
		memcpy(&ends.source.word[3], made->bytes + made->network + 12, 4);
		memcpy(&ends.destination.word[3], made->bytes + made->network + 16, 4);
	} else {
		memcpy(&ends.source, made->bytes + made->network + 8, 16);
		memcpy(&ends.destination, made->bytes + made->network + 24, 16);
	}
	memcpy(&ends.source_port, made->bytes + made->transport, 2);
	memcpy(&ends.destination_port, made->bytes + made->transport + 2, 2);
	return ends;
}

static struct ends swapped(const struct ends *ends)
{
	struct ends other = {ends->destination, ends->source, ends->destination_port,
			     ends->source_port};

	return other;
}

#endif
