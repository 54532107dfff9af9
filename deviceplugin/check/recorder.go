package check

import (
	"bytes"
	"context"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/stats"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/watcher"
)

// recorder hears every message between the device manager, the checks and the plugin. It keeps what
// checks ask for, and the transcript.
type recorder struct {
	*Transcript
	pulse *pulse

	mu    sync.Mutex // guards the fields below
	calls []*call
	// registrations are the requests to Register, found the answers to GetInfo.
	registrations []*v1beta1.RegisterRequest
	found         []watcher.Plugin
}

// mostCalls bounds the record. Messages of calls beyond it are not recorded.
const mostCalls = 20_000

// Bounds of the lists that are kept of a call.
const (
	mostKept    = 64
	longestKept = 256 << 10
)

// call is the state of one call. The recorder owns its fields.
type call struct {
	method string // without the service
	by     side
	to     string // path of the called socket
	began  time.Time
	heard  bool
	// answers counts incoming messages, repeats those that equal the one before.
	answers, repeats int
	// last is the last message of ListAndWatch.
	last []byte
	// lists are the last messages that differ from the one before, unless they are long.
	lists [][]byte
	ended bool
	err   error
}

// side names the caller.
type side string

const (
	byManager side = "device manager"
	byPlugin  side = "plugin"
	byCheck   side = "check"
)

// handler returns a handler for the connections of one side to a socket.
func (r *recorder) handler(by side, to string) stats.Handler {
	return handler{listener{r.Transcript, string(by), string(byPlugin)}, r, to}
}

// handler records calls, and writes them into the transcript.
type handler struct {
	listener
	rec *recorder
	to  string
}

type callKey struct{}

// TagRPC implements stats.Handler.
func (h handler) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	c := &call{
		method: path.Base(info.FullMethodName), by: side(h.caller), to: h.to, began: time.Now(),
	}
	return context.WithValue(h.listener.TagRPC(ctx, info), callKey{}, c)
}

// HandleRPC implements stats.Handler.
func (h handler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	h.listener.HandleRPC(ctx, s) // first, so that a check that has seen the call comes after it
	h.rec.hear(c, s)
	h.rec.pulse.beat()
}

func (r *recorder) hear(c *call, s stats.RPCStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch s := s.(type) {
	case *stats.Begin:
		if !s.Client { // the device manager is called: Register
			c.by = byPlugin
		}
		if c.heard = len(r.calls) < mostCalls; c.heard {
			r.calls = append(r.calls, c)
		}
	case *stats.InPayload:
		r.take(c, s.Payload)
	case *stats.End:
		c.ended, c.err = true, s.Error
	}
}

// take keeps what checks ask for from an incoming message.
func (r *recorder) take(c *call, message any) {
	if !c.heard {
		return
	}
	c.answers++
	switch m := message.(type) {
	case *v1beta1.RegisterRequest:
		r.registrations = append(r.registrations, m)
	case *registerapi.PluginInfo:
		r.found = append(r.found, watcher.PluginAt(c.to, m))
	}
	if raw := bytesOf(message); raw != nil && c.method == listCall {
		if c.answers > 1 && bytes.Equal(raw, c.last) {
			c.repeats++
		} else if len(c.lists) < mostKept && len(raw) <= longestKept {
			c.lists = append(c.lists, raw)
		}
		c.last = raw
	}
}

// asked returns copies of the calls of a method by a side, in order.
func (r *recorder) asked(by side, method string) (out []call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.calls {
		if c.by == by && c.method == method {
			out = append(out, *c)
		}
	}
	return out
}

// requests returns the requests to Register.
func (r *recorder) requests() []*v1beta1.RegisterRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.registrations)
}

// resources returns the names under which plugins registered, each once, in that order.
func (r *recorder) resources() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, req := range r.registrations {
		add(req.GetResourceName())
	}
	for _, found := range r.found {
		if found.Type == registerapi.DevicePlugin {
			add(found.Name)
		}
	}
	return names
}

// introduced returns the answers of plugins of the plugin registry to GetInfo.
func (r *recorder) introduced() []watcher.Plugin {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.found)
}
