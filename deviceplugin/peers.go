package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/topology/oneline"
)

// Way is a way to register.
type Way string

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
	// Complaints say what was wrong with how the newest plugin registered and with the last list,
	// and what it had better not do.
	Complaints []Complaint `json:"complaints,omitempty"`
	Devices    int         `json:"devices"`
	Healthy    int         `json:"healthy"`
	// Cordoned counts those that are not given to new containers, healthy or not.
	Cordoned int `json:"cordoned,omitempty"`
	// Released: it is told which devices nobody has any more.
	Released bool `json:"released,omitempty"`
	// Calls are those that have come back, by their names; LastError is of the last that failed.
	Calls       map[string]Calls `json:"calls,omitempty"`
	LastError   string           `json:"lastError,omitempty"`
	LastErrorAt *time.Time       `json:"lastErrorAt,omitempty"`
}

// Complaint is what a plugin does wrong beside calls, for people. In JSON it is its message alone.
type Complaint struct {
	Reason, Message string
}

// MarshalText implements encoding.TextMarshaler.
func (c Complaint) MarshalText() ([]byte, error) { return []byte(c.Message), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *Complaint) UnmarshalText(text []byte) error {
	c.Message = string(text)
	return nil
}

func (c Complaint) String() string { return c.Message }

// Calls counts calls of one kind.
type Calls struct {
	All    int `json:"all"`
	Failed int `json:"failed"`
	// LastError is what the last one said; empty when it did not fail.
	LastError string `json:"lastError,omitempty"`
}

// wants is what the protocol wants of a plugin that is called for a pod, by the names of calls.
var wants = map[string]string{
	rpcAllocate: "a plugin has to answer with one response for each container that it is asked " +
		"about, in time, for any of its healthy devices and as often as it is asked; with absolute " +
		"paths, permissions of the letters r, w and m, and CDI devices like vendor.com/class=name",
	rpcPreferred: "a plugin has to answer with as many devices as are asked for, of those on offer " +
		"and with those that must be among them; or let it not set GetPreferredAllocationAvailable",
	rpcReleased: "a plugin that serves numalet.deviceplugin.v1.Lifecycle has to answer with success, " +
		"in time and as often as it is told, also for devices that it lists no more; or let it " +
		"not serve that",
	rpcReasons: "a plugin that serves Reasons of numalet.deviceplugin.v1.Lifecycle has to answer with " +
		"success, within a second; or let it not serve that",
	rpcPreStart: "a plugin has to answer, in time, when the devices can be used, before each start " +
		"of a container; or let it not set PreStartRequired",
}

// On begins a sentence about the plugin; empty of one that has no socket.
func (p Peer) On() string {
	if p.Endpoint == "" {
		return ""
	}
	return "plugin on " + filepath.Base(p.Endpoint) + ": "
}

// Failing says, for people, which calls for pods failed the last time that they were made, by their
// names: what the plugin did, and what the protocol wants.
func (p Peer) Failing() (out []string) {
	for _, rpc := range slices.Sorted(maps.Keys(wants)) {
		if err := p.Calls[rpc].LastError; err != "" {
			out = append(out, fmt.Sprintf("%s%s: %s; %s", p.On(), rpc,
				strings.TrimPrefix(err, rpc+": "), wants[rpc]))
		}
	}
	return out
}

// Peers are the plugins, in the order of their resources; of a resource that none serves, the one
// that was refused.
func (p *Plugins) Peers() []Peer {
	v := p.current.Load()
	names := slices.AppendSeq(slices.Collect(maps.Keys(v.links)), maps.Keys(v.inventory.Refused))
	slices.Sort(names)
	out := []Peer{}
	for _, name := range slices.Compact(names) {
		l, r := v.links[name], v.inventory.Resources[name]
		peer := Peer{
			Resource: name, Problem: r.Problem, Devices: len(r.Devices), Cordoned: r.Cordoned(),
			Released: r.Options.Released == ReleasedWanted,
		}
		for _, d := range r.Devices {
			peer.Healthy += count(d.Healthy)
		}
		peer.complain("RegistrationRefused", "its registration was refused: ", v.inventory.Refused[name])
		peer.complain("RegisteredBeforeServing", "", r.Early)
		peer.complain("FaultyList", "its list of devices (ListAndWatch): ", r.Complaint)
		if r.Connected && len(r.Devices) == 0 {
			peer.complain("NoDevices", "", "it lists no devices (ListAndWatch)")
		}
		if l == nil {
			peer.Problem = "no plugin has registered"
		} else {
			peer.Endpoint, peer.Way = l.socket, l.way
			l.conduct.tell(&peer)
		}
		out = append(out, peer)
	}
	return out
}

// complain takes a complaint, unless there is nothing to say.
func (p *Peer) complain(reason, before, what string) {
	if what != "" {
		p.Complaints = append(p.Complaints, Complaint{reason, before + what})
	}
}

// tell writes into a peer what is known of its conduct.
func (c *conduct) tell(peer *Peer) {
	c.tally.tell(peer)
	if m := c.manners.Load(); m != nil {
		peer.Complaints = append(peer.Complaints, m.complaints(time.Now())...)
	}
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
	switch {
	case err == nil:
		c.LastError = ""
	case errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled: // by who made it
		c.Failed++
	default:
		c.Failed++
		c.LastError = oneline.Of(err.Error())
		t.last, t.at = oneline.Of(rpc+": "+strings.TrimPrefix(err.Error(), rpc+": ")), time.Now()
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
