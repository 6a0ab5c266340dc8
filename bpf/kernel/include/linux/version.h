/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Goes into a section that kernels since 5.0 ignore; any value that BCC accepts will do. */
#ifndef KBPF_KERNEL_VERSION_H
#define KBPF_KERNEL_VERSION_H

#define KERNEL_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + ((c) > 255 ? 255 : (c)))
#ifndef LINUX_VERSION_CODE
#define LINUX_VERSION_CODE KERNEL_VERSION(5, 10, 0)
#endif

#endif
