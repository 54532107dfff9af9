package devicemanager

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

	"github.com/numalet/numalet/internal/oneline"
)

// Way is one of the two ways to register.
type Way string

const (
	ByRegister Way = "Register"
	ByRegistry Way = "plugin registry"
)

// Peer describes the plugin of a resource: the one that serves it, or else the one that is awaited.
type Peer struct {
	Resource string `json:"resource"`
	// Endpoint is the path of its socket, Way how it registered. Both are empty for a resource
	// known only from before the agent started.
	Endpoint string `json:"endpoint,omitempty"`
	Way      Way    `json:"way,omitempty"`
	// Problem says why it is not connected; empty when it is.
	Problem string `json:"problem,omitempty"`
	// Complaints say what was wrong with the newest plugin's registration and last list, and which
	// of its complaints it should drop.
	Complaints []Complaint `json:"complaints,omitempty"`
	Devices    int         `json:"devices"`
	Healthy    int         `json:"healthy"`
	// Cordoned counts the devices withheld from new containers, healthy or not.
	Cordoned int `json:"cordoned,omitempty"`
	// Released: it is told which devices no pod holds any more.
	Released bool `json:"released,omitempty"`
	// Calls counts finished calls by name; LastError is that of the last failed call.
	Calls       map[string]Calls `json:"calls,omitempty"`
	LastError   string           `json:"lastError,omitempty"`
	LastErrorAt *time.Time       `json:"lastErrorAt,omitempty"`
}

// Complaint describes, for people, a fault of a plugin that no call shows. JSON has only its
// message.
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

// Calls counts calls with one name.
type Calls struct {
	All    int `json:"all"`
	Failed int `json:"failed"`
	// LastError is the error of the last call; empty if it succeeded.
	LastError string `json:"lastError,omitempty"`
}

// wants says, for each call made for a pod, what the protocol demands of a plugin.
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
	rpcPlaces: "a plugin that serves Places of numalet.deviceplugin.v1.Lifecycle has to answer with " +
		"success, within a second; or let it not serve that",
	rpcPreStart: "a plugin has to answer, in time, when the devices can be used, before each start " +
		"of a container; or let it not set PreStartRequired",
}

// On returns the beginning of a sentence about the plugin; empty if the plugin has no socket.
func (p Peer) On() string {
	if p.Endpoint == "" {
		return ""
	}
	return "plugin on " + filepath.Base(p.Endpoint) + ": "
}

// Failing returns, for people, the calls for pods that failed the last time, sorted by name: what
// the plugin did, and what the protocol demands.
func (p Peer) Failing() (out []string) {
	for _, rpc := range slices.Sorted(maps.Keys(wants)) {
		if err := p.Calls[rpc].LastError; err != "" {
			out = append(out, fmt.Sprintf("%s%s: %s; %s", p.On(), rpc,
				strings.TrimPrefix(err, rpc+": "), wants[rpc]))
		}
	}
	return out
}

// Peers returns the plugins, sorted by resource. For a resource that no plugin ever served, it
// names the refused one.
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
			l.tally.tell(&peer)
			if m := l.behavior.complaints.Load(); m != nil {
				peer.Complaints = append(peer.Complaints, m.list(time.Now())...)
			}
		}
		out = append(out, peer)
	}
	return out
}

// complain adds a complaint, unless what is empty.
func (p *Peer) complain(reason, before, what string) {
	if what != "" {
		p.Complaints = append(p.Complaints, Complaint{reason, before + what})
	}
}

// tally counts the calls to one plugin.
type tally struct {
	mu    sync.Mutex
	calls map[string]Calls
	last  string // the error of the last failed call
	at    time.Time
}

// add counts a finished call.
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
	case errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled: // by its caller
		c.Failed++
	default:
		c.Failed++
		c.LastError = oneline.Of(err.Error())
		t.last, t.at = oneline.Of(rpc+": "+strings.TrimPrefix(err.Error(), rpc+": ")), time.Now()
	}
	t.calls[rpc] = c
}

// tell writes the counts into peer.
func (t *tally) tell(peer *Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	peer.Calls, peer.LastError = maps.Clone(t.calls), t.last
	if at := t.at; t.last != "" {
		peer.LastErrorAt = &at
	}
}
