package crisim

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// store holds the runtime's state. Its methods are the transitions: each is one locked step that
// happens as a whole or returns an error. Only close waits.
//
//	sandbox:    run -> ready --stop--> not ready --remove--> gone
//	container:  create -> created --start--> running --exit--> exited --remove--> gone
type store struct {
	contents
	names     names
	addresses addresses
	closed    bool
	timers    sync.WaitGroup // pending exits
	events    *events
	watcher   func(Container) // nil: not called
}

// contents holds all sandboxes and containers. Its methods read.
type contents struct {
	mu         sync.Mutex // guards the store
	sandboxes  map[string]*sandbox
	containers map[string]*container
	clock      clock
}

// sandbox: the first group of fields never changes; store.mu guards the second.
type sandbox struct {
	id      string
	handler string
	created int64
	config  *runtimeapi.PodSandboxConfig

	ready bool
	ip    string // "" in the host's network or when not ready
}

// container: store.mu guards resources and life, and created until the store has the container. The
// other fields never change.
type container struct {
	id       string
	sandbox  *sandbox
	created  int64
	imageRef string
	config   *runtimeapi.ContainerConfig
	script   Script
	done     chan struct{} // closed on exit

	resources *runtimeapi.LinuxContainerResources // replaced, never changed in place
	life      life
}

type life struct {
	state             runtimeapi.ContainerState
	started, finished int64
	exit              Exit
	terminating       bool // SIGTERM was sent
	ending            bool // its last output is being written
}

func newStore(e *events) *store {
	return &store{
		contents: contents{
			sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		},
		names:     names{},
		addresses: addresses{used: map[string]bool{}},
		events:    e,
	}
}

// close stops pending exits and waits for exits in progress.
func (s *store) close() {
	defer s.timers.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.containers {
		if c.life.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
			close(c.done) // releases the pending exits
			c.life.state = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		}
	}
}

func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x", b)
}

func sandboxName(m *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s_%d", m.GetName(), m.GetNamespace(), m.GetUid(), m.GetAttempt())
}

func containerName(c *runtimeapi.ContainerMetadata, p *runtimeapi.PodSandboxMetadata) string {
	return fmt.Sprintf("%s_%s_%s_%s_%d",
		c.GetName(), p.GetName(), p.GetNamespace(), p.GetUid(), c.GetAttempt())
}

func hostNetwork(c *runtimeapi.PodSandboxConfig) bool {
	options := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	return options.GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (s *store) runSandbox(cfg *runtimeapi.PodSandboxConfig, handler string) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := &sandbox{id: newID(), handler: handler, config: cfg, ready: true}
	name := sandboxName(cfg.GetMetadata())
	if err := s.names.reserve("sandbox", name, sb.id); err != nil {
		return nil, err
	}
	if !hostNetwork(cfg) {
		ip, err := s.addresses.take()
		if err != nil {
			delete(s.names, name)
			return nil, err
		}
		sb.ip = ip
	}
	sb.created = s.clock.now()
	s.sandboxes[sb.id] = sb
	s.emitLocked(sb.id, sb, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	s.emitLocked(sb.id, sb, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return sb, nil
}

// stopSandbox frees the address. The caller ends the containers first.
func (s *store) stopSandbox(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, ok := s.sandboxes[id]
	if !ok || !sb.ready {
		return
	}
	sb.ready = false
	delete(s.addresses.used, sb.ip)
	sb.ip = ""
	s.emitLocked(sb.id, sb, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

func (s *store) removeSandbox(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, ok := s.sandboxes[id]
	if !ok {
		return
	}
	delete(s.sandboxes, id)
	delete(s.names, sandboxName(sb.config.GetMetadata()))
	s.emitLocked(sb.id, nil, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

func (s *store) createContainer(c *container) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.sandbox.ready || s.sandboxes[c.sandbox.id] == nil {
		return status.Errorf(codes.Unknown, "sandbox container %q is not running", c.sandbox.id)
	}
	name := containerName(c.config.GetMetadata(), c.sandbox.config.GetMetadata())
	if err := s.names.reserve("container", name, c.id); err != nil {
		return err
	}
	c.created = s.clock.now()
	c.life.state = runtimeapi.ContainerState_CONTAINER_CREATED
	s.containers[c.id] = c
	s.tellLocked(c)
	s.emitLocked(c.id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return nil
}

func (s *store) startContainer(c *container) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.life.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return status.Errorf(codes.Unknown,
			"failed to set starting state for container %q: container is in %s state", c.id,
			c.life.state)
	}
	if !c.sandbox.ready {
		return status.Errorf(codes.Unknown, "sandbox container %q is not running", c.sandbox.id)
	}
	c.life.started = s.clock.now()
	c.life.state = runtimeapi.ContainerState_CONTAINER_RUNNING
	s.tellLocked(c)
	s.emitLocked(c.id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return nil
}

// claimEnd selects the one caller that ends a running container. If mine is false and running is
// true, the caller waits for c.done.
func (s *store) claimEnd(c *container) (mine, running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	running = c.life.state == runtimeapi.ContainerState_CONTAINER_RUNNING
	mine = running && !c.life.ending
	c.life.ending = c.life.ending || mine
	return mine, running
}

// exit ends a container that runs.
func (s *store) exit(c *container, how Exit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.life.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.life.state = runtimeapi.ContainerState_CONTAINER_EXITED
	c.life.finished = s.clock.now()
	c.life.exit = how
	if c.life.exit.Reason == "" {
		c.life.exit.Reason = "Completed"
		if how.Code != 0 {
			c.life.exit.Reason = "Error"
		}
	}
	close(c.done)
	s.tellLocked(c)
	s.emitLocked(c.id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// terminate marks a running container as terminating, and reports whether this call did.
func (s *store) terminate(c *container) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.life.state != runtimeapi.ContainerState_CONTAINER_RUNNING || c.life.terminating {
		return false
	}
	c.life.terminating = true
	return true
}

// schedule calls fn after d unless the container ends before or the store is closed. No other
// method of store starts goroutines; close joins them.
func (s *store) schedule(c *container, d time.Duration, fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.timers.Go(func() {
		select {
		case <-time.After(d):
			fn()
		case <-c.done:
		}
	})
}

func (s *store) removeContainer(c *container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.containers[c.id] == nil {
		return
	}
	if c.life.state == runtimeapi.ContainerState_CONTAINER_CREATED {
		close(c.done)
		c.life.state = runtimeapi.ContainerState_CONTAINER_EXITED // a late start sees that it is gone
	}
	delete(s.containers, c.id)
	delete(s.names, containerName(c.config.GetMetadata(), c.sandbox.config.GetMetadata()))
	s.tellLocked(c)
	s.emitLocked(c.id, c.sandbox, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
}

func (s *store) updateResources(id string, set *runtimeapi.LinuxContainerResources) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.containers[id]
	if !ok {
		return notFound("container", id)
	}
	c.resources = mergeResources(c.resources, set)
	s.tellLocked(c)
	return nil
}

func (s *contents) sandboxByID(id string) (*sandbox, error) {
	return find(s, s.sandboxes, "sandbox", id)
}

func (s *contents) containerByID(id string) (*container, error) {
	return find(s, s.containers, "container", id)
}

func find[T any](s *contents, all map[string]*T, kind, id string) (*T, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one, ok := all[id]; ok {
		return one, nil
	}
	return nil, notFound(kind, id)
}

// in lists a sandbox's containers, oldest first.
func (s *contents) in(sandboxID string) []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inLocked(sandboxID)
}

func (s *contents) inLocked(sandboxID string) []*container {
	return oldest(s.containers, func(c *container) bool {
		return sandboxID == "" || c.sandbox.id == sandboxID
	})
}

// oldest returns the wanted entries, oldest first.
func oldest[T interface{ born() (int64, string) }](all map[string]T, wanted func(T) bool) []T {
	var out []T
	for _, one := range all {
		if wanted(one) {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b T) int {
		at, id := a.born()
		at2, id2 := b.born()
		return cmp.Or(cmp.Compare(at, at2), cmp.Compare(id, id2))
	})
	return out
}

func (sb *sandbox) born() (at int64, id string)  { return sb.created, sb.id }
func (c *container) born() (at int64, id string) { return c.created, c.id }

func notFound(kind, id string) error {
	return status.Errorf(codes.NotFound,
		"an error occurred when try to find %s %q: not found", kind, id)
}
