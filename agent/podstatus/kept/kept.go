// Package kept keeps the last statuses of static pods over restarts of the agent. Whoever delivers a
// pod of the API server knows what was told of it, and a manifest does not: whether a container has
// started and is ready would be false until its probes have answered again. Where no status was kept,
// that of the mirror pod counts.
package kept

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/kubeapi/mirror"
	"github.com/numalet/numalet/agent/podstatus"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology/podspec"
)

// Dir is the name of the folder in the agent's root. It has a file for each static pod, named by its
// UID.
const Dir = "numalet_statuses"

const (
	// maxFile bounds what is read of one status.
	maxFile = 1 << 20
	// maxFiles bounds how many are read at the start: more than a node has pods.
	maxFiles = 10000
)

// Statuses keeps them. All methods may be called from anywhere, and none but Run waits for the disk.
type Statuses struct {
	dir  string
	wake chan struct{} // capacity 1

	mu    sync.Mutex // guards the fields below
	found map[types.UID]v1.PodStatus
	// mirrors are those that the API server had at first; nil: it was not heard yet.
	mirrors map[types.NamespacedName]*v1.Pod
	due     map[types.UID]*v1.PodStatus // to be written; nil: to be removed
}

// Open reads what an earlier run of the agent kept. A file that cannot be read counts for nothing.
func Open(ctx context.Context, root string) (*Statuses, error) {
	s := &Statuses{
		dir: filepath.Join(root, Dir), wake: make(chan struct{}, 1),
		found: map[types.UID]v1.PodStatus{}, due: map[types.UID]*v1.PodStatus{},
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of kept statuses: %w", err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list kept statuses: %w", err)
	}
	for _, e := range entries[:min(len(entries), maxFiles)] {
		told, err := read(filepath.Join(s.dir, e.Name()))
		if err != nil {
			klog.FromContext(ctx).Info("A kept status is left out", "err", err)
		}
		s.found[types.UID(e.Name())] = told
	}
	return s, nil
}

func read(path string) (told v1.PodStatus, err error) {
	raw, err := files.Read(path, maxFile)
	if err != nil {
		return told, err
	}
	if err := json.Unmarshal(raw, &told); err != nil {
		return v1.PodStatus{}, fmt.Errorf("decode %s: %w", path, err)
	}
	return told, nil
}

// Recall is what an earlier run of the agent told last of a static pod, once; the zero value: that is
// not known.
func (s *Statuses) Recall(pod *v1.Pod) (told v1.PodStatus) {
	if !podspec.IsStatic(pod) {
		return told
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := podspec.Name(pod)
	if m := s.mirrors[name]; m != nil && mirror.IsOf(m, pod) {
		told = m.Status
	}
	if one := s.found[pod.UID]; one.Phase != "" {
		told = one
	}
	delete(s.mirrors, name)
	delete(s.found, pod.UID)
	return told
}

// RecallFor is Recall of a pod of which the runtime has observed; recorded: it has something of it. The
// status counts if the pod still runs. An end counts only if the runtime agrees: a pod that was
// refused or that the node ended begins anew, and so does one that a reboot ended.
func (s *Statuses) RecallFor(pod *v1.Pod, observed cri.Pod, recorded bool) v1.PodStatus {
	told := s.Recall(pod)
	still := recorded && observed.Running()
	if status.Ended(told.Phase) {
		still = recorded && status.Ended(status.Phase(pod, status.Facts{Observed: observed}))
	}
	if !still {
		return v1.PodStatus{}
	}
	return told
}

// Mirrored takes all pods that the API server has for the node. It reports whether these are the
// first: what was not known may be known now.
func (s *Statuses) Mirrored(all []*v1.Pod) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirrors != nil {
		return false
	}
	s.mirrors = map[types.NamespacedName]*v1.Pod{}
	for _, pod := range all {
		if mirror.Is(pod) {
			s.mirrors[podspec.Name(pod)] = pod
		}
	}
	return true
}

// Wrote takes what was written of a pod.
func (s *Statuses) Wrote(c podstatus.Change) {
	if c.First || !podspec.IsStatic(c.Pod) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due[c.Pod.UID] = nil
	if !c.Ends() {
		s.due[c.Pod.UID] = &c.After
	}
	await.Wake(s.wake)
}

// Heard takes that every source of pods was heard: what was found of others is of no use any more.
func (s *Statuses) Heard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.found {
		delete(s.found, uid)
		s.due[uid] = nil
	}
	clear(s.mirrors)
	await.Wake(s.wake)
}

// Run writes what is due until ctx ends, and then what is due still.
func (s *Statuses) Run(ctx context.Context) error {
	for await.On(ctx, s.wake) {
		s.write(ctx)
	}
	s.write(ctx)
	return nil
}

// write brings the files up to date. One that cannot be written is written with the next change: after a
// restart the pod's probes have to answer again.
func (s *Statuses) write(ctx context.Context) {
	for uid, told := range s.take() {
		if err := s.put(uid, told); err != nil {
			klog.FromContext(ctx).Info("The status of a static pod is not kept", "podUID", uid,
				"err", err)
		}
	}
}

func (s *Statuses) take() map[types.UID]*v1.PodStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.due
	s.due = map[types.UID]*v1.PodStatus{}
	return due
}

func (s *Statuses) put(uid types.UID, told *v1.PodStatus) error {
	if name := string(uid); !filepath.IsLocal(name) || filepath.Base(name) != name {
		return errors.New("its UID is no name of a file")
	}
	path := filepath.Join(s.dir, string(uid))
	if told == nil {
		return files.Remove(path)
	}
	raw, err := json.Marshal(told)
	if err == nil {
		err = files.Replace(path, raw)
	}
	return err
}
