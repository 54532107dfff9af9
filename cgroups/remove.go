package cgroups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	oci "github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RemovePod removes the pod's cgroup, whatever its class. It first kills what still runs there,
// until ctx ends. It succeeds if there is no cgroup.
func (t *Tree) RemovePod(ctx context.Context, uid types.UID) error {
	if err := checkUID(uid); err != nil {
		return err
	}
	for _, class := range classes() {
		if err := t.remove(ctx, podGroup(t.root, class, uid)); err != nil {
			return fmt.Errorf("remove cgroup of pod %s: %w", uid, err)
		}
	}
	return nil
}

// Orphans returns the pods that have a cgroup but are not live, sorted.
func (t *Tree) Orphans(live func(types.UID) bool) ([]types.UID, error) {
	var orphans []types.UID
	for _, class := range classes() {
		parent := qosGroup(t.root, class).path(t.driver)
		dirs, err := t.kernel.children(parent)
		if err != nil {
			return nil, fmt.Errorf("list pods in cgroup %s: %w", parent, err)
		}
		for _, dir := range dirs {
			if uid, ok := parsePod(t.driver, dir); ok && !live(uid) {
				orphans = append(orphans, uid)
			}
		}
	}
	slices.Sort(orphans)
	return slices.Compact(orphans), nil
}

func classes() []v1.PodQOSClass {
	return []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}
}

// killable returns an error for processes that must not or cannot be killed.
func killable(pids map[int]bool) error {
	switch {
	case pids[os.Getpid()]:
		return errors.New("the agent itself runs in this cgroup: move it out")
	case pids[0]: // 0 stands for a process outside our PID namespace
		return errors.New("processes of another PID namespace: run the agent in the host's")
	}
	return nil
}

// processes returns the processes in and below the directories of a cgroup, of which some may not
// exist. It returns an error if one of the processes must not or cannot be killed.
func processes(dirs ...string) (map[int]bool, error) {
	all := map[int]bool{}
	for _, dir := range dirs {
		pids, err := steady(dir, func() ([]int, error) { return oci.GetAllPids(dir) })
		if err != nil && !vanished(err) {
			return nil, err
		}
		for _, pid := range pids {
			all[pid] = true
		}
	}
	return all, killable(all)
}

// mostWalks bounds how often a walk is repeated.
const mostWalks = 100

// steady repeats a walk through dir that failed because an owner removed a cgroup below meanwhile.
// If dir itself does not exist, it returns nothing.
func steady[T any](dir string, walk func() (T, error)) (found T, err error) {
	for range mostWalks {
		if found, err = walk(); !vanished(err) {
			return found, err
		}
		if !exists(dir) {
			var none T
			return none, nil
		}
	}
	return found, err
}

// vanished reports whether a walk failed since a cgroup is gone. A file of it that is open is ENODEV.
func vanished(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}

func childDirs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, err
}
