package pgserver

import "syscall"

// processAttributes puts the server into a process group of its own, so that a
// terminal's Ctrl-C reaches only us, and has the kernel send it the signal of
// an immediate shutdown when we die without stopping it.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
