/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the socket hooks need of the kernel beyond "kernel.h": sockets with cookies
 * and storage of their own. One is the caller at a time. Storage is an allocation
 * that may be refused, so the sanitizer sees what outlives its socket.
 */
#ifndef KBPF_TEST_SOCKET_H
#define KBPF_TEST_SOCKET_H

#include "kernel.h"

#define BPF_SK_STORAGE_GET_F_CREATE 1
#define HOST_NETNS 7
#define POD_NETNS 8

struct bpf_sock {
	__u32 protocol;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port; /* host order */
	__u32 state;
};

struct bpf_sock_addr {
	__u32 user_ip4;
	__u32 user_ip6[4];
	__u32 user_port;
	__u32 protocol;
	struct bpf_sock *sk;
};

struct socket {
	struct bpf_sock sk;
	bool is_ipv4;
	__u64 cookie, netns;
	void *storage;
};

static struct socket *caller_socket;
static int chosen_errno;
static bool has_memory = true, is_locked;

static __u64 bpf_get_socket_cookie(void *ctx)
{
	return ctx ? caller_socket->cookie : 0;
}

static __u64 bpf_get_netns_cookie(void *ctx)
{
	return ctx ? caller_socket->netns : HOST_NETNS;
}

static int bpf_set_retval(int number)
{
	chosen_errno = -number;
	return 0;
}

static void bpf_spin_lock(struct bpf_spin_lock *lock)
{
	if (is_locked)
		fail("one lock at a time");
	is_locked = true;
	lock->value = 0;
}

static void bpf_spin_unlock(struct bpf_spin_lock *lock)
{
	if (!is_locked || lock->value)
		fail("a lock that is held");
	is_locked = false;
}

#endif
