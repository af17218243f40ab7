package server

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"switchboard/internal/postgres"
)

var requests = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name: "switchboard_http_request_seconds", Help: "Time to answer, by room and status class.",
	Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 60},
}, []string{"room", "status"})

// room is the part of the contract that a path belongs to; ids never become
// label values.
type room int

const (
	roomMCP room = iota
	roomA2A
	roomOAuth
	roomREST
	roomWellKnown
	roomWeb
)

var roomNames = [...]string{roomMCP: "mcp", roomA2A: "a2a", roomOAuth: "oauth", roomREST: "rest", roomWellKnown: "well-known", roomWeb: "web"}

func roomOf(path string) room {
	switch {
	case strings.HasPrefix(path, "/mcp/"):
		return roomMCP
	case strings.HasPrefix(path, "/a2a"):
		return roomA2A
	case strings.HasPrefix(path, "/oauth/"):
		return roomOAuth
	case strings.HasPrefix(path, "/v1/"):
		return roomREST
	case strings.HasPrefix(path, "/.well-known/"):
		return roomWellKnown
	}
	return roomWeb
}

// observers are those of requests that have been needed so far: finding one by
// its labels costs more than observing.
var observers [len(roomNames)][10]atomic.Pointer[prometheus.Observer]

func observer(r room, status int) prometheus.Observer {
	class := status / 100
	at := &observers[r][class]
	o := at.Load()
	if o == nil {
		found := requests.WithLabelValues(roomNames[r], strconv.Itoa(class)+"xx")
		o = &found
		at.Store(o)
	}
	return *o
}

// measured counts requests and how long they took.
func measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, r)
		observer(roomOf(r.URL.Path), seen.status).Observe(time.Since(began).Seconds())
	})
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader remembers the status.
func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Flush passes through, for streams.
func (w *statusWriter) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ready answers 200 when the database answers and its schema is ours.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := postgres.CheckSchema(ctx, s.pool); err != nil {
		s.log.WarnContext(ctx, "not ready", "error", err)
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

// privateMux is for the operator and the orchestrator, on a listener that
// strangers cannot reach.
func (s *Server) privateMux(more ...prometheus.Collector) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), requests, poolCollector{s})
	registry.MustRegister(more...)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// poolCollector shows the pool's use.
type poolCollector struct{ *Server }

var (
	poolInUse   = prometheus.NewDesc("switchboard_db_connections_in_use", "Database connections in use.", nil, nil)
	poolTotal   = prometheus.NewDesc("switchboard_db_connections", "Database connections open.", nil, nil)
	poolWaited  = prometheus.NewDesc("switchboard_db_waits_total", "Times that a connection had to be waited for.", nil, nil)
	wakeListens = prometheus.NewDesc("switchboard_wake_listening", "1 while hints of other processes arrive.", nil, nil)
)

// Describe lists the metrics.
func (c poolCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect reads them.
func (c poolCollector) Collect(ch chan<- prometheus.Metric) {
	st := c.pool.Stat()
	ch <- prometheus.MustNewConstMetric(poolInUse, prometheus.GaugeValue, float64(st.AcquiredConns()))
	ch <- prometheus.MustNewConstMetric(poolTotal, prometheus.GaugeValue, float64(st.TotalConns()))
	ch <- prometheus.MustNewConstMetric(poolWaited, prometheus.CounterValue, float64(st.EmptyAcquireCount()))
	listening := 0.0
	if c.wake.Listening() {
		listening = 1
	}
	ch <- prometheus.MustNewConstMetric(wakeListens, prometheus.GaugeValue, listening)
}
