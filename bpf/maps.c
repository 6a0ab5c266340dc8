/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The maps without a program: they are made in a tenth of the time that the programs
 * take, and user space fills them meanwhile.
 */
#include "maps.h"

/* Never loaded. Without any function BCC tells the kernel no types, and some maps need theirs. */
int no_program(void *ctx)
{
	return 0;
}
