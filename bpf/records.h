/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a socket remembers of its translations: one record for connect(), a ring
 * for datagrams with an address. Records reverse addresses in replies, and keep
 * the datagrams of one socket with one backend, as conntrack would.
 *
 * A TCP connection's record stands in a table of slots, and so does the record of
 * the first frontend that a UDP socket sends to, because storage in the socket
 * costs more than all the rest of a call. Cookies count up, so slots are taken in
 * turn; a socket whose slot still belongs to a living one, or which sends to more
 * frontends, has its records in its own storage.
 *
 * Two threads may write one socket's ring at the same time. A record is without
 * a backend id while it is written, and whoever reuses its choice compares it
 * with the backend of that id: half a record is no record.
 */
#ifndef KBPF_RECORDS_H
#define KBPF_RECORDS_H

#include "lb.h"

#define CONNECTED 1 /* TCP_ESTABLISHED, which a connected UDP socket has too */
#define IDLE_MS 120000 /* conntrack's memory of an assured UDP stream */

enum call {
	CALL_CONNECT,
	CALL_SENDMSG,
};

static __always_inline __u32 now_ms(void)
{
	return bpf_ktime_get_ns() / 1000000;
}

static __always_inline bool is_for(const struct translation *record, const struct frontend_key *to)
{
	return record->backend_id && record->frontend_port == to->port &&
	       same_address(&record->frontend_address, &to->address);
}

static __always_inline bool leads_to(const struct translation *record,
				     const struct frontend_key *from)
{
	return record->backend_id && record->backend_port == from->port &&
	       same_address(&record->backend_address, &from->address);
}

static __always_inline struct translation *
find_unconnected(struct translation *first, struct sock_value *state, const struct frontend_key *to)
{
	if (first && is_for(first, to))
		return first;
	if (!state)
		return NULL;
#pragma unroll
	for (int i = 0; i < UNCONNECTED_RECORDS; i++)
		if (is_for(&state->unconnected[i], to))
			return &state->unconnected[i];
	return NULL;
}

static __always_inline void write_record(struct translation *record, const struct frontend_key *to,
					 __u32 service_id, const struct backend_value *backend)
{
	record->backend_id = 0;
	barrier();
	record->frontend_address = to->address;
	record->frontend_port = to->port;
	record->backend_address = backend->address;
	record->backend_port = backend->port;
	record->service_id = service_id;
	/* Nobody asks it of a connection, and the time costs. */
	record->last_used_ms = to->protocol == TCP ? 0 : now_ms();
	barrier();
	record->backend_id = backend->id;
}

static __always_inline __u32 slot_of(__u64 socket_cookie)
{
	return socket_cookie % CONNECTIONS_ENTRIES;
}

/* The record in the socket's slot, which is taken for it if it is free; NULL: it is another's. */
static __always_inline struct translation *take_record(struct bpf_sock_addr *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	__u32 slot = slot_of(cookie);
	struct owner_value *owner = owners.lookup(&slot);
	struct translation *record = connections.lookup(&slot);
	bool is_free, is_ours;

	if (!owner || !record)
		return NULL;
	bpf_spin_lock(&owner->lock);
	is_free = !owner->socket_cookie;
	is_ours = is_free || owner->socket_cookie == cookie;
	if (is_ours)
		owner->socket_cookie = cookie;
	bpf_spin_unlock(&owner->lock);
	if (is_free)
		record->backend_id = 0;
	return is_ours ? record : NULL;
}

static __always_inline struct translation *own_record(struct bpf_sock_addr *ctx)
{
	__u64 cookie = bpf_get_socket_cookie(ctx);
	__u32 slot = slot_of(cookie);
	struct owner_value *owner = owners.lookup(&slot);

	return owner && owner->socket_cookie == cookie ? connections.lookup(&slot) : NULL;
}

static __always_inline void forget_connection(__u64 socket_cookie)
{
	__u32 slot = slot_of(socket_cookie);
	struct owner_value *owner = owners.lookup(&slot);

	if (owner && owner->socket_cookie == socket_cookie)
		owner->socket_cookie = 0;
}

/* What a connected socket was translated from; NULL: it never was. */
static __always_inline struct translation *connected_record(struct bpf_sock_addr *ctx)
{
	struct translation *record = ctx->protocol == TCP ? own_record(ctx) : NULL;
	struct sock_value *state;

	if (record)
		return record;
	state = sock.sk_storage_get(ctx->sk, 0, 0);
	return state ? &state->connected : NULL;
}

static __always_inline struct udp_conn_key udp_conn_of(struct bpf_sock_addr *ctx)
{
	struct udp_conn_key key = {
		.netns_cookie = bpf_get_netns_cookie(ctx),
		.socket_cookie = bpf_get_socket_cookie(ctx),
	};

	return key;
}

static __always_inline bool remember_connected(struct bpf_sock_addr *ctx,
					       const struct frontend_key *to, __u32 service_id,
					       const struct backend_value *backend)
{
	struct udp_conn_value row = {
		.frontend_address = to->address,
		.backend_address = backend->address,
		.frontend_port = to->port,
		.backend_port = backend->port,
	};
	struct translation *record = to->protocol == TCP ? take_record(ctx) : NULL;
	struct sock_value *state;
	struct udp_conn_key key;

	if (record) {
		write_record(record, to, service_id, backend);
		return true;
	}
	state = sock.sk_storage_get(ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!state)
		return false;
	if (to->protocol == UDP) {
		key = udp_conn_of(ctx);
		if (udp_conn.update(&key, &row))
			return false;
	}
	write_record(&state->connected, to, service_id, backend);
	return true;
}

static __always_inline bool remember_unconnected(struct bpf_sock_addr *ctx,
						 const struct frontend_key *to, __u32 service_id,
						 const struct backend_value *backend)
{
	struct sock_value *state = sock.sk_storage_get(ctx->sk, 0, 0);
	struct translation *first = take_record(ctx);
	struct translation *record = find_unconnected(first, state, to);

	if (!record && first && !first->backend_id)
		record = first;
	if (!record) {
		state = sock.sk_storage_get(ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
		if (!state)
			return false;
		record = &state->unconnected[state->next % UNCONNECTED_RECORDS];
		state->next++;
	}
	write_record(record, to, service_id, backend);
	return true;
}

static __always_inline bool remember(struct bpf_sock_addr *ctx, const struct frontend_key *to,
				     enum call call, __u32 service_id,
				     const struct backend_value *backend)
{
	return call == CALL_CONNECT ? remember_connected(ctx, to, service_id, backend)
				    : remember_unconnected(ctx, to, service_id, backend);
}

static __always_inline bool is_usable(const struct translation *record,
				      const struct frontend_value *frontend,
				      struct backend_value *backend)
{
	struct service_value service;

	return record->service_id == frontend->service_id &&
	       read_service(frontend->service_id, &service) &&
	       may_stay(&service, frontend->internal_view, record->backend_id) &&
	       read_backend(record->backend_id, backend) && backend->port == record->backend_port &&
	       same_address(&backend->address, &record->backend_address);
}

/*
 * The backend that this socket's datagrams to the frontend already go to. A
 * connected socket hears its peer only, so a datagram that it sends to the same
 * frontend by address must go to that peer.
 */
static __always_inline bool recall(struct bpf_sock_addr *ctx, const struct frontend_key *to,
				   const struct frontend_value *frontend,
				   struct backend_value *backend)
{
	struct sock_value *state = sock.sk_storage_get(ctx->sk, 0, 0);
	struct translation *record;
	__u32 now = now_ms();

	if (state && ctx->sk->state == CONNECTED && is_for(&state->connected, to))
		return is_usable(&state->connected, frontend, backend);
	record = find_unconnected(own_record(ctx), state, to);
	if (!record || now - record->last_used_ms > IDLE_MS)
		return false;
	if (!is_usable(record, frontend, backend))
		return false;
	record->last_used_ms = now;
	return true;
}

/* The socket connects to something else: the old peer is no service's any more. */
static __always_inline void forget_connected(struct bpf_sock_addr *ctx)
{
	struct sock_value *state = sock.sk_storage_get(ctx->sk, 0, 0);
	struct udp_conn_key key;

	if (ctx->protocol == TCP)
		forget_connection(bpf_get_socket_cookie(ctx));
	if (!state || !state->connected.backend_id)
		return;
	state->connected.backend_id = 0;
	if (ctx->protocol == UDP) {
		key = udp_conn_of(ctx);
		udp_conn.delete(&key);
	}
}

/* A datagram straight to a backend: its answers are from that backend, not from a frontend. */
static __always_inline void forget_unconnected(struct bpf_sock_addr *ctx,
					       const struct frontend_key *to)
{
	struct sock_value *state = sock.sk_storage_get(ctx->sk, 0, 0);
	struct translation *first = own_record(ctx);

	if (first && leads_to(first, to))
		first->backend_id = 0;
	if (!state)
		return;
	if (ctx->sk->state != CONNECTED && leads_to(&state->connected, to))
		forget_connected(ctx);
#pragma unroll
	for (int i = 0; i < UNCONNECTED_RECORDS; i++)
		if (leads_to(&state->unconnected[i], to))
			state->unconnected[i].backend_id = 0;
}

static __always_inline void forget(struct bpf_sock_addr *ctx, const struct frontend_key *to,
				   enum call call)
{
	if (call == CALL_CONNECT)
		forget_connected(ctx);
	else
		forget_unconnected(ctx, to);
}

static __always_inline void frontend_of(const struct translation *record, struct frontend_key *from)
{
	from->address = record->frontend_address;
	from->port = record->frontend_port;
}

/* Puts the frontend in the place of the backend `from` that a connected socket names. */
static __always_inline bool reverse_connected(struct bpf_sock_addr *ctx, struct frontend_key *from)
{
	struct translation *record = connected_record(ctx);

	if (!record || !leads_to(record, from))
		return false;
	frontend_of(record, from);
	return true;
}

static __always_inline struct translation *newest_unconnected(struct sock_value *state,
							      const struct frontend_key *from,
							      struct translation *newest)
{
#pragma unroll
	for (int i = 0; i < UNCONNECTED_RECORDS; i++) {
		struct translation *record = &state->unconnected[i];

		if (leads_to(record, from) &&
		    (!newest || (__s32)(record->last_used_ms - newest->last_used_ms) >= 0))
			newest = record;
	}
	return newest;
}

/* The same for the sender of a datagram; of two frontends with one backend the last used wins. */
static __always_inline bool reverse_datagram(struct bpf_sock_addr *ctx, struct frontend_key *from)
{
	struct sock_value *state = sock.sk_storage_get(ctx->sk, 0, 0);
	struct translation *newest = own_record(ctx);

	if (state && leads_to(&state->connected, from)) {
		frontend_of(&state->connected, from);
		return true;
	}
	if (newest && !leads_to(newest, from))
		newest = NULL;
	if (state)
		newest = newest_unconnected(state, from, newest);
	if (!newest)
		return false;
	frontend_of(newest, from);
	newest->last_used_ms = now_ms();
	return true;
}

#endif
