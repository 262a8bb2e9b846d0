package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgserver"
)

// Reader reads a slot up to a position and throws everything away.
type Reader struct {
	Slot string
	cmd  *exec.Cmd
}

// Recvlogical is pg_recvlogical, the fastest reader of a single walsender. url is of
// the slot's database.
func Recvlogical(url, slot, end, publication string, messages bool) (Reader, error) {
	bin, err := pgserver.Find()
	if err != nil {
		return Reader{}, err
	}
	cmd := exec.Command(filepath.Join(bin, "pg_recvlogical"), "--dbname", url, "--slot", slot,
		"--start", "--file", "/dev/null", "--no-loop", "--endpos", end,
		"--option", "proto_version=1", "--option", "publication_names="+publication)
	if messages {
		cmd.Args = append(cmd.Args, "--option", "messages=true")
	}
	return Reader{slot, cmd}, nil
}

// BareReader is the connector's package wal alone, in a separate process: the
// connector's processor time beyond goes into routing, encoding and sending.
// The program's main must be Main.
func BareReader(url, slot, end, publication string) (Reader, error) {
	self, err := os.Executable()
	return Reader{slot, exec.Command(self, bareRole, url, slot, end, publication)}, err
}

// Reading is a reader's cost.
type Reading struct {
	Took   time.Duration // from the start of the process to the end
	Reader Usage
	Server time.Duration // processor time of the walsender, up to the last look
}

// sampling is between two looks at readers. A walsender's use after the last
// look is not counted.
const sampling = 10 * time.Millisecond

// Read has the readers read at once, and returns when all are done.
func (db *Database) Read(ctx context.Context, readers ...Reader) ([]Reading, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, backlogLimit, fmt.Errorf("not read after %s", backlogLimit))
	defer cancel()
	running := make([]*reading, len(readers))
	for n, r := range readers {
		p, err := Start(filepath.Base(r.cmd.Path), r.cmd)
		if err != nil {
			return nil, err
		}
		defer p.Kill()
		running[n] = &reading{Process: p, slot: r.Slot, began: time.Now()}
	}
	err := Await(ctx, sampling, func() (all bool, err error) {
		all = true
		for _, r := range running {
			if r.Took == 0 && err == nil {
				err = r.look(ctx, db)
			}
			all = all && r.Took != 0
		}
		return all, err
	})
	var readings []Reading
	for _, r := range running {
		readings = append(readings, r.Reading)
	}
	return readings, err
}

// reading is a reader at work.
type reading struct {
	Reading
	*Process
	slot      string
	walsender int // process id, once known
	began     time.Time
}

// look notes whether the reader is done, and the usage of reader and walsender.
func (r *reading) look(ctx context.Context, db *Database) (err error) {
	select {
	case <-r.Exited():
		r.Took = time.Since(r.began)
		r.Reader.CPU = r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()
		return r.Failed()
	default:
	}
	// An ended process cannot be measured any more. The peak told by wait4(2) would be
	// ours: a child begins with the parent's peak.
	if used, err := r.Usage(); err == nil {
		r.Reader = used
	}
	if r.walsender == 0 {
		r.walsender, err = db.walsender(ctx, r.slot)
		return err
	}
	if used, err := processorTime(r.walsender); err == nil {
		r.Server = used
	}
	return nil
}

// WalsenderTime is the processor time of the slot's walsender.
func (db *Database) WalsenderTime(ctx context.Context, slot string) (time.Duration, error) {
	pid, err := db.walsender(ctx, slot)
	if err != nil {
		return 0, err
	}
	if pid == 0 {
		return 0, fmt.Errorf("nobody streams from slot %s", slot)
	}
	return processorTime(pid)
}

// walsender is the process streaming from the slot, or 0.
func (db *Database) walsender(ctx context.Context, slot string) (pid int, err error) {
	err = db.Conn.QueryRow(ctx, `SELECT coalesce(active_pid, 0) FROM pg_replication_slots WHERE slot_name = $1`, slot).Scan(&pid)
	return pid, err
}
