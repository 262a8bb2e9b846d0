package admin

import (
	"context"
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// claimsTable is the table of large values; ok is false where there is none.
func claimsTable(cfg *config.Config) (name pg.Table, ok bool) {
	if cfg.ClaimCheck.Store != claimcheck.StoreTable {
		return name, false
	}
	name, err := pg.ParseTable(cfg.ClaimCheck.Table.Name)
	return name, err == nil
}

// claimsHere is claimsTable for a table in the database of the events.
func claimsHere(cfg *config.Config) (name pg.Table, ok bool) {
	name, ok = claimsTable(cfg)
	return name, ok && cfg.ClaimCheck.Table.URL == ""
}

// claimsSQL makes the table of large values in the database of the events.
func claimsSQL(cfg *config.Config) []string {
	name, ok := claimsHere(cfg)
	if !ok {
		return nil
	}
	return append([]string{createSchema(name)}, claimcheck.TableSQL(name)...)
}

// claimsGrants are the rights of the role on the table of large values.
func claimsGrants(cfg *config.Config, role string) []string {
	name, ok := claimsHere(cfg)
	if !ok {
		return nil
	}
	return claimcheck.TableGrants(name, role)
}

// ensureClaims makes the table of large values.
func (s *setup) ensureClaims(ctx context.Context) error {
	name, ok := claimsTable(s.cfg)
	if !ok {
		return nil
	}
	if url := s.cfg.ClaimCheck.Table.URL.Reveal(); url != "" {
		return s.ensureClaimsElsewhere(ctx, url, name)
	}
	_, exists, err := catalog.ReadTable(ctx, s.conn, name)
	if err != nil {
		return err
	}
	if exists {
		s.done("claims", name.String(), "exists", "")
		return nil
	}
	if err := s.execute(ctx, claimsSQL(s.cfg)...); err != nil {
		return fmt.Errorf("create table %s: %w", name, err)
	}
	s.done("claims", name.String(), "created", "")
	return nil
}

// ensureClaimsElsewhere is ensureClaims in another database.
func (s *setup) ensureClaimsElsewhere(ctx context.Context, url string, name pg.Table) error {
	conn, err := catalog.ConnectStore(ctx, url, "cdc-outbox setup", nil)
	if err != nil {
		return fmt.Errorf("claim_check.table.url: %w", err)
	}
	defer catalog.Close(conn)
	for _, sql := range append([]string{createSchema(name)}, claimcheck.TableSQL(name)...) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("create table %s in the database of claim_check.table.url: %w", name, catalog.Classify(err))
		}
	}
	s.done("claims", name.String(), "ready", "in the database of claim_check.table.url; its role there needs: "+strings.Join(claimcheck.TableGrants(name, "…"), "; "))
	return nil
}

// writeClaims writes the table of large values. One in another database is setup's work.
func writeClaims(b *strings.Builder, cfg *config.Config) {
	if sql := claimsSQL(cfg); len(sql) > 0 {
		writeSection(b, "Large values (claim_check)", sql...)
	}
}
