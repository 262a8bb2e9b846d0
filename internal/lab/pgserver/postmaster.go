package pgserver

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Postmaster returns the process id of the server, of this machine, behind a
// connection: the first line of postmaster.pid (PostgreSQL documentation, "Database
// File Layout").
func Postmaster(ctx context.Context, conn *pgx.Conn) (pid int, err error) {
	var dir string
	if err := conn.QueryRow(ctx, `SHOW data_directory`).Scan(&dir); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(line)
}
