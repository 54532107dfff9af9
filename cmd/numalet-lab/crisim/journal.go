package crisim

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Subject names the object of a call, as far as it is known.
type Subject struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
	Container string `json:"container,omitempty"`
	Attempt   uint32 `json:"attempt,omitempty"` // the container's, or the sandbox's
	// ID is the container's id, or the sandbox's if there is no container.
	ID    string `json:"id,omitempty"`
	Image string `json:"image,omitempty"`
}

// Call is one entry of the journal: a call that changes something. Begin and End count in one
// sequence: call a was over before call b began if a.End < b.Begin.
type Call struct {
	Begin   uint64    `json:"begin"`
	End     uint64    `json:"end,omitempty"` // 0: in flight
	Method  string    `json:"method"`
	Subject Subject   `json:"subject"`
	CPUs    string    `json:"cpus,omitempty"` // the CPU set in the request
	Error   string    `json:"error,omitempty"`
	At      time.Time `json:"at"`            // when it began
	Done    time.Time `json:"done,omitzero"` // when it ended
}

// journalSize bounds the journal; older entries are dropped.
const journalSize = 1 << 16

// journal records calls in the order they began.
type journal struct {
	mu     sync.Mutex
	seq    uint64
	calls  []Call         // at most journalSize, in order of Begin
	counts map[string]int // every call by RPC name
}

func newJournal() *journal { return &journal{counts: map[string]int{}} }

// changes reports whether a method belongs in the journal.
func changes(method string) bool {
	switch method {
	case "Version", "Status", "RuntimeConfig", "GetContainerEvents", "ImageStatus", "ImageFsInfo":
		return false
	}
	return !slices.ContainsFunc([]string{"List", "ContainerSta", "PodSandboxSta", "Stream"},
		func(reads string) bool { return strings.HasPrefix(method, reads) })
}

// begin records a call and returns the ticket for end.
func (j *journal) begin(method string, about Subject, cpus string) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts[method]++
	if !changes(method) {
		return 0
	}
	if len(j.calls) >= journalSize {
		j.calls = append([]Call(nil), j.calls[journalSize/2:]...)
	}
	j.seq++
	j.calls = append(j.calls, Call{
		Begin: j.seq, Method: method, Subject: about, CPUs: cpus, At: time.Now(),
	})
	return j.seq
}

// end completes the entry; id is the id of the object that the call created, if any.
func (j *journal) end(ticket uint64, id string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if ticket == 0 {
		return
	}
	j.seq++
	i, kept := j.findLocked(ticket)
	if !kept {
		return
	}
	c := &j.calls[i]
	c.End, c.Done = j.seq, time.Now()
	c.Subject.ID = cmp.Or(id, c.Subject.ID)
	if err != nil {
		c.Error = err.Error()
	}
}

// findLocked returns the index of the first call that began then or later.
func (j *journal) findLocked(begin uint64) (at int, exact bool) {
	return slices.BinarySearchFunc(j.calls, begin, func(c Call, begin uint64) int {
		return cmp.Compare(c.Begin, begin)
	})
}

// since returns the calls that began after that sequence number.
func (j *journal) since(begin uint64) []Call {
	j.mu.Lock()
	defer j.mu.Unlock()
	at, _ := j.findLocked(begin + 1)
	return append([]Call{}, j.calls[at:]...)
}

func (j *journal) count() map[string]int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.counts)
}

// subject finds the object of a request.
func (c *calls) subject(req any) Subject {
	var out Subject
	if r, ok := req.(interface{ GetPodSandboxId() string }); ok {
		if sb, err := c.store.sandboxByID(r.GetPodSandboxId()); err == nil {
			out.pod(sb.config.GetMetadata())
		}
		out.ID = r.GetPodSandboxId()
	}
	if r, ok := req.(interface{ GetContainerId() string }); ok {
		if of, err := c.store.containerByID(r.GetContainerId()); err == nil {
			out.pod(of.sandbox.config.GetMetadata())
			out.container(of.config.GetMetadata())
		}
		out.ID = r.GetContainerId()
	}
	switch r := req.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		out.pod(r.GetConfig().GetMetadata())
	case *runtimeapi.CreateContainerRequest:
		out.container(r.GetConfig().GetMetadata())
		out.ID = ""
	case *runtimeapi.PullImageRequest:
		out.pod(r.GetSandboxConfig().GetMetadata())
		out.Image = r.GetImage().GetImage()
	}
	return out
}

func (s *Subject) pod(m *runtimeapi.PodSandboxMetadata) {
	s.Namespace, s.Pod, s.UID = m.GetNamespace(), m.GetName(), m.GetUid()
	s.Attempt = m.GetAttempt()
}

func (s *Subject) container(m *runtimeapi.ContainerMetadata) {
	s.Container, s.Attempt = m.GetName(), m.GetAttempt()
}

// cpusOf returns the CPU set in a request.
func cpusOf(req any) string {
	switch r := req.(type) {
	case *runtimeapi.CreateContainerRequest:
		return r.GetConfig().GetLinux().GetResources().GetCpusetCpus()
	case *runtimeapi.UpdateContainerResourcesRequest:
		return r.GetLinux().GetCpusetCpus()
	default:
		return ""
	}
}

// made returns the id of the object that a call created.
func made(resp any) string {
	switch r := resp.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		return r.GetPodSandboxId()
	case *runtimeapi.CreateContainerResponse:
		return r.GetContainerId()
	default:
		return ""
	}
}
