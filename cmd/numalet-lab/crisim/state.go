package crisim

import (
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/internal/flatjson"
)

// State is a snapshot of everything the runtime holds. Its messages are shared: read only.
type State struct {
	Sandboxes  []Sandbox   `json:"sandboxes"`  // oldest first
	Containers []Container `json:"containers"` // oldest first
	Images     []string    `json:"images"`     // full names, sorted
	// Calls counts every call so far by RPC name.
	Calls map[string]int `json:"calls"`
	// PodCIDR is from the last UpdateRuntimeConfig.
	PodCIDR string `json:"podCIDR,omitempty"`
}

// Sandbox describes one sandbox. Subject.Attempt is the sandbox's.
type Sandbox struct {
	Subject
	Ready     bool                         `json:"ready"`
	IP        string                       `json:"ip,omitempty"`
	Handler   string                       `json:"handler,omitempty"`
	CreatedAt time.Time                    `json:"createdAt"`
	Config    *runtimeapi.PodSandboxConfig `json:"config"`
}

// Container describes one container. Subject.Attempt is the container's. Its JSON is flat.
type Container struct {
	Subject   Subject `json:"-"`
	SandboxID string  `json:"sandboxID"`
	// State is CREATED, RUNNING or EXITED; Watch adds StateRemoved.
	State string `json:"state"`
	// CPUs and Mems are the sets in force, including updates.
	CPUs       string                              `json:"cpus,omitempty"`
	Mems       string                              `json:"mems,omitempty"`
	Exit       *Exit                               `json:"exit,omitempty"`
	CreatedAt  time.Time                           `json:"createdAt"`
	StartedAt  time.Time                           `json:"startedAt,omitzero"`
	FinishedAt time.Time                           `json:"finishedAt,omitzero"`
	Resources  *runtimeapi.LinuxContainerResources `json:"resources"`
	Config     *runtimeapi.ContainerConfig         `json:"config"`
}

// besides is a Container without MarshalJSON.
type besides Container

// MarshalJSON writes the container as one object.
func (c Container) MarshalJSON() ([]byte, error) { return flatjson.Marshal(c.Subject, besides(c)) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Container) UnmarshalJSON(text []byte) error {
	return flatjson.Unmarshal(text, &c.Subject, (*besides)(c))
}

// Running reports whether the container runs.
func (c Container) Running() bool { return c.State == "RUNNING" }

// Env returns the container's environment.
func (c Container) Env() map[string]string {
	out := map[string]string{}
	for _, kv := range c.Config.GetEnvs() {
		out[kv.GetKey()] = string(kv.GetValue())
	}
	return out
}

// Running returns the running containers.
func (s State) Running() []Container {
	var out []Container
	for _, c := range s.Containers {
		if c.Running() {
			out = append(out, c)
		}
	}
	return out
}

// Container returns the newest container of that pod and name.
func (s State) Container(pod, name string) (Container, bool) {
	for _, c := range slices.Backward(s.Containers) {
		if c.Subject.Pod == pod && c.Subject.Container == name {
			return c, true
		}
	}
	return Container{}, false
}

// State returns a snapshot.
func (s *Server) State() State {
	out := s.store.dump()
	for _, img := range s.images.list() {
		out.Images = append(out.Images, img.name)
	}
	out.Calls = s.journal.count()
	s.mu.Lock()
	defer s.mu.Unlock()
	out.PodCIDR = s.podCIDR
	return out
}

func (s *contents) dump() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := State{Sandboxes: []Sandbox{}, Containers: []Container{}, Images: []string{}}
	for _, sb := range oldest(s.sandboxes, func(*sandbox) bool { return true }) {
		d := Sandbox{
			Ready:     sb.ready,
			IP:        sb.ip,
			Handler:   sb.handler,
			CreatedAt: time.Unix(0, sb.created),
			Config:    sb.config,
		}
		d.pod(sb.config.GetMetadata())
		d.ID = sb.id
		out.Sandboxes = append(out.Sandboxes, d)
	}
	for _, c := range s.inLocked("") {
		out.Containers = append(out.Containers, c.dumpLocked())
	}
	return out
}

func (c *container) dumpLocked() Container {
	d := Container{
		SandboxID: c.sandbox.id,
		State:     strings.TrimPrefix(c.life.state.String(), "CONTAINER_"),
		CPUs:      c.resources.GetCpusetCpus(),
		Mems:      c.resources.GetCpusetMems(),
		CreatedAt: time.Unix(0, c.created),
		StartedAt: timeOf(c.life.started), FinishedAt: timeOf(c.life.finished),
		Resources: c.resources,
		Config:    c.config,
	}
	if c.life.finished != 0 {
		d.Exit = new(c.life.exit)
	}
	d.Subject.pod(c.sandbox.config.GetMetadata())
	d.Subject.container(c.config.GetMetadata())
	d.Subject.ID = c.id
	d.Subject.Image = c.config.GetImage().GetImage()
	return d
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func (s *contents) stateOf(c *container) (state string, running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.life.state.String(), c.life.state == runtimeapi.ContainerState_CONTAINER_RUNNING
}
