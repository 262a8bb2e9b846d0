package page

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/digest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/stream"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// served is a page with a single pipeline.
type served struct {
	*Page
	mux     *http.ServeMux
	metrics *metrics.Metrics
}

func serve(o Options) served {
	set := metrics.New("", "")
	s := served{mux: http.NewServeMux(), metrics: set.Pipeline("")}
	s.Page = New(o, "v1", set.Pipelines())
	s.Show([]Pipeline{{Tables: []string{"public.outbox"}, Slot: "s", Recent: delivery.NewRecent("eventType", false), Status: func() any {
		return map[string]any{"ready": true, "ready_since": time.Now(), "reasons": []string{}, "remedies": []string{}, "role": "active"}
	}}})
	s.Register(s.mux)
	return s
}

func (s served) get(path, host string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = host
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r)
	return w
}

// Otherwise a foreign site's script could read events, after the site's DNS server
// has answered with this machine's address.
func TestForeignNamesAreRefused(t *testing.T) {
	for _, tt := range []struct {
		host    string
		options Options
		code    int
	}{
		{"localhost:8080", Options{Listen: "127.0.0.1:8080"}, 200},
		{"127.0.0.1:8080", Options{Listen: "127.0.0.1:8080"}, 200},
		{"[::1]:8080", Options{Listen: "[::1]:8080"}, 200},
		{"10.0.0.7:8080", Options{Listen: "0.0.0.0:8080"}, 200},
		{"attacker.example:8080", Options{Listen: "127.0.0.1:8080"}, 421},
		{"attacker.example", Options{Listen: "0.0.0.0:80"}, 421},
		{"localhost.attacker.example", Options{Listen: "127.0.0.1:8080"}, 421},
		{"", Options{Listen: "127.0.0.1:8080"}, 421},
		{"Outbox.Example.com.", Options{Listen: ":80", Hosts: []string{"outbox.example.com"}}, 200},
		{"outbox:8080", Options{Listen: "outbox:8080"}, 200},
	} {
		t.Run(tt.host+" at "+tt.options.Listen, func(t *testing.T) {
			for _, path := range []string{"/", "/page.js"} {
				if got := serve(tt.options).get(path, tt.host).Code; got != tt.code {
					t.Errorf("%s answers %d, want %d", path, got, tt.code)
				}
			}
			if tt.code == 421 {
				if got := serve(tt.options).get("/live", tt.host).Code; got != tt.code {
					t.Errorf("/live answers %d, want %d", got, tt.code)
				}
			}
		})
	}
}

func TestEventsAreForThoseWhoMaySeeThem(t *testing.T) {
	const token = "0123456789abcdef"
	bearer := []string{"Authorization", "Bearer " + token}
	for name, tt := range map[string]struct {
		options Options
		host    string
		header  []string
		want    bool
	}{
		"loopback":                         {Options{Listen: "127.0.0.1:8080", Events: EventsLoopback}, "localhost:8080", nil, true},
		"loopback behind a proxy":          {Options{Listen: "127.0.0.1:8080", Events: EventsLoopback}, "localhost:8080", []string{"X-Forwarded-For", "10.0.0.9"}, false},
		"loopback behind a silent proxy":   {Options{Listen: "127.0.0.1:8080", Events: EventsLoopback}, "127.0.0.1:8080", []string{"Proto", "HTTP/1.0"}, false},
		"loopback behind a shy proxy":      {Options{Listen: "127.0.0.1:8080", Events: EventsLoopback}, "127.0.0.1:8080", []string{"X-Forwarded-Host", ""}, false},
		"loopback behind a cache":          {Options{Listen: "127.0.0.1:8080", Events: EventsLoopback}, "127.0.0.1:8080", []string{"Via", "1.1 varnish"}, false},
		"loopback for another address":     {Options{Listen: "127.0.0.1:8080", Events: EventsLoopback}, "127.0.0.1:8080", []string{"X-Real-IP", "10.0.0.9"}, false},
		"loopback under another name":      {Options{Listen: "127.0.0.1:8080", Events: EventsLoopback}, "outbox.example.com", nil, false},
		"another address":                  {Options{Listen: "0.0.0.0:8080", Events: EventsLoopback}, "localhost:8080", nil, false},
		"another address, always":          {Options{Listen: "0.0.0.0:8080", Events: EventsAlways}, "10.0.0.7:8080", nil, true},
		"never":                            {Options{Listen: "127.0.0.1:8080", Events: EventsNever, Token: token}, "localhost:8080", bearer, false},
		"token":                            {Options{Listen: "0.0.0.0:8080", Events: EventsLoopback, Token: token}, "10.0.0.7:8080", bearer, true},
		"no token":                         {Options{Listen: "0.0.0.0:8080", Events: EventsLoopback, Token: token}, "10.0.0.7:8080", nil, false},
		"no token, on loopback":            {Options{Listen: "127.0.0.1:8080", Events: EventsLoopback, Token: token}, "localhost:8080", nil, false},
		"another token":                    {Options{Listen: "0.0.0.0:8080", Events: EventsLoopback, Token: token}, "10.0.0.7:8080", []string{"Authorization", "Bearer 0123456789abcdeF"}, false},
		"an empty token where none is set": {Options{Listen: "0.0.0.0:8080", Events: EventsLoopback}, "10.0.0.7:8080", []string{"Authorization", "Bearer "}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/live", nil)
			r.Host = tt.host
			for i := 0; i < len(tt.header); i += 2 {
				if tt.header[i] == "Proto" {
					r.Proto, r.ProtoMinor = tt.header[i+1], 0
					continue
				}
				r.Header.Set(tt.header[i], tt.header[i+1])
			}
			if got := newGuard(tt.options).showsEvents(r); got != tt.want {
				t.Errorf("shows events: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestPageBindsTheBrowser(t *testing.T) {
	s := serve(DefaultOptions())
	for path, contentType := range map[string]string{
		"/": "text/html; charset=utf-8", "/page.js": "text/javascript; charset=utf-8", "/page.css": "text/css; charset=utf-8", "/icon.svg": "image/svg+xml",
	} {
		answer := s.get(path, "localhost:8080")
		if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != contentType {
			t.Errorf("%s answers %d, %q", path, answer.Code, answer.Header().Get("Content-Type"))
		}
		csp := answer.Header().Get("Content-Security-Policy")
		must.Contain(t, csp, "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'")
		if strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
	close(s.stopped) // it says hello and goodbye
	if got := s.get("/live", "localhost:8080").Header(); got.Get("X-Accel-Buffering") != "no" {
		t.Errorf("a proxy may hold back what has the headers %v", got)
	}
	if got := s.get("/live", "localhost:8080", "Sec-Fetch-Site", "cross-site").Code; got != http.StatusForbidden {
		t.Errorf("/live answers another site's page with %d", got)
	}
}

// The page's files are small, come from here, and have no code in the markup.
func TestFilesAreSmallAndPlain(t *testing.T) {
	total := 0
	foreign := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]+\.|\sstyle=|\son[a-z]+="|<script>|<style|innerHTML|eval\(|import\(`)
	must.OK(t, fs.WalkDir(static, "static", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := static.ReadFile(path)
		total += len(content)
		if lines := strings.Count(string(content), "\n"); lines > 350 {
			t.Errorf("%s has %d lines: split it by concept", path, lines)
		}
		text := strings.ReplaceAll(string(content), "http://www.w3.org/2000/svg", "")
		if found := foreign.FindString(text); found != "" {
			t.Errorf("%s has %q", path, found)
		}
		if name := strings.TrimPrefix(path, "static/"); name != "index.html" {
			if got := serve(DefaultOptions()).get("/"+name, "localhost").Code; got != http.StatusOK {
				t.Errorf("/%s answers %d", name, got)
			}
		}
		return err
	}))
	if total > 100_000 {
		t.Errorf("the page is %d bytes", total)
	}
}

// messages reads the events of /live.
func messages(t testing.TB, url string) (next func() (event string, data map[string]any)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request := must.Get(http.NewRequestWithContext(ctx, http.MethodGet, url+"/live", nil))(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	must.OK(t, err)
	t.Cleanup(func() { cancel(); answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 10<<20)
	return func() (event string, data map[string]any) {
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				event = name
			}
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				must.OK(t, json.Unmarshal([]byte(text), &data))
				return event, data
			}
		}
		return "", nil
	}
}

func TestLive(t *testing.T) {
	s := serve(DefaultOptions())
	server := httptest.NewServer(s.mux)
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		s.Run(ctx)
	}()
	next := messages(t, server.URL)
	event, data := next()
	if event != "hello" || data["events"] != true || len(data["pipelines"].([]any)) != 1 {
		t.Errorf("first %s: %v", event, data)
	}
	for range 2 { // at once, and in a second
		event, data = next()
		present := data["pipelines"].([]any)[0].(map[string]any)
		if status := present["status"].(map[string]any); event != "update" || status["role"] != "active" || len(present["now"].([]any)) != 1+columns {
			t.Errorf("then %s: %v", event, data)
		}
	}
	stop()
	for event != "" {
		event, _ = next()
	}
	<-ran
}

// A viewer of an open page sees the charts of a new viewer, and beside them no rate
// measured otherwise.
func TestOpenPageShowsTheChartsOfANewOne(t *testing.T) {
	s := serve(DefaultOptions())
	viewer, _ := s.enter(false, "")
	<-viewer.updates
	var fine, coarse []any
	now := time.Now()
	for second := range 40 {
		for range 7 * (second % 2) { // in every other second
			s.metrics.Published(events(t, time.Millisecond))
		}
		now = now.Add(time.Second)
		s.step(now)
		var u struct {
			Pipelines []struct {
				Now, Coarse any
				Charted     bool
			}
		}
		must.OK(t, json.Unmarshal(<-viewer.updates, &u))
		got := u.Pipelines[0]
		if got.Charted {
			fine = append(fine, got.Now)
		} else if !reflect.DeepEqual(got.Now, fine[len(fine)-1]) {
			t.Errorf("beside the charts it shows %v, their last point is %v", got.Now, fine[len(fine)-1])
		}
		if got.Coarse != nil {
			coarse = append(coarse, got.Coarse)
		}
	}
	_, first := s.enter(false, "")
	var h struct {
		Pipelines []struct{ Fine, Coarse []any }
	}
	must.OK(t, json.Unmarshal(first, &h))
	if want := h.Pipelines[0]; !reflect.DeepEqual(fine, want.Fine) || !reflect.DeepEqual(coarse, want.Coarse) {
		t.Errorf("the open page has\n%v and\n%v, a new one\n%v and\n%v", fine, coarse, want.Fine, want.Coarse)
	}
}

// An update names few topics, however many there are, and counts the others.
func TestUpdatesDoNotGrowWithTheTopics(t *testing.T) {
	s := serve(DefaultOptions())
	for i := range 1000 {
		ev := events(t, time.Millisecond)
		ev[0].Record.Topic = fmt.Sprintf("outbox.event.number-%d", i)
		for range 1 + i/998 { // two have one more
			s.metrics.Published(ev)
		}
	}
	viewer, _ := s.enter(false, "")
	first := <-viewer.updates
	var u struct{ Pipelines []struct{ Topics topics } }
	must.OK(t, json.Unmarshal(first, &u))
	want := topics{Busiest: []topic{{"outbox.event.number-998", 2}, {"outbox.event.number-999", 2}}, Others: 998, Events: 998}
	if got := u.Pipelines[0].Topics; !reflect.DeepEqual(got, want) || len(first) > 2000 {
		t.Errorf("an update of %d bytes with the topics %+v, want %+v", len(first), got, want)
	}
}

// A displaced viewer keeps no connection.
func TestViewersThatGaveWayAreDisconnected(t *testing.T) {
	s := serve(DefaultOptions())
	var open atomic.Int64
	server := httptest.NewUnstartedServer(s.mux)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	for range mostViewers + 10 {
		conn := must.Get(net.Dial("tcp", server.Listener.Addr().String()))(t)
		t.Cleanup(func() { _ = conn.Close() })
		must.Get(fmt.Fprintf(conn, "GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"))(t)
		must.Get(conn.Read(make([]byte, 1)))(t)
	}
	await.Until(t, "the connections of those who may stay", func() bool { return open.Load() == mostViewers })
}

// An address opening many pages keeps no other out, and a displaced page ends.
func TestViewersAreFew(t *testing.T) {
	s := serve(DefaultOptions())
	enter := func(from string) *viewer {
		v, _ := s.enter(false, from)
		if len(s.viewers) > mostViewers {
			t.Fatalf("%d viewers", len(s.viewers))
		}
		return v
	}
	gone := func(v *viewer) bool {
		select {
		case <-v.gone:
			return true
		default:
			return false
		}
	}
	person := enter("10.0.0.1")
	var many []*viewer
	for range 2 * mostViewers {
		many = append(many, enter("10.0.0.9"))
	}
	another := enter("10.0.0.2")
	for range mostViewers {
		many = append(many, enter("10.0.0.9"))
	}
	if gone(person) || gone(another) {
		t.Error("one address has kept others out")
	}
	for i, v := range many {
		if left := len(many) - (mostViewers - 2); gone(v) != (i < left) {
			t.Errorf("viewer %d of %d has gone: %t", i, len(many), gone(v))
		}
		s.leave(v)
	}
	if len(s.viewers) != 2 {
		t.Errorf("%d viewers are left", len(s.viewers))
	}
}

// A monitoring program asking with HEAD is no viewer.
func TestHeadHoldsNoPlace(t *testing.T) {
	s := serve(DefaultOptions())
	r := httptest.NewRequest(http.MethodHead, "/live", nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, r) // returns
	if w.Code != http.StatusOK || len(s.viewers) != 0 || s.entered != 0 {
		t.Errorf("answers %d, %d viewers", w.Code, s.entered)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	h := newHistory()
	for i := range 3 * int(time.Hour/fineStep) {
		var s sample
		s.at = float64(2 * i)
		s.values[lagBytes], s.values[eventsPerSecond] = float32(i%5), float32(i%5)
		s.values[safeBytes] = nan
		h.add(s)
	}
	if len(h.fine.all) != fineSize || len(h.coarse.all) != coarseSize {
		t.Errorf("%d and %d samples are kept", len(h.fine.all), len(h.coarse.all))
	}
	var rows [][]*float64
	must.OK(t, json.Unmarshal(must.Get(json.Marshal(&h.coarse))(t), &rows))
	for i, row := range rows[1:] {
		if *row[0]-*rows[i][0] != coarseStep.Seconds() {
			t.Fatalf("row %d is of %v, the one before of %v", i+1, *row[0], *rows[i][0])
		}
	}
	last := rows[len(rows)-1]
	if *last[1+eventsPerSecond] != 2 || *last[1+lagBytes] != 4 || last[1+safeBytes] != nil {
		t.Errorf("the mean of a rate, the most of a lag and what is not known are %v", last)
	}
}

func TestRatesAndQuantiles(t *testing.T) {
	set := metrics.New("", "")
	m := set.Pipeline("")
	before := read(set.Pipelines())[""]
	for range 98 {
		m.Published(events(t, 20*time.Millisecond))
	}
	for range 2 {
		m.Published(events(t, 4*time.Second))
	}
	for range 900 { // messages outside a transaction have no commit
		ev := events(t, 0)
		ev[0].CommitTime = time.Time{}
		m.Published(ev)
	}
	v := read(set.Pipelines())[""].since(before, 10)
	if v[eventsPerSecond] != 100 {
		t.Errorf("%v events per second, want 100", v[eventsPerSecond])
	}
	if v[latency50] < .01 || v[latency50] > .025 || v[latency99] < 2.5 || v[latency99] > 5 {
		t.Errorf("latencies %v and %v, want those of the buckets of 20 ms and 4 s", v[latency50], v[latency99])
	}
	if first := before.since(nil, 0); !math.IsNaN(float64(first[eventsPerSecond])) || !math.IsNaN(float64(first[latency50])) {
		t.Errorf("the first reading knows rates: %v", first)
	}
}

func TestOptionsThatCannotWork(t *testing.T) {
	o := Options{Events: "sometimes", Token: "short", Hosts: []string{"ok.example", "http://no.example"}, Peers: []string{"http://10.0.0.7:8080/", "10.0.0.8:8080"}}
	var got []string
	o.Validate(func(f setting.Fault) { got = append(got, fmt.Sprint(f.Key, f.Item)) })
	if want := "http.events0 http.token0 http.hosts2 http.peers2"; strings.Join(got, " ") != want {
		t.Errorf("faults of %v, want %s", got, want)
	}
	for _, token := range []string{"sésame, ouvre-toi!", "0123456789abcdef 0123456789abcdef", "0123456789abcdef\n"} {
		o, got = DefaultOptions(), nil
		o.Token = setting.Secret(token)
		o.Validate(func(f setting.Fault) { got = append(got, f.Text) })
		if len(got) != 1 || !strings.Contains(got[0], "cannot send") {
			t.Errorf("faults of the token %q: %v", token, got)
		}
	}
	o = DefaultOptions()
	o.Validate(func(f setting.Fault) { t.Errorf("the default is at fault: %+v", f) })
}

// BenchmarkOpenPage is the connector's cost of an open page: the update of a
// second, with all messages of a busy pipeline.
func BenchmarkOpenPage(b *testing.B) {
	set := metrics.New("", "")
	m, recent := set.Pipeline(""), delivery.NewRecent("eventType", true)
	status := stream.Status{Slot: "cdc_outbox", ReceivedLSN: "16/B374D848", ConfirmedLSN: "16/B374D848", ServerLSN: "16/B374D848", WALStatus: "reserved"}
	s := served{mux: http.NewServeMux(), metrics: m}
	s.Page = New(DefaultOptions(), "v1", set.Pipelines())
	s.Show([]Pipeline{{Tables: []string{"public.outbox"}, Slot: "s", Status: func() any { return status }, Recent: recent}})
	s.Register(s.mux)
	now := time.Now()
	for range int(time.Hour / fineStep) { // the charts are full
		now = now.Add(fineStep)
		s.step(now)
	}
	d := delivery.New(delivery.Options{Metrics: m, Digest: digest.New(zap.NewNop()), Recent: recent})
	items := make([]delivery.Item, 20)
	for i := range items {
		ev := events(b, time.Millisecond)[0]
		ev.Record.Key, ev.Record.Value, ev.ID = []byte("1042"), make([]byte, 200), []byte("b6ce6b57-705b-4e3a-9a9b-0cb2b433aa1d")
		items[i] = delivery.Item{Event: ev, Size: 300}
	}
	idle := heap()
	server := httptest.NewServer(s.mux)
	b.Cleanup(server.Close) // after the request has ended
	next := messages(b, server.URL)
	next()
	b.ReportAllocs()
	for b.Loop() {
		_, _ = d.Deliver(b.Context(), nowhere{}, len(items), func(i int) *delivery.Item { return &items[i] })
		now = now.Add(time.Second)
		s.step(now)
		next()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e7, "%core")
	b.ReportMetric(float64(int64(heap())-int64(idle))/(1<<20), "MiB")
}

// nowhere is a sink taking everything.
type nowhere struct{ sink.Sink }

func (nowhere) Deliver(context.Context, []*transform.Event, sink.Reject) error { return nil }

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
