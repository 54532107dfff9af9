package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/files"
)

// young is the age below which a directory may belong to a pod that is not known yet.
const young = time.Minute

// Sweep removes the logs of pods and containers that are gone.
type Sweep struct {
	Place logfiles.Place
	// Ready reports whether Known knows all pods of the node, and no other agent has logs in Place.
	Ready func() bool
	// Known reports whether the node has a pod. Running returns the pods in the runtime.
	Known   func(types.UID) bool
	Running func() []cri.Pod

	// was is the result of Ready in the last look: it takes a moment until pods are known.
	was bool
}

// Look removes the directories of pods that are neither known nor in the runtime, and links to
// missing logs. Only one goroutine may call it.
func (s *Sweep) Look(ctx context.Context) error {
	was := s.was
	if s.was = s.Ready(); !s.was || !was {
		return nil
	}
	pods, running := sets.New[types.UID](), sets.New[string]()
	for _, p := range s.Running() {
		pods.Insert(p.UID)
		for _, c := range p.Containers {
			if c.State == cri.ContainerRunning {
				running.Insert(c.ID)
			}
		}
	}
	return errors.Join(s.directories(ctx, pods), s.links(ctx, running))
}

func (s *Sweep) directories(ctx context.Context, running sets.Set[types.UID]) error {
	entries, err := os.ReadDir(s.Place.Dir)
	if err != nil {
		return fmt.Errorf("list directories of logs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		uid, ok := podOf(e.Name())
		if !ok || !e.IsDir() || ctx.Err() != nil || running.Has(uid) || s.Known(uid) {
			continue
		}
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < young {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.Place.Dir, e.Name())); err != nil {
			errs = append(errs, fmt.Errorf("remove logs of a pod that is gone: %w", err))
		}
	}
	return errors.Join(errs...)
}

// links removes dangling links, except those of running containers, whose log may be missing
// briefly.
func (s *Sweep) links(ctx context.Context, running sets.Set[string]) error {
	if s.Place.Links == "" {
		return nil
	}
	entries, err := os.ReadDir(s.Place.Links)
	if err != nil {
		return fmt.Errorf("list links to logs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		link := filepath.Join(s.Place.Links, e.Name())
		if e.Type() != fs.ModeSymlink || ctx.Err() != nil || running.Has(containerOf(e.Name())) {
			continue
		}
		to, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(to, s.Place.Dir+"/") {
			continue // no agent made it
		}
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < young {
			continue
		}
		if err := files.Remove(link); err != nil {
			errs = append(errs, fmt.Errorf("remove a link to a log that is gone: %w", err))
		}
	}
	return errors.Join(errs...)
}

// containerOf returns the container's id in the name of a link.
func containerOf(name string) string {
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '-')+1:], ".log")
}

// podOf returns the UID of the pod that a directory belongs to.
func podOf(name string) (types.UID, bool) {
	parts := strings.Split(name, "_") // none of the three can contain one
	if len(parts) != 3 || parts[2] == "" {
		return "", false
	}
	return types.UID(parts[2]), true
}
