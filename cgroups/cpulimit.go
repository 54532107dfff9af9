package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	oci "github.com/opencontainers/cgroups"
	"k8s.io/apimachinery/pkg/types"
)

// CPULimit bounds a cgroup's CPU time: Quota microseconds in each Period of so many microseconds,
// or Unlimited (Documentation/scheduler/sched-bwc.rst). The zero value sets nothing.
type CPULimit struct{ Quota, Period int64 }

// Same reports whether both have the same effect. Without a limit the period has none.
func (l CPULimit) Same(o CPULimit) bool {
	return l == o || l.Quota == Unlimited && o.Quota == Unlimited
}

// String returns the limit in the format of cpu.max.
func (l CPULimit) String() string {
	quota := strconv.FormatInt(l.Quota, 10)
	if l.Quota == Unlimited {
		quota = unlimited
	}
	if l.Period == 0 {
		return quota
	}
	return fmt.Sprintf("%s %d", quota, l.Period)
}

const unlimited = "max"

// CPULimit returns the quota of r, zero if it has none.
func (r Resources) CPULimit() CPULimit {
	if r.Quota == 0 {
		return CPULimit{}
	}
	return CPULimit{Quota: r.Quota, Period: r.Period.Microseconds()}
}

const (
	maxFile    = "cpu.max"           // cgroup v2
	quotaFile  = "cpu.cfs_quota_us"  // v1
	periodFile = "cpu.cfs_period_us" // v1
)

func (d directory) cpuLimit() (CPULimit, error) {
	var text string
	var err error
	if d.unified {
		text, err = readSet(d.path, maxFile)
	} else {
		var period string
		if text, err = readSet(d.path, quotaFile); err == nil {
			period, err = readSet(d.path, periodFile)
		}
		text += " " + period
	}
	if err != nil {
		return CPULimit{}, err
	}
	return parseCPULimit(text)
}

// parseCPULimit parses the content of cpu.max; a quota of -1 comes from cgroup v1.
func parseCPULimit(text string) (CPULimit, error) {
	quota, period, _ := strings.Cut(text, " ")
	if quota == unlimited {
		quota = strconv.Itoa(Unlimited)
	}
	var l CPULimit
	var err error
	if l.Quota, err = strconv.ParseInt(quota, 10, 64); err == nil {
		l.Period, err = strconv.ParseInt(period, 10, 64)
	}
	if err != nil {
		return CPULimit{}, fmt.Errorf("parse CPU quota %q: %w", text, err)
	}
	return l, nil
}

// setCPULimit sets the limit; if the kernel refuses it, the limit before stays.
func (d directory) setCPULimit(l CPULimit) error {
	if d.unified {
		return oci.WriteFile(d.path, maxFile, l.String())
	}
	before, err := d.cpuLimit()
	if err != nil {
		return err
	}
	if err := d.setLegacyCPULimit(l); err != nil {
		return errors.Join(err, d.setLegacyCPULimit(before))
	}
	return nil
}

// setLegacyCPULimit sets the limit on cgroup v1. The kernel compares each value with the quotas of the
// groups inside and above; without a quota it accepts any period. opencontainers' library does not lift
// the quota first: below a group with a quota, a shorter period would be refused.
func (d directory) setLegacyCPULimit(l CPULimit) error {
	has, err := d.cpuLimit()
	if err == nil {
		err = oci.WriteFile(d.path, quotaFile, strconv.Itoa(Unlimited))
	}
	if err == nil && l.Period > 0 && l.Period != has.Period {
		err = oci.WriteFile(d.path, periodFile, strconv.FormatInt(l.Period, 10))
	}
	if err == nil && l.Quota != Unlimited {
		err = oci.WriteFile(d.path, quotaFile, strconv.FormatInt(l.Quota, 10))
	}
	return err
}

// Pod is the existing cgroup of a pod.
type Pod struct {
	tree  *Tree
	group group
	cpu   directory
}

// FindPod finds the cgroup of a pod. The error is fs.ErrNotExist if there is none (yet).
func (t *Tree) FindPod(uid types.UID) (Pod, error) {
	if err := checkUID(uid); err != nil {
		return Pod{}, err
	}
	for _, class := range classes() {
		g := podGroup(t.root, class, uid)
		if cpu := t.dir("cpu", g); exists(cpu.path) {
			return Pod{t, g, cpu}, nil
		}
	}
	return Pod{}, fmt.Errorf("find cgroup of pod %s: %w", uid, fs.ErrNotExist)
}

// CPULimit returns the pod's CPU quota. The error is fs.ErrNotExist if the cgroup is gone.
func (p Pod) CPULimit() (CPULimit, error) { return p.cpu.cpuLimit() }

// SetCPULimit only changes the pod's CPU quota. It does not make a cgroup that is gone.
func (p Pod) SetCPULimit(ctx context.Context, l CPULimit) error {
	if s := p.tree.systemd; s != nil {
		if err := s.limit(ctx, p.group, l); err != nil {
			return fmt.Errorf("set CPU quota of %s: %w", p.group.slice(), err)
		}
	}
	if err := p.cpu.setCPULimit(l); err != nil {
		return fmt.Errorf("set CPU quota of %s to %s: %w", p.cpu.path, l, err)
	}
	return nil
}

// Set changes the values in r, which must not have a CPU quota. It does not make a cgroup that is
// gone: then the error is fs.ErrNotExist.
func (p Pod) Set(ctx context.Context, r Resources) error {
	path := p.group.path(p.tree.driver)
	kernel, lacks := p.tree.kernel.existing(path, r)
	if lacks != "" {
		return fmt.Errorf("change cgroup %s: %s: %w", path, lacks, fs.ErrNotExist)
	}
	return p.tree.write(ctx, kernel, p.group, r)
}
