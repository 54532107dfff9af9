package sim

import (
	"context"
	"fmt"
	"log"
	"maps"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/internal/await"
)

// RPC names what can misbehave.
type RPC string

// The calls of v1beta1 and of numalet's own service, and Serve: the moment when the plugin begins
// to listen. With a fault in Serve it registers first and listens later.
const (
	Register  RPC = "Register"
	Options   RPC = "GetDevicePluginOptions"
	List      RPC = "ListAndWatch"
	Preferred RPC = "GetPreferredAllocation"
	Allocate  RPC = "Allocate"
	PreStart  RPC = "PreStartContainer"
	Released  RPC = "Released" // of numalet.deviceplugin.v1.Lifecycle
	Serve     RPC = "Serve"
)

// RPCs lists all RPCs.
func RPCs() []RPC {
	return []RPC{Register, Options, List, Preferred, Allocate, PreStart, Released, Serve}
}

// Lie is a well-formed but wrong answer.
type Lie string

// The lies, with the calls that they apply to.
const (
	Foreign   Lie = "foreign"   // Preferred: ids that do not exist
	Broken    Lie = "broken"    // Preferred: an unhealthy device is included
	Few       Lie = "few"       // Preferred: one id fewer than requested
	Empty     Lie = "empty"     // Preferred, Allocate: an answer for no container; List: no device
	Duplicate Lie = "duplicate" // List: every device twice
	Nowhere   Lie = "nowhere"   // List: devices on NUMA node 4095
)

// Fault describes how one call misbehaves.
type Fault struct {
	RPC RPC `json:"rpc"`
	// Delay is the time before the call continues or fails.
	Delay metav1.Duration `json:"delay,omitzero"`
	// Hang: no answer until the fault is cleared.
	Hang bool `json:"hang,omitempty"`
	// Code is the name of the gRPC status code of the failure ("UNAVAILABLE"), Message its text.
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// Lie applies to the answer.
	Lie Lie `json:"lie,omitempty"`
	// Count is the number of calls that misbehave; 0: all.
	Count int `json:"count,omitempty"`
}

func (f Fault) code() (codes.Code, error) {
	if f.Code == "" {
		return codes.OK, nil
	}
	var code codes.Code
	if err := code.UnmarshalJSON([]byte(`"` + strings.ToUpper(f.Code) + `"`)); err != nil {
		return code, fmt.Errorf("code %q: write a gRPC status code like UNAVAILABLE", f.Code)
	}
	return code, nil
}

// State is the plugin's answer about itself.
type State struct {
	Resource   string      `json:"resource"`
	Socket     string      `json:"socket"`
	Registered int         `json:"registered"` // how often, successfully
	Devices    []Device    `json:"devices"`
	Calls      map[RPC]int `json:"calls"`
	// Holders has, for each call, the holder in the metadata of the last one.
	Holders map[RPC]holder.Holder `json:"holders,omitempty"`
	// Given has the holder of each allocated device, by id.
	Given  map[string]Given `json:"given,omitempty"`
	Faults map[RPC]Fault    `json:"faults"`
	// Released lists the answered calls of Released; the last hundred.
	Released []Release `json:"released,omitempty"`
}

// Given holds the containers for which a device was last allocated and prepared.
type Given struct {
	Allocated holder.Holder `json:"allocated"`
	Prepared  holder.Holder `json:"prepared,omitzero"`
}

// Release is one call of Released: devices, and the pod that held them.
type Release struct {
	IDs []string      `json:"ids"`
	By  holder.Holder `json:"by"`
}

// mostReleases bounds State.Released.
const mostReleases = 100

// state is shared by the servers.
type state struct {
	log *log.Logger

	mu      sync.Mutex
	now     State
	version int           // grows with each change of devices
	changed chan struct{} // closed and replaced on each change of devices or faults
}

func newState(cfg Config) *state {
	return &state{
		log: log.New(cfg.Out, cfg.Resource+": ", log.Ltime|log.Lmsgprefix),
		now: State{
			Resource: cfg.Resource, Socket: cfg.Socket, Devices: slices.Clone(cfg.Devices),
			Calls: map[RPC]int{}, Holders: map[RPC]holder.Holder{}, Faults: map[RPC]Fault{},
			Given: map[string]Given{},
		},
		version: 1, changed: make(chan struct{}),
	}
}

func (s *state) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// change applies a change to a copy of the devices; after an error nothing has changed.
func (s *state) change(apply func([]Device) ([]Device, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := apply(slices.Clone(s.now.Devices))
	if err != nil {
		return err
	}
	s.now.Devices = next
	s.version++
	s.wakeLocked()
	return nil
}

func (s *state) setFault(f Fault) error {
	if !slices.Contains(RPCs(), f.RPC) {
		return fmt.Errorf("rpc %q: there are %v", f.RPC, RPCs())
	}
	if _, err := f.code(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Faults[f.RPC] = f
	s.wakeLocked()
	return nil
}

func (s *state) clearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.now.Faults)
	s.wakeLocked()
}

func (s *state) hasFault(rpc RPC) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, has := s.now.Faults[rpc]
	return has
}

func (s *state) setRegistered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Registered++
}

// list returns the devices, their version, and a channel that closes when they or the faults
// change.
func (s *state) list() ([]Device, int, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Devices, s.version, s.changed
}

func (s *state) tell() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.now
	out.Devices, out.Released = slices.Clone(out.Devices), slices.Clone(out.Released)
	out.Calls, out.Holders = maps.Clone(out.Calls), maps.Clone(out.Holders)
	out.Faults, out.Given = maps.Clone(out.Faults), maps.Clone(out.Given)
	return out
}

// texts returns a function for one text of each device, by id.
func (s *state) texts(of func(Device) string) func() map[string]string {
	return func() map[string]string {
		devices, _, _ := s.list()
		out := map[string]string{}
		for _, d := range devices {
			out[d.ID] = of(d)
		}
		return out
	}
}

func (s *state) addRelease(r Release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now.Released = append(s.now.Released, r)
	s.now.Released = s.now.Released[max(0, len(s.now.Released)-mostReleases):]
}

// use returns the fault of the next call of rpc, if any, and counts it down.
func (s *state) use(rpc RPC) (Fault, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.now.Faults[rpc]
	if f.Count > 1 {
		left := f
		left.Count--
		s.now.Faults[rpc] = left
	}
	if f.Count == 1 {
		delete(s.now.Faults, rpc)
	}
	return f, s.changed
}

// called counts a call, then misbehaves.
func (s *state) called(ctx context.Context, rpc RPC) (Lie, error) {
	s.mu.Lock()
	s.now.Calls[rpc]++
	if h, known := holder.From(ctx); known {
		s.now.Holders[rpc] = h
	}
	s.mu.Unlock()
	lie, err := s.misbehave(ctx, rpc)
	if err != nil {
		s.log.Printf("%s%s: %v", CallOf, rpc, err)
		return "", err
	}
	s.log.Printf("%s%s", CallOf, rpc)
	return lie, nil
}

// CallOf begins what a line of Config.Out says of a call; its name follows, and the error that the
// plugin has for it.
const CallOf = "call of "

// give records the holder of the devices.
func (s *state) give(ctx context.Context, ids []string, note func(*Given, holder.Holder)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to, _ := holder.From(ctx) // without metadata it is zero
	for _, id := range ids {
		g := s.now.Given[id]
		note(&g, to)
		s.now.Given[id] = g
	}
}

// misbehave applies the fault of rpc: it waits, returns an error, or returns the lie to tell. A
// hanging call continues when the fault is cleared or replaced.
func (s *state) misbehave(ctx context.Context, rpc RPC) (Lie, error) {
	f, changed := s.use(rpc)
	if f.Delay.Duration > 0 && !await.For(ctx, f.Delay.Duration) {
		return "", status.FromContextError(ctx.Err()).Err()
	}
	if f.Hang {
		if err := s.hang(ctx, rpc, changed); err != nil {
			return "", err
		}
		return s.misbehave(ctx, rpc)
	}
	if code, _ := f.code(); code != codes.OK {
		return "", status.Error(code, f.Message)
	}
	return f.Lie, nil
}

// hang waits until no fault hangs rpc.
func (s *state) hang(ctx context.Context, rpc RPC, changed <-chan struct{}) error {
	for await.On(ctx, changed) {
		var still bool
		if still, changed = s.hangs(rpc); !still {
			return nil
		}
	}
	return status.FromContextError(ctx.Err()).Err()
}

func (s *state) hangs(rpc RPC) (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Faults[rpc].Hang, s.changed
}
