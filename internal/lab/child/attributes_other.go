//go:build unix && !linux

package child

import "syscall"

// Attributes returns the attributes Start asks for. There is no parent death
// signal here: a program whose parent is killed with SIGKILL stays.
func Attributes(syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
