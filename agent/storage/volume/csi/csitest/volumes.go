package csitest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
)

// volumes records what the driver has of volumes: by id, where they are staged and published.
type volumes struct {
	staged    map[string]string
	published map[string]map[string]bool
	wrong     []string // calls that no caller may make
	cfg       Config
}

func newVolumes(cfg Config) volumes {
	return volumes{map[string]string{}, map[string]map[string]bool{}, nil, cfg}
}

// Staged returns the ids of the volumes that are staged, ascending.
func (d *Driver) Staged() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.volumes.staged))
}

// Published returns where volumes are published, ascending.
func (d *Driver) Published() (out []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range d.volumes.published {
		out = slices.AppendSeq(out, maps.Keys(at))
	}
	slices.Sort(out)
	return out
}

// Wrong returns the calls that no caller may make.
func (d *Driver) Wrong() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.volumes.wrong)
}

// Lose forgets and unmounts everything, as a reboot does.
func (d *Driver) Lose() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.volumes = newVolumes(d.cfg)
}

func (v *volumes) stages() bool {
	return slices.Contains(v.cfg.Can, csipb.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
}

func (v *volumes) wrongly(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	v.wrong = append(v.wrong, text)
	return refuse("%s", text)
}

func (v *volumes) stage(req *csipb.NodeStageVolumeRequest) error {
	id, path := req.GetVolumeId(), req.GetStagingTargetPath()
	if was := v.staged[id]; was != "" {
		if was != path {
			return v.wrongly("%s is staged at %s and at %s", id, was, path)
		}
		return nil
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return v.wrongly("%s is staged where there is no directory: %s", id, path)
	}
	if v.cfg.Mounter != nil && req.GetVolumeCapability().GetBlock() == nil {
		if err := v.cfg.Mounter.Mount(id, path, "tmpfs", nil); err != nil {
			return err
		}
	}
	v.staged[id] = path
	return nil
}

func (v *volumes) unstage(req *csipb.NodeUnstageVolumeRequest) error {
	id, path := req.GetVolumeId(), req.GetStagingTargetPath()
	if at := v.published[id]; len(at) > 0 {
		return v.wrongly("%s is unstaged while it is published at %v", id,
			slices.Sorted(maps.Keys(at)))
	}
	was := v.staged[id]
	if was == "" {
		return nil
	}
	if was != path {
		return v.wrongly("%s is unstaged from %s, and is at %s", id, path, was)
	}
	if err := v.unmount(path); err != nil {
		return err
	}
	delete(v.staged, id)
	return nil
}

func (v *volumes) publish(req *csipb.NodePublishVolumeRequest) error {
	id, path, staged := req.GetVolumeId(), req.GetTargetPath(), req.GetStagingTargetPath()
	inline := req.GetVolumeContext()["csi.storage.k8s.io/ephemeral"] == "true"
	if v.stages() && !inline && (staged == "" || v.staged[id] != staged) {
		return v.wrongly("%s is published from %q, and is staged at %q", id, staged,
			v.staged[id])
	}
	at := v.published[id]
	if at[path] {
		return nil
	}
	if err := v.show(req); err != nil {
		return err
	}
	if at == nil {
		at = map[string]bool{}
		v.published[id] = at
	}
	at[path] = true
	return nil
}

// show makes the volume visible at its target.
func (v *volumes) show(req *csipb.NodePublishVolumeRequest) error {
	path := req.GetTargetPath()
	if req.GetVolumeCapability().GetBlock() != nil {
		return os.WriteFile(path, []byte("device"), 0o600)
	}
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if v.cfg.Mounter == nil {
		return nil
	}
	return v.cfg.Mounter.Mount(req.GetVolumeId(), path, "tmpfs", nil)
}

func (v *volumes) unpublish(req *csipb.NodeUnpublishVolumeRequest) error {
	id, path := req.GetVolumeId(), req.GetTargetPath()
	if !v.published[id][path] {
		return nil
	}
	if err := v.unmount(path); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(v.published[id], path)
	return nil
}

func (v *volumes) unmount(path string) error {
	if v.cfg.Mounter == nil {
		return nil
	}
	return v.cfg.Mounter.Unmount(path)
}
