//go:build unix && !linux

package pgserver

import "syscall"

// processAttributes puts the server into a process group of its own, so that a
// terminal's Ctrl-C reaches only us. There is no parent death signal here: a
// server whose parent is killed with SIGKILL stays.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
