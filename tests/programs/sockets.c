/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket hooks against calls by chance, in user space, under sanitizers. What
 * must hold of each call:
 *
 *     a call is never refused without an errno, and that is ECONNREFUSED
 *     what is not translated keeps every byte
 *     a translated call goes to a backend of the list, or to one that it may keep
 *     the peer's name, and the sender of an answer, are the frontend
 *     datagrams of one socket to one frontend stay with one backend
 *     a socket that is closed leaves no row and no slot behind
 *
 * The run is the same for the same seed.
 *
 *     sockets SEED SECONDS
 */
#include <time.h>

#include "socket.h"

#include "sock.c"

#include "world.h"

#define SOCKETS 12
#define CALLS_A_WORLD 4000
#define LEAST_CALLS (20 * CALLS_A_WORLD) /* on a machine that is slow, too */
#define SENT 4 /* fewer than a socket remembers */

static __u64 reasons[REASON_COUNT];

/* A datagram's way, as the application knows it. */
struct sent {
	struct frontend_key to;
	struct frontend_key backend;
	__u32 generation;
	__u64 at_ns;
};

struct peer {
	struct socket socket;
	bool is_connected;
	struct frontend_key frontend, backend; /* of the connection, if it was translated */
	bool is_translated;
	struct sent sent[SENT];
	__u32 count;
};

static struct peer peers[SOCKETS];
static __u64 last_cookie;

static void expect(bool holds, const char *what)
{
	if (!holds)
		fail(what);
}

static void *get_storage(void *sk, void *initial, int flags)
{
	struct socket *socket = (struct socket *)sk;

	(void)initial;
	if (!socket->storage && (flags & BPF_SK_STORAGE_GET_F_CREATE) && has_memory)
		socket->storage = allocate(sizeof(struct sock_value));
	return socket->storage;
}

static bool same_key(const struct frontend_key *a, const struct frontend_key *b)
{
	return !memcmp(a, b, sizeof(*a));
}

/* ---- one call of a hook */

struct call_made {
	struct frontend_key left_for; /* where the call goes, after the hook */
	enum reason reason;
	bool is_refused;
};

static __u64 counted(__u32 reason)
{
	return *stats.lookup(&reason);
}

static struct bpf_sock_addr context(struct peer *peer, const struct frontend_key *key)
{
	struct bpf_sock_addr ctx = {
		.user_port = key->port, .protocol = key->protocol, .sk = &peer->socket.sk};

	if (peer->socket.is_ipv4)
		ctx.user_ip4 = key->address.word[3];
	else
		memcpy(ctx.user_ip6, &key->address, sizeof(key->address));
	return ctx;
}

static struct call_made call(int (*hook4)(struct bpf_sock_addr *),
			     int (*hook6)(struct bpf_sock_addr *), struct peer *peer,
			     const struct frontend_key *key)
{
	struct bpf_sock_addr ctx = context(peer, key);
	struct call_made made = {.reason = REASON_COUNT};
	__u64 before[REASON_COUNT];
	int verdict;

	for (__u32 i = 0; i < REASON_COUNT; i++)
		before[i] = counted(i);
	caller_socket = &peer->socket;
	chosen_errno = 0;
	verdict = peer->socket.is_ipv4 ? hook4(&ctx) : hook6(&ctx);
	expect(!is_locked, "a lock that is given back");
	for (__u32 i = 0; i < REASON_COUNT; i++) {
		if (counted(i) == before[i])
			continue;
		expect(made.reason == REASON_COUNT, "one reason a call");
		made.reason = i;
		reasons[i]++;
	}
	made.is_refused = verdict == FAIL;
	expect(verdict == PASS || chosen_errno == ECONNREFUSED, "no refusal without an errno");
	expect(made.is_refused == (made.reason == REASON_REJECTED), "a refusal has its reason");
	made.left_for = peer->socket.is_ipv4 ? address4(&ctx) : address6(&ctx);
	for (struct table **each = (struct table *[]){&slots_table, &affinity_table, NULL}; *each;
	     each++)
		free_dead(*each);
	return made;
}

/* ---- what must hold */

/* The model and id of the backend at an address; NULL: nobody's. */
static struct model *find_backend(const struct frontend_key *at, __u32 service_id, __u32 *id)
{
	struct model *model = service_id ? &models[service_id - 1] : NULL;

	for (__u32 i = 0; model && i < MOST_BACKENDS; i++) {
		struct backend_key key = {.id = service_id * 100 + i};
		struct backend_value *backend = backends.lookup(&key);

		*id = key.id;
		if (backend && backend->port == at->port && backend->protocol == at->protocol &&
		    same_address(&backend->address, &at->address))
			return model;
	}
	return NULL;
}

static void judge_choice(struct peer *peer, const struct frontend_key *to,
			 const struct call_made *made)
{
	struct frontend_key wanted = *to;
	struct frontend_value frontend;
	struct model *model;
	int local;
	__u32 id = 0;

	resolve_unspecified(&wanted.address);
	expect(find_frontend(&wanted, &frontend, &local, EXPECT_FRONTEND) == REASON_CHOSEN,
	       "a frontend");
	expect(!(frontend.flags & FRONTEND_DEFER_SOCKETS), "none that is left to others");
	expect(!(local & LOCAL_LOOPBACK) || local < 0 || frontend.kind != KIND_NODE_PORT ||
		       peer->socket.netns == HOST_NETNS,
	       "loopback is the node's alone");
	model = find_backend(&made->left_for, frontend.service_id, &id);
	expect(model, "a backend of the service");
	if (made->reason == REASON_REMEMBERED)
		expect(serves(model, frontend.internal_view, id), "a backend that serves");
	else
		expect(is_in_view(model, frontend.internal_view, id), "a backend of the list");
}

/* The application asks who its peer is. */
static void judge_name(struct peer *peer)
{
	struct frontend_key asked = peer->backend;
	struct call_made made = call(getpeername4, getpeername6, peer, &asked);

	expect(same_key(&made.left_for, &peer->frontend), "the peer's name is the frontend");
}

static void judge_answer(struct peer *peer, const struct frontend_key *to,
			 const struct frontend_key *from)
{
	struct call_made made = call(recvmsg4, recvmsg6, peer, from);

	expect(same_key(&made.left_for, to), "an answer comes from the frontend");
}

static struct sent *find_sent(struct peer *peer, const struct frontend_key *to)
{
	for (__u32 i = 0; i < peer->count; i++)
		if (same_key(&peer->sent[i].to, to))
			return &peer->sent[i];
	return NULL;
}

/* ---- calls */

static struct frontend_key some_destination(const struct peer *peer)
{
	static const __u16 ports[] = {80, 30080, 8080, 8081};
	static const enum net nets[] = {NET_SERVICES, NET_SERVICES, NET_SERVICES, NET_NODE,
					NET_PODS};
	enum net net = nets[below(5)];
	struct frontend_key key = {
		.address = address_of(peer->socket.is_ipv4, net,
				      net == NET_NODE ? 1 : below(SERVICES + 1)),
		.port = htons(net == NET_SERVICES && by_chance(80) ? 80 : ports[below(4)]),
		.protocol = peer->socket.sk.protocol,
	};

	if (by_chance(5))
		key.address = peer->socket.is_ipv4 ? mapped(0) : (struct address){};
	if (!peer->socket.is_ipv4 && by_chance(30)) /* IPv4 through a socket of IPv6 */
		key.address = address_of(true, net, below(SERVICES + 1));
	return key;
}

static struct frontend_key resolved(struct frontend_key key)
{
	resolve_unspecified(&key.address);
	return key;
}

static void connect_somewhere(struct peer *peer)
{
	struct frontend_key to = some_destination(peer);
	struct udp_conn_key row = {peer->socket.netns, peer->socket.cookie};
	struct call_made made = call(connect4, connect6, peer, &to);

	if (made.is_refused)
		return;
	peer->count = 0;
	peer->is_connected = true;
	peer->socket.sk.state = CONNECTED;
	peer->is_translated = is_translated(made.reason);
	if (!peer->is_translated) {
		expect(same_key(&made.left_for, &to), "bytes stay");
		expect(!udp_conn.lookup(&row), "no row of a peer that is none");
		return;
	}
	judge_choice(peer, &to, &made);
	peer->frontend = resolved(to);
	peer->backend = made.left_for;
	expect(to.protocol == TCP || udp_conn.lookup(&row), "a row by which the socket is ended");
	judge_name(peer);
}

static void send_somewhere(struct peer *peer)
{
	struct frontend_key to = some_destination(peer);
	struct sent *before;
	struct call_made made;

	if (peer->count && by_chance(40))
		to = peer->sent[below(peer->count)].to;
	made = call(sendmsg4, sendmsg6, peer, &to);
	if (made.is_refused)
		return;
	if (!is_translated(made.reason)) {
		expect(same_key(&made.left_for, &to), "bytes stay");
		peer->count = 0; /* its records may lead there */
		return;
	}
	judge_choice(peer, &to, &made);
	if (peer->is_connected)
		return;
	to = resolved(to);
	judge_answer(peer, &to, &made.left_for);
	before = find_sent(peer, &to);
	if (!before) {
		before = &peer->sent[peer->count < SENT ? peer->count++ : below(SENT)];
	} else if (now_ns - before->at_ns < IDLE_MS * 1000000ULL) {
		struct frontend_value frontend;
		int local;
		__u32 id;
		struct model *model;

		find_frontend(&to, &frontend, &local, EXPECT_FRONTEND);
		model = find_backend(&before->backend, frontend.service_id, &id);
		if (model && serves(model, frontend.internal_view, id))
			expect(same_key(&before->backend, &made.left_for),
			       "datagrams stay with a backend");
	}
	*before = (struct sent){.to = to, .backend = made.left_for, .at_ns = now_ns};
}

/* A datagram from somebody to whom the socket never sent. */
static void hear_a_stranger(struct peer *peer)
{
	struct frontend_key from = {.address =
					    address_of(peer->socket.is_ipv4, NET_CLIENTS, below(4)),
				    .port = htons(53),
				    .protocol = peer->socket.sk.protocol};
	struct call_made made = call(recvmsg4, recvmsg6, peer, &from);

	expect(made.reason == REASON_NOT_REVERSED && same_key(&made.left_for, &from),
	       "a stranger is one");
}

static void bind_somewhere(struct peer *peer)
{
	bool is_ipv4 = peer->socket.is_ipv4, is_any = by_chance(50);
	struct address any = {}, at = is_any ? (is_ipv4 ? mapped(0) : any)
					     : address_of(is_ipv4, NET_NODE, 1 + below(2));
	struct bpf_sock *sk = &peer->socket.sk;
	struct frontend_key node_port = {is_ipv4 ? mapped(0) : any, htons(30080), sk->protocol};
	struct frontend_key mapped_port = {mapped(0), htons(30080), sk->protocol};
	int local = local_flags(&at);
	bool is_held = frontends.lookup(&node_port) ||
		       (!is_ipv4 && is_any && frontends.lookup(&mapped_port));

	sk->src_port = 30080;
	sk->src_ip4 = at.word[3];
	memcpy(sk->src_ip6, &at, sizeof(at));
	caller_socket = &peer->socket;
	chosen_errno = 0;
	is_held &= peer->socket.netns == HOST_NETNS &&
		   (is_any || (local >= 0 && (local & LOCAL_NODE_PORT)));
	expect((is_ipv4 ? post_bind4 : post_bind6)(sk) == (is_held ? FAIL : PASS),
	       "a node port is held");
	expect(chosen_errno == (is_held ? EADDRINUSE : 0), "a port that is in use");
	reasons[REASON_PORT_HELD] += is_held;
}

static void close_socket(struct peer *peer)
{
	struct udp_conn_key row = {peer->socket.netns, peer->socket.cookie};

	caller_socket = &peer->socket;
	if (peer->socket.cookie)
		expect(sock_release(&peer->socket.sk) == PASS, "a socket may be closed");
	expect(!udp_conn.lookup(&row), "no row outlives its socket");
	for (__u32 slot = 0; peer->socket.cookie && slot < CONNECTIONS_ENTRIES; slot++)
		expect(owners.lookup(&slot)->socket_cookie != peer->socket.cookie,
		       "no slot outlives its socket");
	free(peer->socket.storage);
	*peer = (struct peer){};
}

static void open_socket(struct peer *peer)
{
	static const __u8 protocols[] = {TCP, TCP, UDP, UDP, UDP, 132};

	close_socket(peer);
	peer->socket.sk.protocol = protocols[below(6)];
	peer->socket.is_ipv4 = by_chance(50);
	peer->socket.cookie = ++last_cookie;
	peer->socket.netns = by_chance(50) ? HOST_NETNS : POD_NETNS;
}

static void some_call(struct peer *peer)
{
	__u32 protocol = peer->socket.sk.protocol;

	has_memory = by_chance(95);
	if (by_chance(15))
		open_socket(peer);
	else if (by_chance(10))
		bind_somewhere(peer);
	else if (protocol == UDP && by_chance(10))
		hear_a_stranger(peer);
	else if (protocol == UDP && by_chance(80))
		send_somewhere(peer);
	else if (protocol == UDP || !peer->is_connected)
		connect_somewhere(peer);
	else if (peer->is_translated)
		judge_name(peer);
}

static void new_world(void)
{
	struct table *tables[] = {&owners_table, &connections_table, &udp_conn_table};

	make_world();
	for (__u32 i = 0; i < SOCKETS; i++) {
		close_socket(&peers[i]);
		open_socket(&peers[i]);
	}
	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		clear(tables[i]);
}

int main(int argc, char **argv)
{
	time_t ends;
	__u64 calls = 0;

	if (argc != 3)
		fail("sockets SEED SECONDS");
	sock.sk_storage_get = get_storage;
	random_state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ULL | 1;
	ends = time(NULL) + atoi(argv[2]);
	do {
		new_world();
		for (int i = 0; i < CALLS_A_WORLD; i++, calls++) {
			now_ns += 1000000ULL * below(8000);
			if (by_chance(2))
				change_service(&models[below(SERVICES)]);
			some_call(&peers[below(SOCKETS)]);
		}
	} while (time(NULL) < ends || calls < LEAST_CALLS);
	printf("calls %llu\n", (unsigned long long)calls);
	for (__u32 i = 0; i < REASON_COUNT; i++)
		printf("%u %llu\n", i, (unsigned long long)reasons[i]);
	return 0;
}
