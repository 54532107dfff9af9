package sim

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/numalet/numalet/topology/strictyaml"
)

// exitRequest is the body of POST /exit.
type exitRequest struct {
	Container string `json:"container"`
	Exit
}

type eventsRequest struct {
	Mode EventMode `json:"mode"`
}

type missingRequest struct {
	Images []string `json:"images"`
}

type sandboxRequest struct {
	Sandbox string `json:"sandbox"`
}

// routes is the control API: JSON in, JSON or nothing out, 400 with a line of text for what is
// wrong with a request.
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
		reply(w, s.State())
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
		reply(w, s.Journal(since))
	})
	mux.Handle("POST /faults", accept(s.SetFault))
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) {
		s.ClearFaults()
	})
	mux.Handle("POST /exit", accept(func(r exitRequest) error {
		return s.Exit(r.Container, r.Exit)
	}))
	mux.Handle("POST /kill-sandbox", accept(func(r sandboxRequest) error {
		return s.KillSandbox(r.Sandbox)
	}))
	mux.Handle("POST /events", accept(func(r eventsRequest) error { return s.SetEvents(r.Mode) }))
	mux.HandleFunc("DELETE /events", func(w http.ResponseWriter, _ *http.Request) {
		s.DropEvents()
	})
	mux.Handle("POST /ready", accept(func(r Ready) error { s.SetReady(r); return nil }))
	mux.Handle("POST /missing", accept(func(r missingRequest) error {
		return s.SetMissing(r.Images)
	}))
	return mux
}

// accept decodes a request body strictly and hands it on.
func accept[T any](do func(T) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body T
		data, err := io.ReadAll(r.Body)
		if err == nil {
			err = strictyaml.UnmarshalJSON(data, &body)
		}
		if err == nil {
			err = do(body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(body) // the client went away
}
