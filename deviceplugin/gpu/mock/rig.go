package mock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/topology"
)

// maxEvents bounds the events that wait for the plugin; a driver's queue is bounded too.
const maxEvents = 1024

// Rig is a simulated machine that obeys orders. It implements gpu.Driver and is safe for concurrent
// use.
type Rig struct {
	machine *Machine

	mu     sync.Mutex
	loaded bool
	// loads counts loads of the driver: a session ends with the load in which it began.
	loads  int
	gpus   []state
	events []gpu.Event
	// made counts the MIG devices of Divide.
	made int
	// stuck is open while the driver does not answer, else nil.
	stuck chan struct{}
	// wake has capacity 1 and says that an order was obeyed.
	wake chan struct{}
}

// state is the present state of one GPU.
type state struct {
	gone      bool // the driver does not list it
	reading   gpu.Reading
	mig       bool
	instances []gpu.Instance
}

// New returns a rig with the driver loaded.
func New(m *Machine) *Rig {
	r := &Rig{machine: m, loaded: true, gpus: make([]state, len(m.GPUs)),
		wake: make(chan struct{}, 1)}
	for i := range r.gpus {
		r.gpus[i].reading = r.healthy(i)
	}
	return r
}

// Machine returns the rig's machine.
func (r *Rig) Machine() *Machine { return r.machine }

func (r *Rig) healthy(i int) gpu.Reading {
	return gpu.Reading{LinksUp: r.linksOf(i), Advises: true}
}

// linksOf returns the number of NVLinks of a GPU.
func (r *Rig) linksOf(i int) int {
	if r.machine.NVLink.Pairs == nil {
		return r.machine.NVLink.Links
	}
	count := 0
	for key, links := range r.machine.NVLink.Pairs {
		if from, to, _ := r.machine.pair(key); from == i || to == i {
			count += links
		}
	}
	return count
}

// Open implements gpu.Driver.
func (r *Rig) Open() (gpu.Session, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.loaded {
		return nil, gpu.ErrNoDriver
	}
	return &session{rig: r, load: r.loads}, nil
}

// session lasts for one load of the driver.
type session struct {
	rig  *Rig
	load int
}

func (s *session) Close() {}

// Read implements gpu.Session.
func (s *session) Read() (gpu.Snapshot, error) {
	if stuck := s.rig.stuckNow(); stuck != nil {
		<-stuck
	}
	s.rig.mu.Lock()
	defer s.rig.mu.Unlock()
	if err := s.endedLocked(); err != nil {
		return gpu.Snapshot{}, err
	}
	return s.rig.snapshotLocked(), nil
}

func (s *session) endedLocked() error {
	if !s.rig.loaded || s.rig.loads != s.load {
		return fmt.Errorf("%w: it was unloaded", gpu.ErrNoDriver)
	}
	return nil
}

// Wait implements gpu.Session.
func (s *session) Wait(ctx context.Context, limit time.Duration) (gpu.Event, bool, error) {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		event, found, err := s.next()
		if found || err != nil {
			return event, found, err
		}
		select {
		case <-s.rig.wake:
		case <-deadline.C:
			return gpu.Event{}, false, nil
		case <-ctx.Done():
			return gpu.Event{}, false, nil
		}
	}
}

func (s *session) next() (gpu.Event, bool, error) {
	s.rig.mu.Lock()
	defer s.rig.mu.Unlock()
	if err := s.endedLocked(); err != nil {
		return gpu.Event{}, false, err
	}
	if len(s.rig.events) == 0 {
		return gpu.Event{}, false, nil
	}
	event := s.rig.events[0]
	s.rig.events = s.rig.events[1:]
	return event, true, nil
}

func (r *Rig) stuckNow() chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stuck
}

func (r *Rig) snapshotLocked() gpu.Snapshot {
	out := gpu.Snapshot{Driver: r.machine.Driver, CUDA: r.machine.CUDA, StandIn: "/dev/null"}
	up := make([]int, len(r.gpus))
	for i, s := range r.gpus {
		up[i] = s.reading.LinksUp
		if r.machine.NVLink.Pairs != nil && s.reading.LinksDown == 0 {
			up[i] = r.machine.NVLink.Links
		}
	}
	links := r.machine.links(up)
	var there []int
	for i, s := range r.gpus {
		if s.gone {
			continue
		}
		there = append(there, i)
		out.GPUs = append(out.GPUs, r.gpuLocked(i))
	}
	for _, i := range there {
		row := links[i][:0:0]
		for _, j := range there {
			row = append(row, links[i][j])
		}
		out.Links = append(out.Links, row)
	}
	return out
}

func (r *Rig) gpuLocked(i int) gpu.GPU {
	way, _ := r.machine.GPUs[i].place()
	s := r.gpus[i]
	traits := r.machine.traits()
	if s.mig {
		traits.Partitions = r.machine.partitions()
	}
	return gpu.GPU{
		UUID: UUID(i), Name: r.machine.Model.Name, Index: i, Minor: i,
		Bus: r.machine.GPUs[i].Bus, Root: r.machine.root(i), Node: topology.NodeID(way[0]),
		Traits: traits,
		MIG:    s.mig, Instances: slices.Clone(s.instances), Reading: s.reading,
	}
}

// UUID returns the UUID of the GPU at a position.
func UUID(i int) string { return fmt.Sprintf("GPU-%08x-6e75-6d61-6c65-740000000000", i) }
