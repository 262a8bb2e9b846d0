package child

import "syscall"

// Attributes returns the attributes Start asks for. onDeath is the signal the
// program gets when we die without stopping it.
func Attributes(onDeath syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: onDeath}
}
