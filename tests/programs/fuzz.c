/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packet programs against packets by chance, in user space, under sanitizers.
 * What must hold of each packet:
 *
 *     what is not translated keeps every byte
 *     a translated packet has right checksums, if it came with right ones
 *     its backend is in the list of the view that counts
 *     the answer, and an error about the packet, come from the frontend
 *
 * Some packets are damaged or cut off: those must only do no harm. The run is
 * the same for the same seed.
 *
 *     fuzz SEED SECONDS
 */
#include <time.h>

#include "kernel.h"

#include "datagram.h"

#define PACKETS_A_WORLD 4000
#define LEAST_PACKETS (10 * PACKETS_A_WORLD) /* on a machine that is slow, too */

static __u64 reasons[REASON_COUNT];

static void expect(bool holds, const char *what)
{
	if (!holds)
		fail(what);
}

static __u64 counted(__u32 reason)
{
	return *packet_stats.lookup(&reason);
}

/* How it ended; REASON_COUNT: without a count. */
static enum reason run(int (*program)(struct __sk_buff *), struct made *made, int *verdict,
		       __u32 *mark)
{
	__u64 before[REASON_COUNT];
	struct __sk_buff skb = {.len = made->length,
				.protocol = htons(made->is_ipv4 ? ETH_P_IP : ETH_P_IPV6),
				.vlan_present = by_chance(2),
				.vlan_tci = below(2),
				.ifindex = 1};
	enum reason reason = REASON_COUNT;

	for (__u32 i = 0; i < REASON_COUNT; i++)
		before[i] = counted(i);
	skb.bytes = allocate(made->length);
	memcpy(skb.bytes, made->bytes, made->length);
	skb.data = (__u64)skb.bytes;
	/* What lies in pieces ends early. */
	skb.data_end = skb.data + (by_chance(80) ? made->length : below(made->length));
	*verdict = program(&skb);
	*mark = skb.mark;
	memcpy(made->bytes, skb.bytes, made->length);
	free(skb.bytes);
	end_of_run();
	for (__u32 i = 0; i < REASON_COUNT; i++) {
		if (counted(i) == before[i])
			continue;
		expect(reason == REASON_COUNT && counted(i) == before[i] + 1,
		       "one reason a packet");
		reason = i;
		reasons[i]++;
	}
	return reason;
}

static bool rewrites(enum reason reason)
{
	return is_translated(reason) || reason == REASON_ERROR_TRANSLATED ||
	       reason == REASON_REVERSED || reason == REASON_HALF_TRANSLATED;
}

static void judge_backend(const struct made *before, enum reason reason)
{
	struct flow_key key = {before->ends.source,	 before->ends.destination,
			       before->ends.source_port, before->ends.destination_port,
			       before->protocol,	 FLOW_FROM_CLIENT};
	struct flow_value *flow = flows.lookup(&key);
	struct model *model;

	expect(flow, "a translated packet has a row");
	if (reason == REASON_REJECTED || !flow->backend_id)
		return;
	model = &models[flow->service_id - 1];
	if (is_in_view(model, flow->view, flow->backend_id))
		return;
	expect(reason == REASON_REMEMBERED &&
		       (before->protocol == TCP || serves(model, flow->view, flow->backend_id)),
	       "the backend is in the list, or keeps what it has");
}

static void judge_error(const struct made *translated, const struct ends *known)
{
	struct address router = address_of(translated->is_ipv4, NET_NODE, 1);
	struct made error = make_error(translated, &router), before = error;
	struct ends seen;
	int verdict;
	__u32 mark;

	if (run(tc_egress, &error, &verdict, &mark) != REASON_ERROR_TRANSLATED) {
		expect(!memcmp(error.bytes, before.bytes, before.length),
		       "an error keeps its bytes");
		return;
	}
	expect(is_right(&error, error.network, error.transport, error.protocol),
	       "an error's checksums");
	error.network = error.quoted;
	error.transport = error.quoted + (translated->transport - translated->network);
	expect(is_right(&error, error.network, error.transport, translated->protocol),
	       "a quoted packet's checksums");
	seen = ends_of(&error);
	expect(!memcmp(&seen, known, sizeof(seen)), "an error speaks of the packet that was sent");
}

static void judge_answer(const struct made *translated, const struct ends *known)
{
	struct ends there = ends_of(translated), back = swapped(&there), expected = swapped(known);
	struct ends seen;
	struct made answer =
		make_packet(translated->is_ipv4, translated->protocol, TCP_SYN | TCP_ACK, &back);
	int verdict;
	__u32 mark;

	if (answer.is_first_fragment || answer.is_later_fragment)
		return;
	if (run(tc_egress, &answer, &verdict, &mark) != REASON_REVERSED)
		return; /* tagged for a VLAN */
	expect(is_right(&answer, answer.network, answer.transport, answer.protocol),
	       "an answer's checksums");
	seen = ends_of(&answer);
	expect(!memcmp(&seen, &expected, sizeof(seen)), "an answer comes from the frontend");
}

static struct ends some_ends(bool is_ipv4)
{
	static const __u16 ports[] = {80, 30080, 8080, 8081, 53};
	bool to_node = by_chance(30);
	struct ends ends = {
		.source = address_of(is_ipv4, by_chance(70) ? NET_CLIENTS : NET_PODS, below(4)),
		.destination = address_of(is_ipv4, to_node ? NET_NODE : NET_SERVICES,
					  to_node ? 1 : below(SERVICES + 1)),
		.source_port = htons(40000 + below(4)),
		.destination_port = htons(ports[below(5)]),
	};

	return ends;
}

static struct made some_packet(void)
{
	static const __u8 flags[] = {TCP_SYN, TCP_SYN, TCP_ACK, TCP_ACK | TCP_FIN, TCP_RESET};
	struct model *model = &models[below(SERVICES)];
	struct ends ends = some_ends(model->is_ipv4);

	if (by_chance(60)) {
		ends.destination = address_of(model->is_ipv4, NET_SERVICES, model->id - 1);
		ends.destination_port = htons(80);
	}
	return make_packet(model->is_ipv4, by_chance(90) ? model->protocol : TCP, flags[below(5)],
			   &ends);
}

/* Bytes that no sender made, or fewer of them. */
static void damage(struct made *made)
{
	for (__u32 i = below(4); i; i--)
		made->bytes[below(made->length)] = draw();
	if (by_chance(50))
		made->length = 1 + below(made->length);
}

static void damaged_packet(void)
{
	int (*programs[])(struct __sk_buff *) = {tc_ingress, tc_egress, tc_ingress_raw,
						 tc_ingress_bridge, tc_ingress_pods};
	struct made made = some_packet();
	struct address router = address_of(made.is_ipv4, NET_CLIENTS, 1);
	struct made error = make_error(&made, &router), before;
	int verdict;
	__u32 mark;

	if (by_chance(50))
		made = error;
	damage(&made);
	before = made;
	if (!rewrites(run(programs[below(5)], &made, &verdict, &mark)))
		expect(!memcmp(made.bytes, before.bytes, before.length), "bytes stay");
}

static void sound_packet(void)
{
	struct made made = some_packet(), before = made;
	enum reason reason;
	int verdict;
	__u32 mark;

	reason = run(tc_ingress, &made, &verdict, &mark);
	expect(verdict == NEXT || verdict == DROP ||
		       (verdict == REDIRECT && reason == REASON_OVERTOOK),
	       "a verdict");
	expect(reason != REASON_HALF_TRANSLATED, "whole packets are translated wholly");
	if (!rewrites(reason)) {
		expect(!memcmp(made.bytes, before.bytes, before.length), "bytes stay");
		return;
	}
	expect(mark == 0 || mark == MARK, "a mark");
	if (made.is_later_fragment)
		return;
	if (!made.is_first_fragment)
		expect(is_right(&made, made.network, made.transport, made.protocol), "checksums");
	judge_backend(&before, reason);
	if (made.is_first_fragment)
		return;
	made.ends = ends_of(&made);
	judge_error(&made, &before.ends);
	judge_answer(&made, &before.ends);
}

static void some_change(void)
{
	now_ns += 1000000000ULL * below(8);
	if (by_chance(30))
		change_service(&models[below(SERVICES)]);
}

/* Each backend gets its share: the chi-square of 10 backends stays below its 0.999999 quantile. */
static void judge_balance(void)
{
	struct model *model = &models[0];
	struct frontend_value frontend = {.service_id = model->id, .protocol = model->protocol};
	struct caller caller = {.view = VIEW_CLUSTER};
	struct backend_value backend;
	__u32 shares[MOST_BACKENDS] = {}, draws = 100000;
	double expected, square = 0;

	model->count[VIEW_CLUSTER] = MOST_BACKENDS;
	for (__u32 i = 0; i < MOST_BACKENDS; i++)
		model->members[VIEW_CLUSTER][i] = model->id * 100 + i;
	model->generation++;
	put_generation(model);
	for (__u32 i = 0; i < draws; i++) {
		expect(select_backend(&frontend, &caller, &backend) == REASON_CHOSEN, "a choice");
		shares[backend.id - model->id * 100]++;
	}
	expected = (double)draws / MOST_BACKENDS;
	for (__u32 i = 0; i < MOST_BACKENDS; i++)
		square += (shares[i] - expected) * (shares[i] - expected) / expected;
	expect(square < 40, "an even balance");
}

/* Within the timeout the same backend, as long as it is a member; afterwards it is forgotten. */
static void judge_affinity(void)
{
	struct model *model = &models[2];
	struct frontend_value frontend = {.service_id = model->id, .protocol = model->protocol};
	struct caller caller = {.client = address_of(true, NET_CLIENTS, 9), .view = VIEW_CLUSTER};
	struct backend_value first, next;
	__u32 others = 0;

	model->count[VIEW_CLUSTER] = MOST_BACKENDS;
	for (__u32 i = 0; i < MOST_BACKENDS; i++)
		model->members[VIEW_CLUSTER][i] = model->id * 100 + i;
	model->generation++;
	put_generation(model);
	select_backend(&frontend, &caller, &first);
	for (__u32 i = 0; i < 50; i++, now_ns += 60000000000ULL) {
		expect(select_backend(&frontend, &caller, &next) == REASON_AFFINITY, "affinity");
		expect(next.id == first.id, "the same backend");
	}
	for (__u32 i = 0; i < 50; i++) {
		now_ns += 60000000001ULL;
		expect(select_backend(&frontend, &caller, &next) == REASON_CHOSEN, "a new choice");
		others += next.id != first.id;
	}
	expect(others, "affinity ends");
	model->count[VIEW_CLUSTER] = 1;
	model->members[VIEW_CLUSTER][0] = model->id * 100 + (next.id + 1) % 100 % MOST_BACKENDS;
	model->generation++;
	put_generation(model);
	expect(select_backend(&frontend, &caller, &first) == REASON_CHOSEN,
	       "who left is not chosen");
	expect(first.id == model->members[VIEW_CLUSTER][0], "who stays is");
}

int main(int argc, char **argv)
{
	time_t ends;
	__u64 packets = 0;

	if (argc != 3)
		fail("fuzz SEED SECONDS");
	random_state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ULL | 1;
	ends = time(NULL) + atoi(argv[2]);
	do {
		make_world();
		judge_balance();
		judge_affinity();
		make_world();
		for (int i = 0; i < PACKETS_A_WORLD; i++, packets++) {
			if (by_chance(5))
				some_change();
			if (by_chance(30))
				damaged_packet();
			else
				sound_packet();
		}
	} while (time(NULL) < ends || packets < LEAST_PACKETS);
	printf("packets %llu\n", (unsigned long long)packets);
	for (__u32 i = 0; i < REASON_COUNT; i++)
		printf("%u %llu\n", i, (unsigned long long)reasons[i]);
	return 0;
}
