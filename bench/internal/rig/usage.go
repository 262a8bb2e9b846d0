package rig

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Usage is a process's usage up to now.
type Usage struct {
	CPU       time.Duration // user and system, of all threads
	RSS, Peak float64       // resident memory now and at the peak, MiB
}

// measure reads a process's usage from Linux: the clock of the processor time
// (clock_getcpuclockid(3)), in nanoseconds, and /proc.
func measure(pid int) (u Usage, err error) {
	if u.CPU, err = processorTime(pid); err != nil {
		return u, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	if u.RSS, err = memory(status, "VmRSS"); err != nil {
		return u, err
	}
	u.Peak, err = memory(status, "VmHWM")
	return u, err
}

// PSS is the process's resident memory, MiB. Pages shared with other processes count in part,
// so the sum over processes of one program is their memory.
func (p *Process) PSS() (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return memory(text, "Pss")
}

// passed is how many bytes the process has read and written, to files and sockets alike (proc_pid_io(5)).
func (p *Process) passed() (bytes int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	var read, written int64
	if _, err := fmt.Sscanf(string(text), "rchar: %d\nwchar: %d\n", &read, &written); err != nil {
		return 0, fmt.Errorf("read /proc/PID/io: %w", err)
	}
	return read + written, nil
}

func processorTime(pid int) (time.Duration, error) {
	var ts unix.Timespec
	const scheduled = 2 // CPUCLOCK_SCHED
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// memory is a line of /proc/PID/status, in MiB.
func memory(status []byte, name string) (float64, error) {
	_, rest, ok := bytes.Cut(status, []byte("\n"+name+":"))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 2 || string(fields[1]) != "kB" {
		return 0, fmt.Errorf("/proc has no %s", name)
	}
	kib, err := strconv.ParseFloat(string(fields[0]), 64)
	return kib / 1024, err
}
