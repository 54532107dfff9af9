package crisim

import (
	"net/http"
	"strconv"

	"github.com/numalet/numalet/cmd/numalet-lab/control"
)

// routes returns the control API. Requests are JSON, answers are JSON or empty; a bad request gets
// a 400 with one line of text.
//
//	GET    /state          State
//	GET    /journal?since= []Call
//	POST   /faults         Fault
//	DELETE /faults
//	POST   /exit           {"container": "<id> or pod/container", "code": 1}
//	POST   /kill-sandbox   {"sandbox": "<id> or namespace/pod"}
//	POST   /events         {"mode": "on", "silent" or "unimplemented"}
//	DELETE /events         ends the open streams
//	POST   /ready          Ready
//	POST   /missing        {"images": ["pattern"]}
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		control.Answer(w, s.State())
	})
	mux.HandleFunc("GET /journal", func(w http.ResponseWriter, r *http.Request) {
		var since uint64
		if text := r.URL.Query().Get("since"); text != "" {
			var err error
			if since, err = strconv.ParseUint(text, 10, 64); err != nil {
				http.Error(w, "since: "+err.Error(), http.StatusBadRequest)
				return
			}
		}
		control.Answer(w, s.Journal(since))
	})
	mux.Handle("POST /faults", control.Order(s.SetFault))
	mux.Handle("DELETE /faults", control.Do(s.ClearFaults))
	mux.Handle("POST /exit", control.Order(func(order struct {
		Container string `json:"container"`
		Exit
	}) error {
		return s.Exit(order.Container, order.Exit)
	}))
	mux.Handle("POST /kill-sandbox", control.Order(func(order struct {
		Sandbox string `json:"sandbox"`
	}) error {
		return s.KillSandbox(order.Sandbox)
	}))
	mux.Handle("POST /events", control.Order(func(order struct {
		Mode EventMode `json:"mode"`
	}) error {
		return s.SetEvents(order.Mode)
	}))
	mux.Handle("DELETE /events", control.Do(s.DropEvents))
	mux.Handle("POST /ready", control.Order(func(r Ready) error { s.SetReady(r); return nil }))
	mux.Handle("POST /missing", control.Order(func(order struct {
		Images []string `json:"images"`
	}) error {
		return s.SetMissing(order.Images)
	}))
	return mux
}
