package agent

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/agent/volume"
	"github.com/numalet/numalet/cri"
)

// reporter makes a status of what a worker saw.
type reporter struct {
	pods    *pods
	volumes *volume.Volumes
	ended   *mailbox.Box[ending]
	logsDir string
}

// report runs in the worker's goroutine.
func (r reporter) report(round podworker.Report) {
	if round.Err != nil {
		return // the worker logs it and looks again
	}
	messages := r.messages(round.Pod, round.Observed)
	r.pods.report(round.Pod.UID, func(in status.Input) v1.PodStatus {
		in.Pod, in.Observed, in.Messages = round.Pod, round.Observed, messages
		in.Waiting = round.Decision.Waiting
		in.Stop.Terminating = round.Decision.State != podworker.SyncPod
		in.Stop.Finished = round.Decision.State == podworker.Finished
		if round.Stop != nil {
			in.Stop.Why = status.Reason{Reason: round.Stop.Reason, Message: round.Stop.Message}
		}
		s := status.Generate(in)
		if problem := round.Decision.Problem; s.Reason == "" && problem.Reason != "" {
			s.Reason, s.Message = problem.Reason, problem.Message
		}
		return s
	})
	removed := round.Stop != nil && round.Stop.Remove // which the worker tells when it is done
	if !removed && round.Decision.State == podworker.Finished {
		r.ended.Put(ending{uid: round.Pod.UID})
	}
}

// messages reads the termination messages of the containers that have exited.
func (r reporter) messages(pod *v1.Pod, observed cri.Pod) map[string]string {
	out := map[string]string{}
	for _, c := range observed.Containers {
		if c.State != cri.ContainerExited {
			continue
		}
		if c.Message != "" {
			out[c.ID] = c.Message
			continue
		}
		spec := cri.ContainerOf(pod, c.Name)
		if spec == nil {
			continue
		}
		text, err := r.volumes.TerminationMessage(pod, spec, volume.Exit{
			Attempt: c.Attempt, Code: c.ExitCode,
			LogPath: filepath.Join(cri.PodLogDir(r.logsDir, pod),
				cri.ContainerLogPath(c.Name, c.Attempt)),
		})
		if err != nil {
			klog.Background().V(2).Info("A termination message was not read", "pod", klog.KObj(pod),
				"container", c.Name, "err", err)
		}
		out[c.ID] = text
	}
	return out
}

// problems are the manifests that are wrong now.
type problems struct {
	mu  sync.Mutex // guards now
	now map[problemKey]source.Problem
}

type problemKey struct{ source, name string }

func newProblems() *problems { return &problems{now: map[problemKey]source.Problem{}} }

// report takes a problem; one without a message is over.
func (p *problems) report(problem source.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := problemKey{problem.Source, problem.Name}
	if problem.Message == "" {
		delete(p.now, key)
		return
	}
	p.now[key] = problem
	klog.Background().Info("Manifest refused", "source", problem.Source, "name", problem.Name,
		"reason", problem.Reason, "message", problem.Message)
}

func (p *problems) list() []source.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]source.Problem, 0, len(p.now))
	for _, problem := range p.now {
		out = append(out, problem)
	}
	slices.SortFunc(out, func(a, b source.Problem) int {
		return strings.Compare(a.Source+"\x00"+a.Name, b.Source+"\x00"+b.Name)
	})
	return out
}
