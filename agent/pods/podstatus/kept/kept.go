// Package kept keeps the last statuses of static pods over restarts of the agent. The API server
// delivers the statuses of its pods, and a manifest has none: until the probes answer again, a
// container would not count as started and ready. If no status was kept, the mirror pod's counts.
package kept

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology/podspec"
)

// Dir is the name of the folder in the agent's root. It holds a file for each static pod, named by
// its UID.
const Dir = "numalet_statuses"

const (
	// maxFile bounds the size of one status.
	maxFile = 1 << 20
	// maxFiles bounds how many are read at the start; it is more than a node's pods.
	maxFiles = 10000
)

// Statuses holds the statuses. All methods may be called from anywhere, and only Run waits for the
// disk.
type Statuses struct {
	dir  string
	wake chan struct{} // capacity 1

	mu    sync.Mutex // guards the fields below
	found map[types.UID]v1.PodStatus
	// mirrors holds the mirror pods that the API server first delivered; nil: none yet.
	mirrors map[types.NamespacedName]*v1.Pod
	due     map[types.UID]*v1.PodStatus // to be written; nil: to be removed
}

// Open reads what an earlier run of the agent kept. A file that cannot be read does not count. A file in
// the folder's place is moved aside: Statuses are empty then beside an error that is files.ErrUnusable.
// Any other error comes without Statuses.
func Open(ctx context.Context, root string) (*Statuses, error) {
	s := &Statuses{
		dir: filepath.Join(root, Dir), wake: make(chan struct{}, 1),
		found: map[types.UID]v1.PodStatus{}, due: map[types.UID]*v1.PodStatus{},
	}
	made := files.MakeFolder(s.dir, 0o700, time.Now())
	if made != nil && !errors.Is(made, files.ErrUnusable) {
		return nil, fmt.Errorf("make the folder of kept statuses: %w", made)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list kept statuses: %w", err)
	}
	for _, e := range entries[:min(len(entries), maxFiles)] {
		reported, err := read(filepath.Join(s.dir, e.Name()))
		if err != nil {
			klog.FromContext(ctx).Info("A kept status is left out", "err", err)
		}
		s.found[types.UID(e.Name())] = reported
	}
	return s, made
}

// read reads a status with its checksum: a damaged count of restarts would be told on. A file of an
// earlier version has the status alone.
func read(path string) (reported v1.PodStatus, err error) {
	raw, err := files.Read(path, maxFile)
	if err != nil {
		return reported, err
	}
	var line files.Line
	err = json.Unmarshal(raw, &line)
	if err == nil && line.Data != nil {
		if raw = line.Data; line.Sum() != line.Checksum {
			err = errors.New("the checksum is wrong")
		}
	}
	if err == nil {
		err = json.Unmarshal(raw, &reported)
	}
	if err != nil {
		return v1.PodStatus{}, fmt.Errorf("decode %s: %w", path, err)
	}
	return reported, nil
}

// Recall returns, once, the last status that an earlier run of the agent reported of a static pod;
// the zero value: unknown.
func (s *Statuses) Recall(pod *v1.Pod) (reported v1.PodStatus) {
	if !podspec.IsStatic(pod) {
		return reported
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := podspec.Name(pod)
	if m := s.mirrors[name]; m != nil && podspec.IsMirrorOf(m, pod) {
		reported = m.Status
	}
	if one := s.found[pod.UID]; one.Phase != "" {
		reported = one
	}
	delete(s.mirrors, name)
	delete(s.found, pod.UID)
	return reported
}

// RecallFor is Recall for a pod that the runtime has as observed; recorded is set if it has
// anything of it. The status counts if the pod still runs. An end counts only if the runtime
// agrees: a pod that was refused, or that the node or a reboot ended, begins again.
func (s *Statuses) RecallFor(pod *v1.Pod, observed cri.Pod, recorded bool) v1.PodStatus {
	reported := s.Recall(pod)
	still := recorded && observed.Running()
	if podspec.Ended(reported.Phase) {
		still = recorded && podspec.Ended(status.Phase(pod, status.Facts{Observed: observed}))
	}
	if !still {
		return v1.PodStatus{}
	}
	return reported
}

// Mirrored records all pods that the API server has for the node. news is set the first time: what
// was unknown may be known now.
func (s *Statuses) Mirrored(all []*v1.Pod) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirrors != nil {
		return false
	}
	s.mirrors = map[types.NamespacedName]*v1.Pod{}
	for _, pod := range all {
		if podspec.IsMirror(pod) {
			s.mirrors[podspec.Name(pod)] = pod
		}
	}
	return true
}

// Wrote records a change of a pod's status.
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

// Heard records that every source of pods was heard: the statuses of other pods are useless now.
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

// writeDelay gathers changes: a pod that starts changes several times, and each write makes a new
// file. An agent that is killed loses what changed in this time.
const writeDelay = time.Second

// Run writes changes after writeDelay until ctx ends, and then the last ones.
func (s *Statuses) Run(ctx context.Context) error {
	for await.On(ctx, s.wake) {
		select {
		case <-ctx.Done():
		case <-time.After(writeDelay):
		}
		s.write(ctx)
	}
	s.write(ctx)
	return nil
}

// write updates the files. A failed write is repeated with the next change: without it the pod's
// probes have to answer again after a restart.
func (s *Statuses) write(ctx context.Context) {
	for uid, reported := range s.take() {
		if err := s.put(uid, reported); err != nil {
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

func (s *Statuses) put(uid types.UID, reported *v1.PodStatus) error {
	if name := string(uid); !filepath.IsLocal(name) || filepath.Base(name) != name {
		return errors.New("its UID is no name of a file")
	}
	path := filepath.Join(s.dir, string(uid))
	if reported == nil {
		return files.Remove(path)
	}
	raw, err := files.EncodeLine(`"version":1,`, reported)
	if err == nil {
		err = files.Renew(path, raw) // many changes are none of the status
	}
	return err
}
