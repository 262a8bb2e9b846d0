package page_test

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/browser"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// TestE2EScreenshots takes the pictures of the documents, from real runs, with `make
// screenshots` only: a picture proves nothing.
func TestE2EScreenshots(t *testing.T) {
	dir := os.Getenv("CDC_OUTBOX_SCREENSHOTS")
	if dir == "" {
		t.Skip("CDC_OUTBOX_SCREENSHOTS names no directory")
	}
	server := pgtest.Start(t, pgtest.Setting("max_slot_wal_keep_size", "64MB"), pgtest.Setting("max_wal_size", "64MB"))
	camera := &camera{t: t, dir: dir}

	t.Run("one", func(t *testing.T) {
		db, broker := server.NewDatabase(t), kafkatest.Start(t)
		c := start(t, configure(t, db, broker, "outbox"))
		c.awaitReady(t)
		stop := writer(t, db, trickle("outbox", "order"))
		write(t, db, "outbox", "payment", 20)
		pgtest.Exec(t, db, `INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('a topic?', '7', 'OrderPlaced', '{}')`)
		tab := camera.open(t, c, 40)
		camera.take(tab, "page-healthy-light", 1160, 1000, "light")
		camera.take(tab, "page-healthy-dark", 1160, 1000, "dark")
		camera.take(tab, "page-healthy-phone", 375, 1000, "light")

		spare := start(t, configure(t, db, broker, "outbox"))
		await.Until(t, "the standby", func() bool { return spare.status(t, "")["holder"] != nil })
		camera.take(camera.open(t, spare, 5), "page-standby", 1160, 560, "light")

		broker.Stop(t)
		await.Until(t, "the outage", func() bool { return strings.HasPrefix(tab.Text("#headline"), "Standing still") })
		camera.wait(tab, 8)
		camera.take(tab, "page-broker-down", 1160, 860, "light")
		broker.Resume(t)
		c.awaitReady(t)
		stop()
	})
	t.Run("three", func(t *testing.T) {
		db, broker := server.NewDatabase(t), kafkatest.Start(t)
		var cfg config.Config
		for _, name := range []string{"orders", "payments", "shipping"} {
			own := configure(t, db, broker, name)
			cfg.Pipelines = append(cfg.Pipelines, config.Pipeline{Name: name, Config: &own})
			cfg.HTTP = own.HTTP
		}
		c := start(t, cfg)
		c.awaitReady(t)
		for _, name := range []string{"orders", "payments", "shipping"} {
			writer(t, db, trickle(name, name))
		}
		tab := camera.open(t, c, 20)
		lose(t, db, c, "payments")
		await.Until(t, "the loss", func() bool { return strings.Contains(tab.Text("#headline"), "payments stands still") })
		camera.wait(tab, 8)
		camera.take(tab, "page-three-pipelines", 1160, 860, "light")
		tab.Do(chromedp.KeyEvent("2"))
		camera.take(tab, "page-slot-lost", 1160, 860, "dark")
	})
	t.Run("hundred", func(t *testing.T) {
		server := pgtest.Start(t, pgtest.Setting("max_wal_senders", "120"), pgtest.Setting("max_replication_slots", "120"), pgtest.Setting("max_connections", "500"))
		db, broker := server.NewDatabase(t), kafkatest.Start(t)
		var cfg config.Config
		for _, service := range []string{"billing", "catalog", "customers", "invoices", "orders", "payments", "prices", "returns", "shipping", "stock"} {
			for _, region := range []string{"at", "be", "ch", "cz", "de", "dk", "es", "fr", "it", "nl"} {
				name := service + "_" + region
				own := configure(t, db, broker, name)
				cfg.Pipelines = append(cfg.Pipelines, config.Pipeline{Name: name, Config: &own})
				cfg.HTTP = own.HTTP
			}
		}
		c := start(t, cfg)
		c.awaitReady(t)
		for _, name := range []string{"orders_de", "orders_fr", "payments_de", "shipping_it", "stock_nl"} {
			writer(t, db, trickle(name, name))
		}
		tab := camera.open(t, c, 10)
		lose(t, db, c, "payments_de")
		await.Until(t, "the loss", func() bool { return strings.Contains(tab.Text("#headline"), "payments_de stands still") })
		camera.take(tab, "page-hundred-pipelines", 1160, 1100, "light")
	})
	t.Run("fleet", func(t *testing.T) {
		db, broker := server.NewDatabase(t), kafkatest.Start(t)
		tenants := []string{"tenant_at", "tenant_be", "tenant_ch", "tenant_cz", "tenant_de", "tenant_dk", "tenant_es", "tenant_fr", "tenant_it", "tenant_nl"}
		var last connector
		for n := range 3 {
			cfg := config.Config{Fleet: fleet.DefaultOptions()}
			cfg.Fleet.Group, cfg.Fleet.Member, cfg.Fleet.Rack = "outbox-fleet", fmt.Sprintf("outbox-%d", n), "zone-"+string(rune('a'+n))
			for _, name := range tenants {
				own := configure(t, db, broker, name)
				cfg.Pipelines = append(cfg.Pipelines, config.Pipeline{Name: name, Config: &own})
				cfg.HTTP, cfg.Sink = own.HTTP, own.Sink
			}
			last = start(t, cfg)
		}
		for _, name := range tenants[:6] {
			writer(t, db, trickle(name, name))
		}
		tab := camera.open(t, last, 10)
		await.Until(t, "a share of the pipelines", func() bool { return strings.Count(tab.Text("#places"), "outbox-2") >= 3 })
		camera.wait(tab, 20)
		camera.take(tab, "page-fleet", 1160, 1100, "light")
	})
}

// trickle is the statement of a writer.
func trickle(table, aggregate string) string {
	return fmt.Sprintf(`INSERT INTO %s (aggregatetype, aggregateid, type, payload)
		SELECT '%s', 1000 + $1::int %% 9 + n, (ARRAY['%s', '%s', '%s'])[1 + ($1::int + n) %% 3], '{"total": 1990}'
		  FROM generate_series(1, 1 + ($1::int / 7) %% 4) n`, table, aggregate, kinds[0], kinds[1], kinds[2])
}

// camera takes pictures of pages.
type camera struct {
	t   *testing.T
	dir string
}

// open opens the page, and waits for so many updates: the charts need a past.
func (camera *camera) open(t *testing.T, c connector, updates int) *browser.Tab {
	t.Helper()
	tab := browser.Open(t)
	tab.Do(chromedp.EmulateViewport(1160, 1000), chromedp.Navigate(c.base))
	camera.wait(tab, updates)
	return tab
}

func (camera *camera) wait(tab *browser.Tab, updates int) {
	camera.t.Helper()
	count := func() int { return browser.Eval[int](tab, `Number(document.body.dataset.updates || 0)`) }
	until := count() + updates
	await.Until(camera.t, "updates", func() bool { return count() >= until })
}

func (camera *camera) take(tab *browser.Tab, name string, width, height int64, scheme string) {
	camera.t.Helper()
	tab.Do(chromedp.EmulateViewport(width, height), emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
	camera.wait(tab, 2)
	var picture []byte
	tab.Do(chromedp.CaptureScreenshot(&picture))
	small := fewColours(camera.t, picture)
	if len(small) > 120_000 {
		camera.t.Errorf("%s has %d bytes", name, len(small))
	}
	must.OK(camera.t, os.WriteFile(filepath.Join(camera.dir, name+".png"), small, 0o644))
}

// fewColours makes a picture smaller: 256 colours are enough for a page.
func fewColours(t *testing.T, picture []byte) []byte {
	t.Helper()
	whole := must.Get(png.Decode(bytes.NewReader(picture)))(t)
	rough := func(c color.Color) color.RGBA {
		r, g, b, _ := c.RGBA()
		return color.RGBA{uint8(r>>8) &^ 3, uint8(g>>8) &^ 3, uint8(b>>8) &^ 3, 255}
	}
	counts := map[color.RGBA]int{}
	first := map[color.RGBA]color.Color{} // the exact colour, for the common ones
	bounds := whole.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := whole.At(x, y)
			if counts[rough(c)]++; counts[rough(c)] == 1 {
				first[rough(c)] = c
			}
		}
	}
	common := slices.Collect(maps.Keys(counts))
	slices.SortFunc(common, func(a, b color.RGBA) int { return counts[b] - counts[a] })
	var palette color.Palette
	for _, c := range common[:min(256, len(common))] {
		palette = append(palette, first[c])
	}
	nearest := map[color.RGBA]uint8{}
	out := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := rough(whole.At(x, y))
			index, known := nearest[c]
			if !known {
				index = uint8(palette.Index(c))
				nearest[c] = index
			}
			out.SetColorIndex(x, y, index)
		}
	}
	var small bytes.Buffer
	must.OK(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, out))
	return small.Bytes()
}
