/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Services and the node by chance, out of few addresses and ports, so that calls
 * meet them. The maps hold what user space would write; beside them stands a model
 * of the services, to tell a wrong choice. The programs stand before this file.
 */
#ifndef KBPF_TEST_WORLD_H
#define KBPF_TEST_WORLD_H

#include "lb.h"

#define SERVICES 6
#define MOST_BACKENDS 8
#define MARK 0x4000
#define MOST_BYTES 512
#define VIEWS 3 /* the last has no slots */

struct model {
	__u32 id, generation;
	__u8 protocol;
	bool is_ipv4;
	__u32 count[VIEWS]; /* by view */
	__u32 members[VIEWS][MOST_BACKENDS];
};

static struct model models[SERVICES];

static __u32 below(__u32 limit)
{
	return draw() % limit;
}

static bool by_chance(__u32 percent)
{
	return below(100) < percent;
}

static struct address address_of(bool is_ipv4, __u8 net, __u8 host)
{
	struct address address = {};

	if (is_ipv4)
		return mapped(htonl(10 << 24 | net << 8 | host));
	address.word[0] = htonl(0xfd000000);
	address.word[1] = htonl(net);
	address.word[3] = htonl(host);
	return address;
}

enum net {
	NET_SERVICES = 1,
	NET_PODS = 2,
	NET_CLIENTS = 3,
	NET_NODE = 4,
};

static void put_generation(struct model *model)
{
	struct service_value service = {.generation = model->generation,
					.n_cluster = model->count[VIEW_CLUSTER],
					.n_local = model->count[VIEW_LOCAL],
					.id = model->id,
					.affinity_timeout_s = model->id % 3 ? 0 : 60};
	struct service_key service_key = {.id = model->id};

	for (__u32 view = 0; view < VIEWS; view++) {
		for (__u32 i = 0; i < model->count[view]; i++) {
			__u32 id = model->members[view][i];
			struct slot_key slot_key = {model->id, model->generation, view, i};
			struct membership_key key = {model->id, id, view};
			struct membership_value *known = membership.lookup(&key);
			struct membership_value member = {model->generation, model->generation,
							  model->id, id};
			struct backend_key backend_key = {.id = id};
			struct backend_value backend = {
				.address = address_of(model->is_ipv4, NET_PODS, id % 16),
				.port = htons(8080 + id % 2),
				.protocol = model->protocol,
				.id = id};
			struct slot_value slot = {
				model->id,
				model->generation,
				id,
				{backend.address, backend.port, backend.protocol}};

			if (known && known->last_generation == model->generation - 1)
				member.first_generation = known->first_generation;
			backends.update(&backend_key, &backend);
			if (view != VIEW_KEPT)
				slots.update(&slot_key, &slot);
			membership.update(&key, &member);
		}
	}
	services.update(&service_key, &service);
}

static void choose_members(struct model *model)
{
	model->count[VIEW_CLUSTER] = below(MOST_BACKENDS + 1);
	model->count[VIEW_LOCAL] = 0;
	for (__u32 i = 0; i < model->count[VIEW_CLUSTER]; i++) {
		__u32 id = model->id * 100 + i;

		model->members[VIEW_CLUSTER][i] = id;
		if (by_chance(50))
			model->members[VIEW_LOCAL][model->count[VIEW_LOCAL]++] = id;
	}
	model->count[VIEW_KEPT] = 0;
	for (__u32 i = model->count[VIEW_CLUSTER]; model->protocol == UDP && i < MOST_BACKENDS; i++)
		if (by_chance(30))
			model->members[VIEW_KEPT][model->count[VIEW_KEPT]++] = model->id * 100 + i;
}

static bool is_in_view(const struct model *model, __u32 view, __u32 id)
{
	for (__u32 i = 0; i < model->count[view]; i++)
		if (model->members[view][i] == id)
			return true;
	return false;
}

/* Who has a UDP flow keeps it as long as it serves. */
static bool serves(const struct model *model, __u32 view, __u32 id)
{
	return is_in_view(model, view, id) || is_in_view(model, VIEW_CLUSTER, id) ||
	       is_in_view(model, VIEW_KEPT, id);
}

static __u8 some_flags(void)
{
	static const __u8 deferrals[] = {FRONTEND_DEFER_PACKETS, FRONTEND_DEFER_SOCKETS,
					 FRONTEND_DEFER_PACKETS | FRONTEND_DEFER_SOCKETS};

	if (by_chance(15))
		return deferrals[below(3)];
	return by_chance(20) ? FRONTEND_SOURCE_RANGES : 0;
}

static void put_frontend(struct model *model, __u8 kind, struct address address, __be16 port)
{
	struct frontend_key key = {address, port, model->protocol};
	struct frontend_value frontend = {
		.address = address,
		.port = port,
		.protocol = model->protocol,
		.kind = kind,
		.service_id = model->id,
		.flags = some_flags(),
		.internal_view = below(2),
		.internal_verdict = below(2),
		.external_view = below(2),
		.external_verdict = below(2),
	};

	frontends.update(&key, &frontend);
}

static void put_node(void)
{
	__u32 zero = 0;
	struct config_value node = {
		.node_address4 = address_of(true, NET_NODE, 1),
		.node_address6 = address_of(false, NET_NODE, 1),
		.flags = below(16),
		.masquerade_mark = MARK,
		.udp_timeout_s = 30,
		.udp_stream_timeout_s = 120,
	};

	config.update(&zero, &node);
	for (int family = 0; family < 2; family++) {
		struct local_addr_key key = {address_of(family, NET_NODE, 1)};
		struct local_addr_value flags = {by_chance(80) ? LOCAL_NODE_PORT : 0};
		struct source_range_key pods = {.prefix_length = 32 + 96 + 24,
						.address = address_of(family, NET_PODS, 0)};
		struct source_range_value range = {};

		local_addr.update(&key, &flags);
		source_ranges.update(&pods, &range);
	}
}

static void put_service(__u32 number)
{
	static const __u8 kinds[] = {KIND_CLUSTER_IP, KIND_EXTERNAL_IP, KIND_LOAD_BALANCER_IP};
	struct model *model = &models[number];
	struct source_range_key range = {.prefix_length = 32 + 128 - below(4),
					 .service_id = number + 1};
	struct source_range_value value = {.service_id = number + 1};

	model->id = number + 1;
	model->generation = 1;
	model->protocol = number % 2 ? UDP : TCP;
	model->is_ipv4 = number % 3;
	choose_members(model);
	put_generation(model);
	put_frontend(model, kinds[below(3)], address_of(model->is_ipv4, NET_SERVICES, number),
		     htons(80));
	if (by_chance(50))
		put_frontend(model, KIND_NODE_PORT, model->is_ipv4 ? mapped(0) : (struct address){},
			     htons(30080));
	range.address = address_of(model->is_ipv4, NET_CLIENTS, below(4));
	source_ranges.update(&range, &value);
}

/* The next generation; the one before it may be swept already. */
static void change_service(struct model *model)
{
	struct slot_key key = {model->id, model->generation, 0, 0};

	model->generation++;
	choose_members(model);
	put_generation(model);
	if (by_chance(50))
		return;
	for (; key.view < 2; key.view++)
		for (key.position = 0; key.position < MOST_BACKENDS; key.position++)
			slots.delete(&key);
}

static void make_world(void)
{
	struct table *tables[] = {&frontends_table,  &services_table,	   &slots_table,
				  &backends_table,   &membership_table,	   &affinity_table,
				  &local_addr_table, &config_table,	   &flows_table,
				  &fragments_table,  &source_ranges_table, &wanted_table};

	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		clear(tables[i]);
	put_node();
	for (__u32 number = 0; number < SERVICES; number++)
		put_service(number);
}

/* A grace period is over: nobody holds a pointer any more. */
static void end_of_run(void)
{
	struct table *tables[] = {&flows_table, &slots_table, &affinity_table, &fragments_table};

	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		free_dead(tables[i]);
}

#endif
