/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the packet programs need of the kernel and of BCC, in user space: maps,
 * helpers, and a packet in one piece of memory. Every key and value is an
 * allocation of its own, so that the address sanitizer sees each byte too far.
 * Helpers answer as the kernel's do, errors included.
 */
#ifndef KBPF_TEST_KERNEL_H
#define KBPF_TEST_KERNEL_H

#include <arpa/inet.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define bpf_htons htons
#define bpf_htonl htonl
#define bpf_ntohl ntohl

#define BPF_F_NO_PREALLOC 1
#define BPF_F_RECOMPUTE_CSUM 1
#define BPF_F_PSEUDO_HDR 0x10
#define BPF_F_MARK_MANGLED_0 0x20
#define BPF_F_HDR_FIELD_MASK 0xf
#define BPF_F_INGRESS 1
#define BPF_ANNOTATE_KV_PAIR(...)
#define REDIRECT 7

typedef __u32 u32;

struct bpf_spin_lock {
	__u32 value;
};

struct __sk_buff {
	__u32 len;
	__u32 mark;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 ifindex;
	__u32 tc_index;
	__u64 data; /* the kernel's have 32 bits, and are pointers to programs all the same */
	__u64 data_end;
	__u8 *bytes;
};

static void fail(const char *what)
{
	fprintf(stderr, "failed: %s\n", what);
	abort();
}

static void *allocate(size_t size)
{
	void *made = calloc(1, size);

	if (!made)
		fail("no memory");
	return made;
}

/* ---- time and chance, of which the driver is the master */

static __u64 now_ns = 1000000000000ULL;
static __u64 random_state = 1;

static __u32 draw(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state >> 32;
}

static __u64 bpf_ktime_get_ns(void)
{
	return now_ns;
}

static __u64 bpf_ktime_get_coarse_ns(void)
{
	return now_ns;
}

static __u32 bpf_get_prandom_u32(void)
{
	return draw();
}

static long bpf_redirect(__u32 ifindex, __u64 flags)
{
	return ifindex && flags == BPF_F_INGRESS ? REDIRECT : 2;
}

/* ---- maps */

struct row {
	struct row *next;
	void *key;
	void *value;
};

struct table {
	const char *type;
	size_t key_size, value_size, room, count;
	struct row *rows;
	struct row *dead; /* a program may still hold a pointer */
};

static bool is_type(const struct table *table, const char *type)
{
	return !strcmp(table->type, type);
}

/* A prefix: how many bits, then the bits. */
static bool covers(const struct table *table, const void *prefix, const void *key)
{
	__u32 bits = *(const __u32 *)prefix;
	const __u8 *a = (const __u8 *)prefix + 4, *b = (const __u8 *)key + 4;

	if (memcmp(a, b, bits / 8))
		return false;
	return bits % 8 == 0 || !((a[bits / 8] ^ b[bits / 8]) >> (8 - bits % 8));
}

static struct row *find_row(const struct table *table, const void *key)
{
	struct row *best = NULL;

	for (struct row *row = table->rows; row; row = row->next) {
		if (is_type(table, "lpm_trie")) {
			if (covers(table, row->key, key) &&
			    (!best || *(__u32 *)row->key > *(__u32 *)best->key))
				best = row;
		} else if (!memcmp(row->key, key, table->key_size)) {
			return row;
		}
	}
	return best;
}

static void bury(struct table *table, struct row **link)
{
	struct row *row = *link;

	*link = row->next;
	row->next = table->dead;
	table->dead = row;
	table->count--;
}

static void free_dead(struct table *table)
{
	while (table->dead) {
		struct row *row = table->dead;

		table->dead = row->next;
		free(row->key);
		free(row->value);
		free(row);
	}
}

static void clear(struct table *table)
{
	while (table->rows)
		bury(table, &table->rows);
	free_dead(table);
}

static int delete_row(struct table *table, const void *key)
{
	for (struct row **link = &table->rows; *link; link = &(*link)->next) {
		if (!memcmp((*link)->key, key, table->key_size)) {
			bury(table, link);
			return 0;
		}
	}
	return -1;
}

static int update_row(struct table *table, const void *key, const void *value, bool may_exist)
{
	struct row *row = NULL;

	for (row = table->rows; row; row = row->next)
		if (!memcmp(row->key, key, table->key_size))
			break;
	if (row && !may_exist)
		return -1;
	if (!row) {
		if (table->count >= table->room) {
			if (!is_type(table, "lru_hash"))
				return -1;
			bury(table, &table->rows);
		}
		row = allocate(sizeof(*row));
		row->key = allocate(table->key_size);
		row->value = allocate(table->value_size);
		memcpy(row->key, key, table->key_size);
		row->next = table->rows;
		table->rows = row;
		table->count++;
	}
	memcpy(row->value, value, table->value_size);
	return 0;
}

static void *lookup_row(struct table *table, const void *key)
{
	struct row *row = find_row(table, key);
	void *zeros;

	if (!row && strstr(table->type, "array") && *(const __u32 *)key < table->room) {
		zeros = allocate(table->value_size);
		update_row(table, key, zeros, true);
		free(zeros);
		row = find_row(table, key);
	}
	return row ? row->value : NULL;
}

/* BCC's tables have methods. */
#define BPF_TABLE_PINNED(TYPE, KEY, VALUE, NAME, ROOM, PIN, FLAGS)                                 \
	static struct table NAME##_table = {                                                       \
		.type = TYPE, .key_size = sizeof(KEY), .value_size = sizeof(VALUE), .room = ROOM}; \
	static VALUE *NAME##_lookup(const void *key)                                               \
	{                                                                                          \
		return lookup_row(&NAME##_table, key);                                             \
	}                                                                                          \
	static int NAME##_update(const void *key, const void *value)                               \
	{                                                                                          \
		return update_row(&NAME##_table, key, value, true);                                \
	}                                                                                          \
	static int NAME##_insert(const void *key, const void *value)                               \
	{                                                                                          \
		return update_row(&NAME##_table, key, value, false);                               \
	}                                                                                          \
	static int NAME##_delete(const void *key)                                                  \
	{                                                                                          \
		return delete_row(&NAME##_table, key);                                             \
	}                                                                                          \
	static void NAME##_increment(__u32 key)                                                    \
	{                                                                                          \
		++*(__u64 *)lookup_row(&NAME##_table, &key);                                       \
	}                                                                                          \
	static struct {                                                                            \
		VALUE *(*lookup)(const void *);                                                    \
		int (*update)(const void *, const void *);                                         \
		int (*insert)(const void *, const void *);                                         \
		int (*delete)(const void *);                                                       \
		void (*increment)(__u32);                                                          \
	} NAME __attribute__((unused)) = {NAME##_lookup, NAME##_update, NAME##_insert,             \
					  NAME##_delete, NAME##_increment};

/* ---- bytes of a packet */

static long bpf_skb_load_bytes(const struct __sk_buff *skb, __u32 offset, void *to, __u32 length)
{
	if (offset > skb->len || length > skb->len - offset)
		return -14;
	memcpy(to, skb->bytes + offset, length);
	return 0;
}

static long bpf_skb_store_bytes(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length,
				__u64 flags)
{
	if (offset > skb->len || length > skb->len - offset)
		return -14;
	memcpy(skb->bytes + offset, from, length);
	return 0;
}

/* ---- checksums: 16 bit sums, whatever the order of bytes */

static __u16 fold(__u64 sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static __u64 add_bytes(const void *bytes, size_t length, __u64 sum)
{
	__u16 word;

	for (size_t i = 0; i + 1 < length; i += 2) {
		memcpy(&word, (const __u8 *)bytes + i, 2);
		sum += word;
	}
	if (length % 2) {
		word = 0;
		memcpy(&word, (const __u8 *)bytes + length - 1, 1);
		sum += word;
	}
	return sum;
}

static __s64 bpf_csum_diff(const __be32 *from, __u32 from_size, const __be32 *to, __u32 to_size,
			   __u32 seed)
{
	__u64 sum = add_bytes(to, to_size, seed);

	for (__u32 i = 0; i < from_size / 4; i++)
		sum += (__u16)~from[i] + (__u16) ~(from[i] >> 16);
	return fold(sum);
}

static bool checksum_at(struct __sk_buff *skb, __u32 offset, __u16 *found)
{
	return !(offset & 1) && !bpf_skb_load_bytes(skb, offset, found, sizeof(*found));
}

/* What takes a number of so many bytes out of a sum. */
static __u64 without(__u32 number, __u64 size)
{
	return (size >= 2 ? (__u16)~number : 0) + (size == 4 ? (__u16) ~(number >> 16) : 0);
}

static int replace(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 size)
{
	__u16 found;

	if (!checksum_at(skb, offset, &found))
		return -14;
	if (size == 0 ? from != 0 : size != 2 && size != 4)
		return -22;
	found = ~fold((__u64)(__u16)~found + without(from, size) + fold(to));
	memcpy(skb->bytes + offset, &found, sizeof(found));
	return 0;
}

static long bpf_l3_csum_replace(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to,
				__u64 flags)
{
	return replace(skb, offset, from, to, flags & BPF_F_HDR_FIELD_MASK);
}

static long bpf_l4_csum_replace(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to,
				__u64 flags)
{
	__u16 found, mangled = 0xffff;
	int failure;

	if (!checksum_at(skb, offset, &found))
		return -14;
	if ((flags & BPF_F_MARK_MANGLED_0) && !found)
		return 0;
	failure = replace(skb, offset, from, to, flags & BPF_F_HDR_FIELD_MASK);
	if (!failure && (flags & BPF_F_MARK_MANGLED_0) && checksum_at(skb, offset, &found) &&
	    !found)
		memcpy(skb->bytes + offset, &mangled, sizeof(mangled));
	return failure;
}

#endif
