// SPDX-License-Identifier: Apache-2.0
/*
 * The load generator of the benchmarks: one operation at a time, timed one by
 * one, on one CPU. A client in Python would cost more than what is measured.
 *
 *   load serve ADDRESS PORT              TCP and UDP, one byte back for each byte, until killed
 *   load MODE ADDRESS PORT COUNT         prints "operations failures p01 p50 p99", the last three in nanoseconds
 *
 * MODE: connect   open a TCP connection and reset it
 *       request   open, send a byte, wait for one, reset
 *       pingpong  a byte there and back on one open connection
 *       datagram  a new UDP socket, a byte there and back
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct target {
	struct sockaddr_storage address;
	socklen_t length;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct target parse(const char *address, const char *port)
{
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV}, *found;
	struct target target = {0};

	if (getaddrinfo(address, port, &hints, &found)) {
		fprintf(stderr, "%s port %s: not an address\n", address, port);
		exit(2);
	}
	memcpy(&target.address, found->ai_addr, found->ai_addrlen);
	target.length = found->ai_addrlen;
	freeaddrinfo(found);
	return target;
}

static int open_socket(const struct target *target, int type)
{
	int fd = socket(target->address.ss_family, type, 0);
	struct timeval patience = {.tv_sec = 2};

	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	return fd;
}

/* A reset instead of a FIN: no TIME_WAIT, so the ports do not run out. */
static void reset(int fd)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(fd);
}

static int exchange(int fd)
{
	char byte = 'k';

	return write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1;
}

static int connected(const struct target *target, int type)
{
	int fd = open_socket(target, type);

	if (!connect(fd, (const struct sockaddr *)&target->address, target->length))
		return fd;
	close(fd);
	return -1;
}

static int do_connect(const struct target *target)
{
	int fd = connected(target, SOCK_STREAM);

	if (fd < 0)
		return 0;
	reset(fd);
	return 1;
}

static int do_request(const struct target *target)
{
	int fd = connected(target, SOCK_STREAM), fine;

	if (fd < 0)
		return 0;
	fine = exchange(fd);
	reset(fd);
	return fine;
}

static int do_pingpong(const struct target *target)
{
	static int fd = -1;
	int on = 1;

	if (fd < 0) {
		fd = connected(target, SOCK_STREAM);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
	return fd >= 0 && exchange(fd);
}

static int do_datagram(const struct target *target)
{
	int fd = open_socket(target, SOCK_DGRAM), fine;
	char byte = 'k';

	fine = sendto(fd, &byte, 1, 0, (const struct sockaddr *)&target->address, target->length) == 1 &&
	       recvfrom(fd, &byte, 1, 0, NULL, NULL) == 1;
	close(fd);
	return fine;
}

static long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	long left = *(const long *)a, right = *(const long *)b;

	return (left > right) - (left < right);
}

static int measure(int (*operation)(const struct target *), const struct target *target, int count)
{
	long *took = calloc(count, sizeof(*took));
	int failures = 0, i;

	if (!took)
		die("calloc");
	for (i = 0; i < count; i++) {
		long start = now_ns();

		failures += !operation(target);
		took[i] = now_ns() - start;
	}
	qsort(took, count, sizeof(*took), by_value);
	printf("%d %d %ld %ld %ld\n", count, failures, took[count / 100], took[count / 2], took[count * 99L / 100]);
	free(took);
	return 0;
}

static void answer_datagrams(int fd)
{
	struct sockaddr_storage from;
	socklen_t length = sizeof(from);
	char byte;

	if (recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&from, &length) == 1)
		sendto(fd, &byte, 1, 0, (struct sockaddr *)&from, length);
}

/* One connection at a time is answered; the clients never open two. */
static _Noreturn void serve(const struct target *target)
{
	int listener = socket(target->address.ss_family, SOCK_STREAM, 0), on = 1;
	int datagrams = socket(target->address.ss_family, SOCK_DGRAM, 0);
	struct pollfd waiting[3] = {{.fd = listener, .events = POLLIN}, {.fd = datagrams, .events = POLLIN}, {.fd = -1}};

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(listener, (const struct sockaddr *)&target->address, target->length) ||
	    bind(datagrams, (const struct sockaddr *)&target->address, target->length) || listen(listener, 4096))
		die("bind");
	puts("ready");
	fflush(stdout);
	for (;;) {
		char byte;

		poll(waiting, 3, -1);
		if (waiting[0].revents) {
			if (waiting[2].fd >= 0)
				close(waiting[2].fd);
			waiting[2] = (struct pollfd){.fd = accept(listener, NULL, NULL), .events = POLLIN};
		} else if (waiting[2].revents) {
			if (read(waiting[2].fd, &byte, 1) != 1 || write(waiting[2].fd, &byte, 1) != 1) {
				close(waiting[2].fd);
				waiting[2].fd = -1;
			}
		}
		if (waiting[1].revents)
			answer_datagrams(datagrams);
	}
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*operation)(const struct target *);
	} modes[] = {
		{"connect", do_connect}, {"request", do_request}, {"pingpong", do_pingpong}, {"datagram", do_datagram}};
	struct target target;
	size_t i;

	if (argc < 4) {
		fprintf(stderr, "usage: load serve ADDRESS PORT | load MODE ADDRESS PORT COUNT\n");
		return 2;
	}
	target = parse(argv[2], argv[3]);
	if (!strcmp(argv[1], "serve"))
		serve(&target);
	for (i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(argv[1], modes[i].name) && argc == 5 && atoi(argv[4]) > 0)
			return measure(modes[i].operation, &target, atoi(argv[4]));
	fprintf(stderr, "load: unknown mode or count\n");
	return 2;
}
