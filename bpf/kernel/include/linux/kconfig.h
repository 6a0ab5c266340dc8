/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* BCC includes this file first; its presence makes this folder a kernel source tree to BCC. */
#ifndef KBPF_KERNEL_KCONFIG_H
#define KBPF_KERNEL_KCONFIG_H

#define CONFIG_BPF_SYSCALL 1
#define CONFIG_64BIT 1
#define CONFIG_NET 1

#endif
