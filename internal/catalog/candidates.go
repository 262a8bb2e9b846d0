package catalog

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// candidatePatience bounds the look at a single server: the next waits
// meanwhile.
const candidatePatience = 5 * time.Second

// Candidates are the addresses of the servers a failover may go to.
type Candidates struct {
	cfg   *pgx.ConnConfig
	login Login
	env   environment
	hosts []*pgconn.Config
}

// FindCandidates are the servers behind the URL and standbys (host or host:port)
// now.
func FindCandidates(ctx context.Context, url string, standbys []string) (*Candidates, error) {
	cfg, login, err := parse(url)
	if err != nil {
		return nil, err
	}
	prepare(&cfg.Config)
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.DialFunc = limited(unwatchedSocket(cfg.DialFunc), candidatePatience)
	env := ordinary(&cfg.Config)
	env.login(&cfg.Config)
	return &Candidates{cfg, login, env, candidateHosts(ctx, &cfg.Config, standbys)}, nil
}

// Several reports whether there are at least two.
func (c *Candidates) Several() bool { return len(c.hosts) > 1 }

// Read asks each in turn with the URL's login, and says how a failover there
// would find the slot. conn is to the slot's own server. A server without an
// answer is a CandidateUnknown.
func (c *Candidates) Read(ctx context.Context, conn *pgx.Conn, slot string) (list []Candidate, err error) {
	own, err := readOriginal(ctx, conn, slot)
	if err != nil {
		return nil, err
	}
	answers := make([]standing, len(c.hosts))
	for i, host := range c.hosts {
		answers[i] = c.look(ctx, host, slot)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	for i, s := range answers {
		s.above = above(answers, i)
		var found Candidate
		if s.err == nil {
			found = own.judge(s)
		} else {
			found = Candidate{State: CandidateUnknown, Text: "cannot be asked for its copy of the slot: " + s.err.Error(),
				Remedy: cmp.Or(failure.RemedyOf(s.err), "start it, or let the connector's role in; if it is to be no more, take it out of source.url and source.standbys")}
		}
		found.Host = s.host
		list = append(list, found)
	}
	return list, nil
}

// above is the standby with the slot for the ith server, "" for none.
func above(answers []standing, i int) string {
	for j, s := range answers {
		if j != i && s.err == nil && s.server.InRecovery && slices.Contains(s.physical, answers[i].slotName) {
			return s.host
		}
	}
	return ""
}

// look asks a server.
func (c *Candidates) look(ctx context.Context, host *pgconn.Config, slot string) (s standing) {
	ctx, cancel := context.WithTimeout(ctx, candidatePatience)
	defer cancel()
	conn, err := openAny(ctx, c.cfg, c.login, c.env, []*pgconn.Config{host})
	if err == nil {
		defer Close(conn)
		s, err = readStanding(ctx, conn, slot)
	}
	s.host, s.err = net.JoinHostPort(host.Host, strconv.Itoa(int(host.Port))), err
	return s
}

// candidateHosts are the addresses of the URL's hosts, and of standbys. A server of any
// kind will do.
func candidateHosts(ctx context.Context, cfg *pgconn.Config, standbys []string) (all []*pgconn.Config) {
	all = addresses(ctx, cfg)
	first := all[0]
	for _, standby := range standbys {
		all = append(all, addresses(ctx, inPlaceOf(first, standby))...)
	}
	for _, one := range all {
		one.ValidateConnect = nil
		one.ConnectTimeout = min(one.ConnectTimeout, candidatePatience)
	}
	return all
}

// inPlaceOf is the configuration of a host with another address.
func inPlaceOf(cfg *pgconn.Config, address string) *pgconn.Config {
	host, port := splitHost(address)
	there := *cfg
	there.Host, there.Port, there.LookupFunc = host, cmp.Or(port, cfg.Port), net.DefaultResolver.LookupHost
	there.TLSConfig = certifiedAs(cfg.TLSConfig, host)
	there.Fallbacks = nil
	for _, f := range cfg.Fallbacks {
		there.Fallbacks = append(there.Fallbacks, &pgconn.FallbackConfig{Host: host, Port: there.Port, TLSConfig: certifiedAs(f.TLSConfig, host)})
	}
	return &there
}

// certifiedAs wants the host's name in the server's certificate, if a
// certificate is wanted.
func certifiedAs(cfg *tls.Config, host string) *tls.Config {
	if cfg == nil || cfg.ServerName == "" {
		return cfg
	}
	cfg = cfg.Clone()
	cfg.ServerName = host
	return cfg
}

// splitHost returns the parts of an address. The port is 0 where there is none, the
// host empty where the address is neither host nor host:port.
func splitHost(address string) (host string, port uint16) {
	if !strings.Contains(address, ":") || net.ParseIP(address) != nil {
		return address, 0
	}
	host, text, err := net.SplitHostPort(address)
	n, badPort := strconv.ParseUint(text, 10, 16)
	if err != nil || badPort != nil || n == 0 {
		return "", 0
	}
	return host, uint16(n)
}

// CheckHost is the error of a text neither host nor host:port.
func CheckHost(address string) error {
	if host, _ := splitHost(address); host == "" || strings.ContainsAny(host, "/@?, ") {
		return failure.Configf("write db2.example.com, or db2.example.com:5432", "is neither a host nor host:port")
	}
	return nil
}

func readOriginal(ctx context.Context, conn *pgx.Conn, slot string) (p original, err error) {
	p.name = slot
	if p.instance, err = ReadInstance(ctx, conn.PgConn()); err != nil {
		return p, err
	}
	if p.server, err = ReadServer(ctx, conn); err != nil {
		return p, err
	}
	if p.slot, p.exists, err = ReadSlot(ctx, conn, slot); err != nil {
		return p, err
	}
	p.physical, err = physicalSlots(ctx, conn)
	return p, err
}

func physicalSlots(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	rows, _ := conn.Query(ctx, `SELECT slot_name::text FROM pg_replication_slots WHERE slot_type = 'physical'`)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read slots: %w", err)
	}
	return names, nil
}

// hasDatabaseName tells whether a connection string, a URI or pairs with values
// perhaps quoted, names a database. The string has a password, too, and stays
// with the server.
const hasDatabaseName = `(setting ~ '^postgres(ql)?://[^/?]*/[^?]' OR setting ~ '(^|[?&[:space:]])dbname[[:space:]]*=[[:space:]]*(''[^'']|[^''&[:space:]])')`

func readStanding(ctx context.Context, conn *pgx.Conn, slot string) (s standing, err error) {
	if s.instance, err = ReadInstance(ctx, conn.PgConn()); err != nil {
		return s, err
	}
	if s.server, err = ReadServer(ctx, conn); err != nil {
		return s, err
	}
	if s.slot, s.exists, err = ReadSlot(ctx, conn, slot); err != nil {
		return s, err
	}
	if s.patroni, err = Patroni(ctx, conn); err != nil {
		return s, err
	}
	if s.physical, err = physicalSlots(ctx, conn); err != nil {
		return s, err
	}
	wait, err := ReadStandbySlots(ctx, conn)
	if err != nil {
		return s, err
	}
	for _, awaited := range wait.Slots {
		if !awaited.Exists {
			s.awaited = append(s.awaited, awaited.Name)
		}
	}
	// primary_conninfo is not listed for a role without the right to see it.
	err = conn.QueryRow(ctx, `
		SELECT COALESCE(current_setting('sync_replication_slots', true) = 'on', false),
		       current_setting('hot_standby_feedback') = 'on',
		       current_setting('primary_slot_name'),
		       (SELECT `+hasDatabaseName+` FROM pg_settings WHERE name = 'primary_conninfo'),
		       COALESCE((SELECT sourcefile FROM pg_settings WHERE name = 'primary_conninfo'), '')`).
		Scan(&s.syncs, &s.feedback, &s.slotName, &s.dbname, &s.conninfoFile)
	if err != nil {
		return s, fmt.Errorf("read settings of a standby: %w", err)
	}
	return s, nil
}

// ReadFollowers counts the processes sending the server's log to standbys or
// backups.
func ReadFollowers(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	err = conn.QueryRow(ctx, `
		SELECT count(*) FROM pg_stat_replication r
		 WHERE NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
		   AND r.application_name IS DISTINCT FROM current_setting('application_name')`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count standbys: %w", err)
	}
	return n, nil
}
