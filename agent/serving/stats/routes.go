package stats

import (
	"encoding/json"
	"net/http"

	"github.com/numalet/numalet/internal/route"
)

// maxQuery bounds the body of a POST.
const maxQuery = 64 << 10

// Routes returns the kubelet's routes: the summary, and the metrics of resource use.
func (c *Collector) Routes() []route.Route {
	return []route.Route{
		{Method: http.MethodGet, Pattern: "/stats/summary", Handler: http.HandlerFunc(c.summary),
			Slash: true},
		{Method: http.MethodPost, Pattern: "/stats/summary", Handler: http.HandlerFunc(c.summary),
			Slash: true},
		{Method: http.MethodGet, Pattern: "/metrics/resource",
			Handler: http.HandlerFunc(c.resource)},
		{Method: http.MethodGet, Pattern: "/metrics/cadvisor",
			Handler: http.HandlerFunc(c.cadvisor)},
	}
}

func (c *Collector) summary(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxQuery)
	only := r.FormValue("only_cpu_and_memory") == "true"
	s, err := c.Snapshot(r.Context())
	if s == nil {
		unknown(w, err)
		return
	}
	all := CPUAndMemory(s)
	if !only {
		all = Summary(s, c.disks.Get())
	}
	text, err := json.Marshal(all)
	if err != nil {
		http.Error(w, "encode summary: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // an error means that the client has gone
}

// unknown answers as long as nothing could be read.
func unknown(w http.ResponseWriter, err error) {
	why := "it is being read; ask again"
	if err != nil {
		why = err.Error()
	}
	http.Error(w, "nothing is known yet of what pods use: "+why, http.StatusInternalServerError)
}

func (c *Collector) resource(w http.ResponseWriter, r *http.Request) {
	s, err := c.Snapshot(r.Context())
	writeMetrics(w, resourceMetrics(s, err != nil || s == nil))
}

func (c *Collector) cadvisor(w http.ResponseWriter, r *http.Request) {
	s, err := c.Snapshot(r.Context())
	if s == nil {
		unknown(w, err)
		return
	}
	m, _ := c.metrics.get(r.Context()) // without it, or with an older one, the rest is still true
	groups := c.readGroups(s, len(m.Descriptors) == 0)
	writeMetrics(w, cadvisorMetrics(cadvisorInput{s, c.disks.Get(), m, groups}))
}

func writeMetrics(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(text) // an error means that the client has gone
}
