/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef KBPF_KERNEL_PAGE_H
#define KBPF_KERNEL_PAGE_H

#define PAGE_SIZE 4096

#endif
