/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps, pinned where user space opens them. The loader sets MAPS_PATH and
 * the sizes from the specifications in layout.py; a pinned map that already
 * exists is taken over with what it holds. Configuration maps allocate on
 * demand, so that a small cluster costs little; LRU maps cannot.
 */
#ifndef KBPF_MAPS_H
#define KBPF_MAPS_H

#include "types.h"

#define PINNED(name) MAPS_PATH "/" name

BPF_TABLE_PINNED("hash", struct frontend_key, struct frontend_value, frontends, FRONTENDS_ENTRIES,
		 PINNED("frontends"), BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("hash", struct service_key, struct service_value, services, SERVICES_ENTRIES,
		 PINNED("services"), BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("hash", struct slot_key, struct slot_value, slots, SLOTS_ENTRIES, PINNED("slots"),
		 BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("hash", struct backend_key, struct backend_value, backends, BACKENDS_ENTRIES,
		 PINNED("backends"), BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("hash", struct membership_key, struct membership_value, membership,
		 MEMBERSHIP_ENTRIES, PINNED("membership"), BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("lru_hash", struct affinity_key, struct affinity_value, affinity, AFFINITY_ENTRIES,
		 PINNED("affinity"), 0);
BPF_TABLE_PINNED("array", __u32, struct owner_value, owners, CONNECTIONS_ENTRIES, PINNED("owners"),
		 0);
BPF_TABLE_PINNED("array", __u32, struct translation, connections, CONNECTIONS_ENTRIES,
		 PINNED("connections"), 0);
BPF_TABLE_PINNED("lru_hash", struct udp_conn_key, struct udp_conn_value, udp_conn, UDP_CONN_ENTRIES,
		 PINNED("udp_conn"), 0);
BPF_TABLE_PINNED("hash", struct local_addr_key, struct local_addr_value, local_addr,
		 LOCAL_ADDR_ENTRIES, PINNED("local_addr"), BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("array", __u32, struct config_value, config, CONFIG_ENTRIES, PINNED("config"), 0);
BPF_TABLE_PINNED("percpu_array", __u32, __u64, stats, STATS_ENTRIES, PINNED("stats"), 0);
BPF_TABLE_PINNED("percpu_array", __u32, __u64, packet_stats, PACKET_STATS_ENTRIES,
		 PINNED("packet_stats"), 0);
BPF_TABLE_PINNED("lru_hash", struct flow_key, struct flow_value, flows, FLOWS_ENTRIES,
		 PINNED("flows"), 0);
BPF_TABLE_PINNED("lru_hash", struct fragment_key, struct fragment_value, fragments,
		 FRAGMENTS_ENTRIES, PINNED("fragments"), 0);
BPF_TABLE_PINNED("lpm_trie", struct source_range_key, struct source_range_value, source_ranges,
		 SOURCE_RANGES_ENTRIES, PINNED("source_ranges"), BPF_F_NO_PREALLOC);
BPF_TABLE_PINNED("lru_hash", struct wanted_key, struct wanted_value, wanted, WANTED_ENTRIES,
		 PINNED("wanted"), 0);
BPF_TABLE_PINNED("lru_percpu_hash", struct choice_key, __u64, choices, CHOICES_ENTRIES,
		 PINNED("choices"), 0);
BPF_TABLE_PINNED("hash", struct name_key, struct name_value, names, NAMES_ENTRIES, PINNED("names"),
		 BPF_F_NO_PREALLOC);

/* BCC's BPF_SK_STORAGE, but pinned: records must survive a change of programs. */
struct sock_table_t {
	int key;
	struct sock_value leaf;
	void *(*sk_storage_get)(void *, void *, int);
	int (*sk_storage_delete)(void *);
	u32 flags;
};
__attribute__((section("maps/sk_storage:" PINNED("sock")))) struct sock_table_t sock = {
	.flags = BPF_F_NO_PREALLOC};
BPF_ANNOTATE_KV_PAIR(sock, int, struct sock_value);

#endif
