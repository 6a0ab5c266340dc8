/* The process that holds a pod's namespaces: it waits, reaps whoever is orphaned in the pod, and ends when asked. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

int main(void)
{
	sigset_t waited;
	int number;

	sigemptyset(&waited);
	sigaddset(&waited, SIGCHLD);
	sigaddset(&waited, SIGINT);
	sigaddset(&waited, SIGTERM);
	sigprocmask(SIG_BLOCK, &waited, NULL);
	while (sigwait(&waited, &number) == 0) {
		if (number != SIGCHLD)
			return EXIT_SUCCESS;
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
	return EXIT_FAILURE;
}
