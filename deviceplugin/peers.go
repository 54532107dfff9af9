package deviceplugin

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/numalet/numalet/topology/oneline"
)

// Way is a way to register.
type Way string

// The ways to register.
const (
	ByRegister Way = "Register"
	ByRegistry Way = "plugin registry"
)

// Peer is the plugin of a resource, as it is to be called: the one that serves the resource, or
// else the one that is waited for.
type Peer struct {
	Resource string `json:"resource"`
	// Endpoint is the path of its socket, Way how it registered. Both are empty of a resource that
	// is only known from before the agent started.
	Endpoint string `json:"endpoint,omitempty"`
	Way      Way    `json:"way,omitempty"`
	// Problem says why it is not connected; empty when it is.
	Problem string `json:"problem,omitempty"`
	Devices int    `json:"devices"`
	Healthy int    `json:"healthy"`
	// Cordoned counts those that are not given to new containers, healthy or not.
	Cordoned int `json:"cordoned,omitempty"`
	// Calls are those that have come back, by their names; LastError is of the last that failed.
	Calls       map[string]Calls `json:"calls,omitempty"`
	LastError   string           `json:"lastError,omitempty"`
	LastErrorAt *time.Time       `json:"lastErrorAt,omitempty"`
}

// Calls counts calls of one kind.
type Calls struct {
	All    int `json:"all"`
	Failed int `json:"failed"`
}

// Peers are the plugins, in the order of their resources.
func (p *Plugins) Peers() []Peer {
	v := p.current.Load()
	out := []Peer{}
	for _, name := range slices.Sorted(maps.Keys(v.links)) {
		l, r := v.links[name], v.inventory.Resources[name]
		peer := Peer{
			Resource: name, Endpoint: l.socket, Way: l.way, Problem: r.Problem,
			Devices: len(r.Devices), Cordoned: r.Cordoned(),
		}
		for _, d := range r.Devices {
			peer.Healthy += count(d.Healthy)
		}
		l.tally.tell(&peer)
		out = append(out, peer)
	}
	return out
}

// tally counts the calls to one plugin.
type tally struct {
	mu    sync.Mutex
	calls map[string]Calls
	last  string // what the last call that failed said
	at    time.Time
}

// add counts a call that has come back.
func (t *tally) add(rpc string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls == nil {
		t.calls = map[string]Calls{}
	}
	c := t.calls[rpc]
	c.All++
	if err != nil {
		c.Failed++
		t.last, t.at = oneline.Of(rpc+": "+err.Error()), time.Now()
	}
	t.calls[rpc] = c
}

// tell writes the counts into a peer.
func (t *tally) tell(peer *Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	peer.Calls, peer.LastError = maps.Clone(t.calls), t.last
	if at := t.at; t.last != "" {
		peer.LastErrorAt = &at
	}
}
